"""SQLAlchemy's private names; where one is missing, statements use the public way."""

from typing import NoReturn

from sqlalchemy import Connection, Engine
from sqlalchemy.engine.interfaces import DBAPICursor

NEEDED: tuple[tuple[type, str], ...] = (
    (Engine, "_has_events"),
    (Engine, "_should_log_info"),
    (Connection, "_handle_dbapi_exception"),
)


def are_there() -> bool:
    """Tell whether this SQLAlchemy has all the names."""
    return all(hasattr(kind, name) for kind, name in NEEDED)


ARE_THERE = are_there()


def may_send_past(engine: Engine, connection: Connection | None = None) -> bool:
    """Tell whether statements may go past SQLAlchemy to the driver's cursor.

    They may not where an app listens to what is executed, or has it logged.
    """
    if not ARE_THERE:
        return False
    heard = engine.dialect.dispatch
    return not (
        engine._has_events  # noqa: SLF001
        # Not every version's class has it: without it, an app may be listening.
        or (connection is not None and getattr(connection, "_has_events", True))
        or engine._should_log_info()  # noqa: SLF001
        or heard.do_execute
        or heard.handle_error
    )


def raise_translated(
    connection: Connection, error: BaseException, text: str, cursor: DBAPICursor | None
) -> NoReturn:
    """Raise SQLAlchemy's error for a driver's, and invalidate a connection that is gone."""
    connection._handle_dbapi_exception(error, text, None, cursor, None)  # noqa: SLF001
