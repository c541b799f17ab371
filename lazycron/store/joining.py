"""Join a caller's own transaction, or begin one of our own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, event

from lazycron.errors import ConfigurationError
from lazycron.store.driver.faults import DatabaseError, is_deadlock

T = TypeVar("T")

# How often a transaction that lost a deadlock is tried again.
DEADLOCKS = 20

KINDS = "a SQLAlchemy Connection or Session"
ASYNC_KINDS = f"{KINDS}, or an AsyncConnection or AsyncSession"


class Joining:
    """Acts in the caller's transaction, which the caller ends, or in one of our own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, connection: Connection | None, act: Callable[[Connection], T]) -> T:
        """Act with the caller's connection, or with one of our own where it is None."""
        if connection is not None:
            with _untranslated(connection):
                return act(connection)

        def alone() -> T:
            with self._engine.begin() as own:
                return act(own)

        return unless_deadlocked(alone)


@contextmanager
def _untranslated(connection: Connection) -> Iterator[None]:
    """Set a caller's schema_translate_map aside: the rows belong into lazycron's own tables."""
    translated = connection.get_execution_options().get("schema_translate_map")
    if not translated:
        yield
        return
    connection.execution_options(schema_translate_map=None)
    try:
        yield
    finally:
        connection.execution_options(schema_translate_map=translated)


def unless_deadlocked(act: Callable[[], T]) -> T:
    """Try again what lost a deadlock.

    On MariaDB and MySQL two inserts of one key may deadlock while both wait for one row's deletion.
    """
    for _ in range(DEADLOCKS):
        try:
            return act()
        except DatabaseError as error:
            if not is_deadlock(error):
                raise
    return act()


def to_connection(given: object) -> Connection:
    """Return the connection of what a caller handed in as `connection=`.

    Raises ConfigurationError for the async kinds, which only the `a…` verbs take, and for
    anything else.
    """
    if isinstance(given, Connection):
        return given
    if _is_async(given):
        message = f"a {type(given).__name__} is joined from a coroutine only: await the a… verb"
        raise ConfigurationError(message)
    # Told by its methods: the classes would import the ORM, and greenlet for the async ones.
    connection = getattr(given, "connection", None)
    joined = connection() if callable(connection) else None
    if isinstance(joined, Connection):
        return joined
    message = f"connection= is a {type(given).__name__}; pass {ASYNC_KINDS}"
    raise ConfigurationError(message)


def _is_async(given: object) -> bool:
    return callable(getattr(given, "run_sync", None))


async def in_connection(given: Any, act: Callable[[object], T]) -> T:  # noqa: ANN401 - any kind
    """Call a function with a caller's connection or session, async or not."""
    if _is_async(given):
        found: T = await given.run_sync(act)
        return found
    return act(given)


def at_commit(connection: Connection, call: Callable[[object], None]) -> None:
    """Call with the connection whenever it commits; adding the same function twice has no effect.

    It is called before the commit is visible to others, and not at savepoints. That is enough to
    know that there will be something to look at.
    """
    if not event.contains(connection, "commit", call):
        event.listen(connection, "commit", call)
