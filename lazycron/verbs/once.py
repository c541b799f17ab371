"""Once keys: effects that happen once, alone or as a part of the caller's transaction."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from lazycron.durations import Duration
from lazycron.errors import BusyError, NotInstalledError
from lazycron.model.once import AsyncOnce, First, Once
from lazycron.store import DatabaseError, Fault, fault_of
from lazycron.store.joining import in_connection, to_connection
from lazycron.verbs.operator import Managing
from lazycron.wiring import Parts

logger = logging.getLogger("lazycron")

MOST_TRIES = 20
FINISH_TRIES = 5
BUSY = (
    "the database file is being written by somebody else, perhaps by this very request: join that "
    "transaction with connection=, or do it after its commit (on_commit=, or later in the code)"
)

ONCE_BUSY = (
    "the database file is being written by somebody else, perhaps in this very transaction: "
    "register the key in it with connection=, or before it begins"
)

T = TypeVar("T")


class Keeping(Managing):
    """The verbs about once keys, and how what a request asks for reaches the store."""

    def once(self, key: str, *, expires: Duration | None = None, connection: object = None) -> Once:
        """Guard an effect: `with cron.once(key) as first: if first: …`.

        The key is registered before the effect; a second registration is refused and counted. An
        exception gives it back, a crash keeps it, for ever or until it `expires`. With
        `connection=` key and effect are the caller's transaction: both or neither. Raises
        ArgumentsError for a key that is no text of 1 to 191 characters.
        """
        return self._once(key, expires=expires, connection=connection, task=None)

    def aonce(
        self, key: str, *, expires: Duration | None = None, connection: object = None
    ) -> AsyncOnce:
        """Do what `once` does, for `async with`; takes async connections and sessions too."""
        return self._aonce(key, expires=expires, connection=connection, task=None)

    def _once(
        self, key: str, *, expires: Duration | None, connection: object, task: str | None
    ) -> Once:
        return Once(_Keeper(self), key, task=task, expires=expires, connection=connection)

    def _aonce(
        self, key: str, *, expires: Duration | None, connection: object, task: str | None
    ) -> AsyncOnce:
        def once(joined: object) -> Once:
            return self._once(key, expires=expires, connection=joined, task=task)

        once(connection)  # a bad key is said here and not in the block
        return AsyncOnce(once, connection, _hop)

    def _ready(self) -> Parts:
        """Return the parts, with the tables there and the server's clock known.

        It writes nothing, since this may be a request that holds SQLite's write lock.
        """
        parts = self._parts
        if not parts.runner.install():
            raise NotInstalledError
        if parts.reference.wants_sample:
            parts.runner.look_at_clock()
        return parts

    def _say(self, error: DatabaseError, busy: str = BUSY) -> None:
        """Raise in lazycron's own words what can be said so; return from other errors."""
        if self._parts.runner.is_missing(error):
            raise NotInstalledError from error
        if fault_of(error) is Fault.BUSY:
            raise BusyError(busy if self._parts.store.is_sqlite else None) from error


class _Keeper:
    """Once keys in the database, for the time of one block."""

    def __init__(self, cron: Keeping) -> None:
        self._cron = cron

    def register(
        self, key: str, task: str | None, expires: timedelta | None, connection: object
    ) -> First:
        cron = self._cron
        try:
            keys = cron._ready().store.once  # noqa: SLF001 - one class in two halves
            joined = None if connection is None else to_connection(connection)
            for _ in range(MOST_TRIES):
                now = cron._moment(None)  # noqa: SLF001 - as above
                until = None if expires is None else now + expires
                if keys.register(joined, key, task, now, until):
                    return First(mine=True, task=task, created_at=now, finished_at=None)
                held = keys.refuse(joined, key)
                if held is not None:
                    return First(
                        mine=False,
                        task=held.task,
                        created_at=held.created_at,
                        finished_at=held.finished_at,
                    )
        except DatabaseError as error:
            if connection is None:
                cron._say(error, ONCE_BUSY)  # noqa: SLF001 - as above
            raise
        message = f"once key {key!r} was taken and given back at each of {MOST_TRIES} looks"
        raise BusyError(message)

    def finish(self, key: str, first: First, connection: object) -> None:
        """Note the end; a busy database is asked again, and keeps nobody from going on.

        The effect is done by now: an error in its place would have it tried again for nothing.
        """
        cron = self._cron
        joined = None if connection is None else to_connection(connection)
        now = cron._moment(None)  # noqa: SLF001 - as above
        for _ in range(FINISH_TRIES):
            try:
                cron._parts.store.once.finish(joined, key, first.created_at, now)  # noqa: SLF001 - as above
            except DatabaseError as error:
                if connection is not None or fault_of(error) is not Fault.BUSY:
                    raise
            else:
                return
        logger.warning(
            "once key %s is kept, but its end could not be noted: the database was busy",
            key,
            extra={"action": "once_key_unfinished"},
        )

    def give_back(self, key: str, first: First, connection: object) -> None:
        """Let the key go; what keeps it from that is told, the block's own error goes on."""
        try:
            joined = None if connection is None else to_connection(connection)
            self._cron._parts.store.once.give_back(joined, key, first.created_at)  # noqa: SLF001 - as above
        except DatabaseError as error:
            # In a transaction that has failed the key goes with it.
            logger.log(
                logging.WARNING if connection is None else logging.DEBUG,
                "once key %s could not be given back: %s",
                key,
                type(error).__name__,
                extra={"action": "once_key_kept"},
            )


async def _hop(connection: object, act: Callable[[object], T]) -> T:
    if connection is None:
        return await asyncio.to_thread(act, None)
    return await in_connection(connection, act)
