"""What several verbs need: names, moments, the tables, and the database's errors in plain words."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from lazycron.clock import to_moment
from lazycron.errors import BusyError, LazyCronError, NotInstalledError, UnknownTaskError
from lazycron.model.task import Task
from lazycron.store import DatabaseError, Fault, TaskRow, fault_of
from lazycron.store.jobs import HELD, hold_setting
from lazycron.texts import shown, storable
from lazycron.tick.runner import BUSY_NOW
from lazycron.wiring import Parts

MOST_ROWS = 1_000_000
# How often a verb looks again where another process changes the row at the same time.
MOST_TRIES = 20

# What is said of SQLite's one writer, which may be the caller itself; what follows says what to do.
WRITING = (
    "another connection holds the database's lock for longer than this one waits: try again; "
    "or this code itself has written in a transaction that is still open: "
)

P = ParamSpec("P")
R = TypeVar("R")

Moment = datetime | float | None
Name = str | Task
# The parts that there are when this is called: what is made now may be used after a fork.
GetParts = Callable[[], Parts]


def on_tables(verb: Callable[Concatenate[Parts, P], R]) -> Callable[Concatenate[Parts, P], R]:
    """Let a verb raise NotInstalledError where its tables were dropped under this process.

    It raises BusyError where another process holds the database's lock for too long.
    """

    @wraps(verb)
    def checked(parts: Parts, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return verb(parts, *args, **kwargs)
        except DatabaseError as error:
            say(parts, error, busy_now(parts))
            raise

    return checked


def busy_now(parts: Parts) -> str:
    """Say of a verb that changes rows that it could not."""
    return f"{WRITING}end that one first" if parts.store.is_sqlite else BUSY_NOW


def say(parts: Parts, error: DatabaseError, busy: str | None) -> None:
    """Raise lazycron's own error for missing tables and a busy database; else return."""
    if parts.runner.is_missing(error):
        raise NotInstalledError from error
    if fault_of(error) is Fault.BUSY:
        raise BusyError(busy) from error


def ready(parts: Parts, joined: object = None) -> None:
    """See to it that the tables are there and the server's clock is known.

    `joined` is the caller's own connection. No row is made: the caller may hold SQLite's write
    lock.
    """
    if not parts.runner.install(joined):
        raise NotInstalledError
    if parts.reference.wants_sample:
        parts.runner.look_at_clock()


def is_ready(parts: Parts) -> bool:
    """Tell whether `ready` has nothing to wait for; on SQLite a joined connection does it all."""
    return parts.store.is_sqlite or (parts.facts.installed and not parts.reference.wants_sample)


def manage(parts: Parts) -> None:
    """See to it that the tables are there and have a row for each task of this process."""
    if not parts.runner.install():
        raise NotInstalledError
    parts.runner.look_at_clock()
    parts.sync.bring_in_when_due(parts.reference.now())


def moment_of(parts: Parts, now: Moment) -> datetime:
    """Return the moment that `now=` means; None is the reference's own."""
    return parts.reference.now() if now is None else to_moment(now)


def held_names(parts: Parts) -> set[str]:
    """Return the known tasks whose jobs are held back; those with a row have it there."""
    settings = parts.store.shared.settings()
    return {one.name for one in parts.registry if settings.get(hold_setting(one.name)) == HELD}


def row_of(parts: Parts, name: str) -> TaskRow:
    """Return a task's recurring row; raises UnknownTaskError where there is none."""
    row = parts.store.recurring.of(name)
    if row is None:
        message = f"no row is named {name!r}; `lazycron list` shows all rows"
        raise UnknownTaskError(message)
    return row


def to_name(name: Name) -> str:
    """Return a task's name, of a name or a task; raises UnknownTaskError for anything else."""
    if isinstance(name, Task):
        return name.name
    if isinstance(name, str) and name == storable(name):
        return name
    message = f"{shown(name)} is no task; pass a task's name or the task"
    raise UnknownTaskError(message)


def check_limit(name: str, value: object) -> None:
    """Check how many of something are asked for; raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_ROWS:
        return
    message = f"{name}={shown(value)}: pass a whole number from 1 up to {MOST_ROWS}"
    raise ValueError(message)


def refuse_in_loop(verb: str, instead: str) -> None:
    """Raise LazyCronError, which names the async form, where an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    message = f"{verb}() blocks and an event loop runs in this thread; call `{instead}`"
    raise LazyCronError(message)
