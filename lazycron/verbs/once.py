"""Once keys: effects that happen once, alone or as a part of the caller's transaction."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from lazycron.durations import Duration
from lazycron.errors import BusyError
from lazycron.model.job import check_key
from lazycron.model.once import AsyncOnce, First, Once, OnceKey
from lazycron.store import DatabaseError, Fault, fault_of
from lazycron.store.joining import in_connection, to_connection
from lazycron.verbs.base import (
    MOST_TRIES,
    WRITING,
    GetParts,
    check_limit,
    is_ready,
    on_tables,
    ready,
    refuse_in_loop,
    say,
)
from lazycron.verbs.problem import MOST_NAMES, Problem, some
from lazycron.wiring import Parts

logger = logging.getLogger("lazycron")

FINISH_TRIES = 5
# No effect takes longer: an unfinished key that is older was cut off.
UNFINISHED_AFTER = timedelta(hours=1)
BUSY = f"{WRITING}register the key in that one with connection=, or before it begins"

T = TypeVar("T")


def once(
    get_parts: GetParts,
    key: str,
    *,
    expires: Duration | None,
    connection: object,
    task: str | None,
) -> Once:
    """Make the block around an effect that happens once."""
    return Once(_Keeper(get_parts), key, task=task, expires=expires, connection=connection)


def aonce(
    get_parts: GetParts,
    key: str,
    *,
    expires: Duration | None,
    connection: object,
    task: str | None,
) -> AsyncOnce:
    """Make the same block for coroutines."""

    def joining(joined: object) -> Once:
        return once(get_parts, key, expires=expires, connection=joined, task=task)

    joining(connection)  # a bad key is refused here and not in the block
    return AsyncOnce(joining, connection, partial(_hop, get_parts))


@dataclass(frozen=True, slots=True)
class _Keeper:
    """Once keys in the database, for the time of one block."""

    get_parts: GetParts

    def register(
        self, key: str, task: str | None, expires: timedelta | None, connection: object
    ) -> First:
        if connection is None:
            refuse_in_loop("once", "async with aonce(…)")
        parts = self.get_parts()
        try:
            joined = None if connection is None else to_connection(connection)
            ready(parts, joined)
            keys = parts.store.once
            for _ in range(MOST_TRIES):
                now = parts.reference.now()
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
                say(parts, error, BUSY if parts.store.is_sqlite else None)
            raise
        message = f"once key {key!r} was taken and given back at each of {MOST_TRIES} looks"
        raise BusyError(message)

    def finish(self, key: str, first: First, connection: object) -> None:
        """Note the end; a busy database is asked again, and stops nobody.

        The effect is done by now: after an error it would be tried again for nothing.
        """
        parts = self.get_parts()
        joined = None if connection is None else to_connection(connection)
        now = parts.reference.now()
        for _ in range(FINISH_TRIES):
            try:
                parts.store.once.finish(joined, key, first.created_at, now)
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
        """Let the key go; a failure is logged, so that the block's own error goes on."""
        try:
            joined = None if connection is None else to_connection(connection)
            self.get_parts().store.once.give_back(joined, key, first.created_at)
        except DatabaseError as error:
            # In a transaction that has failed the key goes with it.
            logger.log(
                logging.WARNING if connection is None else logging.DEBUG,
                "once key %s could not be given back: %s",
                key,
                type(error).__name__,
                extra={"action": "once_key_kept"},
            )


@on_tables
def once_keys(parts: Parts, *, unfinished: bool, limit: int) -> list[OnceKey]:
    """Return once keys, the oldest first: all, or those whose effect was not finished."""
    check_limit("limit", limit)
    ready(parts)
    now = parts.reference.now()
    if unfinished:
        return parts.store.once.unfinished(now, now, limit)
    return parts.store.once.listed(limit)


@on_tables
def finish_once(parts: Parts, key: str) -> bool:
    """Note that the effect of an unfinished key was done."""
    ready(parts)
    return parts.store.once.finish_by_hand(check_key(key), parts.reference.now())


@on_tables
def release_once(parts: Parts, key: str) -> bool:
    """Delete an unfinished key, so that its effect is done by the next caller."""
    ready(parts)
    return parts.store.once.release(check_key(key))


def doubtful_keys(parts: Parts, now: datetime) -> list[Problem]:
    """Name once keys whose effect was begun, and perhaps never done."""
    found = parts.store.once.unfinished(now, now - UNFINISHED_AFTER, MOST_NAMES + 1)
    if not found:
        return []
    text = (
        f"once keys whose effect was begun and not finished: {some([one.key for one in found])}. "
        "Whoever asks for one is refused, though it was perhaps never done: look, then "
        "`lazycron finish-once KEY` if it was, or `lazycron release-once KEY` to let it be done"
    )
    return [Problem("unfinished_keys", text)]


async def _hop(get_parts: GetParts, connection: object, act: Callable[[object], T]) -> T:
    if connection is None:
        return await asyncio.to_thread(act, None)
    parts = get_parts()
    if not is_ready(parts):
        await asyncio.to_thread(ready, parts)
    return await in_connection(connection, act)
