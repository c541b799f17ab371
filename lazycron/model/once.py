"""Effects that happen once: a key is registered before the effect and refused a second time."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol

from lazycron.durations import Duration, to_duration
from lazycron.model.job import check_key
from lazycron.texts import at

SHORTEST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """Whether a key is this caller's (truthy), else who has it and whether the effect is finished.

    `task` is the task in whose run the key was registered, None outside a run. `created_at` and
    `finished_at` are UTC. `finished_at` is None while the effect is under way, and stays None after
    a crash in the middle of it: `str()` tells "done already" from "perhaps never done".
    """

    mine: bool
    task: str | None
    created_at: datetime
    finished_at: datetime | None

    def __bool__(self) -> bool:
        """Tell whether the effect is this caller's to do."""
        return self.mine

    def __str__(self) -> str:
        """Say in words what became of the effect."""
        if self.mine:
            return "registered now: the effect is this caller's to do"
        if self.finished_at is not None:
            return f"done already, at {at(self.finished_at)}"
        return (
            f"begun at {at(self.created_at)} and not finished: it is under way, or was cut off and "
            "perhaps never done"
        )

    @property
    def is_finished(self) -> bool:
        """Whether the effect is finished."""
        return self.finished_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceKey:
    """One once key as it stands in the table; moments are UTC.

    `finished_at` None: its effect is under way, or was cut off and perhaps never done. `lost`: it
    was registered during a run of its task that was lost. `refused` counts the registrations that
    came after it.
    """

    key: str
    task: str | None
    created_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None
    refused: int
    lost: bool = False


class Keeper(Protocol):
    """What a once key needs of the store; each call is a transaction unless one is joined."""

    def register(
        self, key: str, task: str | None, expires: timedelta | None, connection: object
    ) -> First:
        """Register a key, or count a refusal and return who has it."""

    def finish(self, key: str, first: First, connection: object) -> None:
        """Note that the effect of this registration is finished."""

    def give_back(self, key: str, first: First, connection: object) -> None:
        """Give back a key whose effect has failed; never raises, to keep the effect's own error."""


class Once(AbstractContextManager[First, None]):
    """A block around one effect; an exception gives the key back, a crash keeps it."""

    def __init__(
        self,
        keeper: Keeper,
        key: str,
        *,
        task: str | None,
        expires: Duration | None,
        connection: object,
    ) -> None:
        self._keeper = keeper
        self._key = check_key(key)
        self._task = task
        self._expires = (
            None if expires is None else to_duration(expires, what="expires", least=SHORTEST)
        )
        self._connection = connection
        self._first: First | None = None

    def __enter__(self) -> First:
        """Register the key; the value is truthy if the effect is this caller's to do."""
        self._first = self._keeper.register(self._key, self._task, self._expires, self._connection)
        return self._first

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Note that the effect is finished, or give the key back after an exception."""
        self.leave(self._first, kind)

    def leave(self, first: First | None, kind: type[BaseException] | None) -> None:
        """End the block whose value was `first`."""
        if not first:
            return
        if kind is None:
            self._keeper.finish(self._key, first, self._connection)
        else:
            self._keeper.give_back(self._key, first, self._connection)


InConnection = Callable[[object, Callable[[object], Any]], Coroutine[Any, Any, Any]]


class AsyncOnce(AbstractAsyncContextManager[First, None]):
    """The same for coroutines; `hop` runs a blocking step outside the event loop."""

    def __init__(
        self, once: Callable[[object], Once], connection: object, hop: InConnection
    ) -> None:
        self._once = once
        self._connection = connection
        self._hop = hop
        self._first: First | None = None

    async def __aenter__(self) -> First:
        """Register the key; the value is truthy if the effect is this caller's to do."""
        registering = asyncio.ensure_future(
            self._hop(self._connection, lambda joined: self._once(joined).__enter__())
        )
        try:
            first: First = await asyncio.shield(registering)
        except asyncio.CancelledError as error:
            # A registration under way in a thread cannot be stopped, so its key is given back.
            self._first = await registering
            await self.__aexit__(type(error), error, None)
            raise
        self._first = first
        return first

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Note that the effect is finished, or give the key back after an exception."""
        if self._first:
            await self._hop(
                self._connection, lambda joined: self._once(joined).leave(self._first, kind)
            )
