"""Join a caller's own transaction: what he hands in, as the connection that runs statements."""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, event

from lazycron.errors import ConfigurationError

T = TypeVar("T")

KINDS = "a SQLAlchemy Connection or Session"
ASYNC_KINDS = f"{KINDS}, or an AsyncConnection or AsyncSession"


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
    # By what it can do: the classes would drag in the ORM, and greenlet for the async ones.
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
    """Call with the connection whenever it commits; naming the same function again adds nothing.

    It is called before the commit is visible to others, and not at savepoints: enough to know
    that there will be something to look at, and no more.
    """
    if not event.contains(connection, "commit", call):
        event.listen(connection, "commit", call)
