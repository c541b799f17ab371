"""What a database error means to lazycron; the one place that knows the drivers' numbers."""

import sqlite3
from enum import StrEnum

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from lazycron.texts import one_line

DatabaseError = SQLAlchemyError


class Fault(StrEnum):
    """What kind of database error it was."""

    BUSY = "busy"
    MISSING = "missing"
    GONE = "gone"
    OTHER = "other"


# MariaDB's error numbers and PostgreSQL's SQLSTATEs: deadlock, lock timeout, serialization failure.
BUSY = {1213, 1205, "40001", "40P01", "55P03"}
DEADLOCKS = {1213, "40001", "40P01"}
MISSING = {1146, "42P01"}
# A replica, or a primary that was made read-only: PostgreSQL's driver calls it an internal error.
READ_ONLY = {"25006"}


def fault_of(error: Exception) -> Fault:
    """Tell a lost race or a held lock, missing tables and an unreachable database apart."""
    if isinstance(error, PoolTimeout):
        return Fault.GONE
    if not isinstance(error, DBAPIError):
        return Fault.OTHER
    original = error.orig
    codes = _codes(original)
    # SQLite has one number for too many things; the texts of other errors may quote anything.
    text = str(original) if isinstance(original, sqlite3.OperationalError) else ""
    if codes & BUSY or "is locked" in text:
        return Fault.BUSY
    if codes & MISSING or "no such table" in text:
        return Fault.MISSING
    gone = error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
    if gone or codes & READ_ONLY:
        return Fault.GONE
    return Fault.OTHER


def said_by(error: BaseException) -> str:
    """Say what kind of error it is; an SQLite error's own text, which may name a file, is added.

    A server's text may name hosts and users, SQLAlchemy's the statement and its values.
    """
    kind = type(error).__name__
    original = getattr(error, "orig", None)
    return f"{kind}: {one_line(str(original))}" if isinstance(original, sqlite3.Error) else kind


def is_deadlock(error: Exception) -> bool:
    """Tell whether a transaction lost against another one, so that it may be tried again."""
    return isinstance(error, DBAPIError) and bool(_codes(error.orig) & DEADLOCKS)


def _codes(original: BaseException | None) -> set[object]:
    # PyMySQL's errors have both: the SQLSTATE of a lock timeout is just HY000.
    return {getattr(original, "sqlstate", None), _number(original)}


def _number(original: BaseException | None) -> int | None:
    first = original.args[0] if original is not None and original.args else None
    return first if isinstance(first, int) else None
