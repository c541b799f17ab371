"""SQLite: one UPDATE … RETURNING, which is also the write every transaction must begin with."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Engine, Select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from lazycron.outcomes import Claim
from lazycron.schema import scheduled_task as t
from lazycron.store import prepared
from lazycron.store.claims import CLAIMED_COLUMNS, Claiming, Stamp
from lazycron.store.portable import Portable

LEAST_BUSY_TIMEOUT_MS = 1000


class SQLite(Portable):
    """Updates the row whose id the subselect finds, and returns it."""

    def __init__(self, claiming: Claiming) -> None:
        super().__init__(claiming)
        self._take_one = self._taking(claiming.first_due(t.c.id))
        self._take_recurring = self._taking(claiming.first_recurring(t.c.id))

    def _taking(self, oldest: Select[Any]) -> ReturningUpdate[Any]:
        take = update(t).where(t.c.id == oldest.scalar_subquery()).values(self.claiming.stamps)
        return take.returning(*CLAIMED_COLUMNS)

    def claim(self, connection: Connection, stamp: Stamp) -> Claim | None:
        """Claim the oldest due row, or return None."""
        take = self._take_recurring if stamp.recurring else self._take_one
        row = prepared.one(connection, take, self.claiming.values(stamp))
        return None if row is None else self.claiming.to_claim(row, stamp, attempt=row.attempts)


class Insert:
    """One INSERT of one row on a connection of its own, past all but SQLAlchemy's pool.

    The statement is compiled once; on an autocommitting connection that halves what enqueueing
    costs.
    """

    def __init__(self, engine: Engine, statement: ReturningInsert[Any]) -> None:
        self._engine = engine
        self._statement = statement

    @cached_property
    def _compiled(self) -> tuple[str, Sequence[str], dict[str, Any]]:
        """The statement's text, its parameters in order, and how some of them are written."""
        dialect = self._engine.dialect
        compiled = self._statement.compile(dialect=dialect)
        processors = {
            name: bind.type.dialect_impl(dialect).bind_processor(dialect)
            for bind, name in compiled.bind_names.items()
        }
        written = {name: process for name, process in processors.items() if process}
        return str(compiled), compiled.positiontup or (), written

    def __call__(self, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever is returned
        """Insert a row, and return the first column of what it returns; None: nothing inserted.

        Raises SQLAlchemy's errors, as `Connection.execute` does.
        """
        text, names, processors = self._compiled
        errors = self._engine.dialect.loaded_dbapi.Error
        written = dict(values)
        for name, process in processors.items():
            written[name] = process(values[name])
        given = [written[name] for name in names]
        connection = self._engine.raw_connection()
        try:
            cursor = connection.cursor()
            cursor.execute(text, given)
            row = cursor.fetchone()
            cursor.close()
        except errors as error:
            raise DBAPIError.instance(
                text, None, error, errors, dialect=self._engine.dialect
            ) from error
        finally:
            connection.close()
        return None if row is None else row[0]


@contextmanager
def busy_timeout(connection: Connection, milliseconds: int) -> Iterator[None]:
    """Wait for the file's lock for so long only, for the time of this block."""
    before = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(milliseconds)}")
    try:
        yield
    finally:
        connection.rollback()
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(before)}")


def take_write_lock(connection: Connection) -> None:
    """Begin a transaction that holds the file's write lock from its first moment."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def advice(connection: Connection) -> list[str]:
    """Return what is advisable for a file that requests and tasks write at the same time."""
    found = []
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if mode != "wal":
        found.append(f"journal_mode is {mode}; with WAL readers do not wait for writers")
    timeout = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    if timeout < LEAST_BUSY_TIMEOUT_MS:
        found.append(f"busy_timeout is {timeout} ms; with 5000 a writer waits for its turn")
    return found
