"""What a task gets to know about its own run, and how it asks for another time."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol

from lazycron.durations import Duration, to_duration
from lazycron.errors import LeaseLostError
from lazycron.model.once import AsyncOnce, Once
from lazycron.model.settle import Claim
from lazycron.model.values import read_value, write_value
from lazycron.texts import shown

LARGEST_COUNT = 2**63 - 1


class Postpone(Exception):  # noqa: N818 - a request, not an error
    """Asks to try the run again later, which is not a failure: return it, or raise it.

    `delay` is a duration (zero: at once), `reason` is a text for people. Raises ScheduleError for
    a delay that cannot be read.
    """

    def __init__(self, delay: Duration, *, reason: str = "") -> None:
        self.delay: timedelta = to_duration(delay, what="Postpone")
        self.reason = str(reason)
        super().__init__(self.reason or "postponed")


class MakeOnce(Protocol):
    """Makes the block around an effect that happens once, for the task with this name."""

    def __call__(
        self, key: str, *, expires: Duration | None, connection: object, task: str
    ) -> Once:
        """Make the block."""


class MakeAsyncOnce(Protocol):
    """Makes the same block for coroutines."""

    def __call__(
        self, key: str, *, expires: Duration | None, connection: object, task: str
    ) -> AsyncOnce:
        """Make the block."""


def _no_once(key: str, *, expires: Duration | None, connection: object, task: str) -> NoReturn:
    del expires, connection
    message = f"once key {key!r}: this run of {task} belongs to no LazyCron"
    raise LeaseLostError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The functions by which a run reaches the store; a Run itself imports none."""

    save: Callable[[str, int | None, int | None], bool]
    stopping: Callable[[], bool]
    identify: Callable[[], str]
    once: MakeOnce = _no_once
    aonce: MakeAsyncOnce = _no_once


class Run:
    """One run, as its task sees it.

    `id` is the row's id (a job's id), `scheduled_for` the run's nominal due time, and `deadline`
    the end of the task's timeout; both times are aware and in UTC.
    """

    def __init__(self, claim: Claim, callbacks: Callbacks, deadline: datetime | None) -> None:
        self._callbacks = callbacks
        # Read when the task asks for it: a text that is not JSON is only this task's failure.
        self._progress = claim.progress
        self.id = claim.id
        self.task = claim.name
        self.attempt = claim.attempt
        self.trigger = claim.trigger
        self.scheduled_for = claim.scheduled_for
        self.deadline = deadline

    @property
    def progress(self) -> Any:  # noqa: ANN401 - whatever the task stored
        """The last checkpoint of this or an earlier attempt; None where there is none."""
        return read_value(self._progress)

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of one due time, and different for all others.

        It is 32 hexadecimal digits of SHA-256 over installation, task, row and due time: what a
        payment service asks for.
        """
        parts = (
            self._callbacks.identify(),
            self.task,
            str(self.id),
            self.scheduled_for.isoformat(timespec="microseconds"),
        )
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]

    def checkpoint(
        self, value: object, *, done: int | None = None, total: int | None = None
    ) -> None:
        """Store how far the run has come, and renew its lease.

        `value` may be what a job's arguments may be, up to 64 KiB as JSON; a later attempt finds it
        as `run.progress`. `done` and `total` are whole numbers, shown to people. Raises
        ArgumentsError for another value, ValueError for another number, and LeaseLostError once
        another process may have the row: the run should end then.
        """
        for name, count in (("done", done), ("total", total)):
            _check_count(name, count)
        text = write_value(value, "checkpoint")
        if not self._callbacks.save(text, done, total):
            raise LeaseLostError
        self._progress = text

    async def acheckpoint(
        self, value: object, *, done: int | None = None, total: int | None = None
    ) -> None:
        """Do what `checkpoint` does, from a coroutine."""
        await asyncio.to_thread(self.checkpoint, value, done=done, total=total)

    def once(self, key: str, *, expires: Duration | None = None, connection: object = None) -> Once:
        """Guard an effect as `cron.once` does; the key knows this run's task."""
        return self._callbacks.once(key, expires=expires, connection=connection, task=self.task)

    def aonce(
        self, key: str, *, expires: Duration | None = None, connection: object = None
    ) -> AsyncOnce:
        """Guard an effect as `cron.aonce` does; the key knows this run's task."""
        return self._callbacks.aonce(key, expires=expires, connection=connection, task=self.task)

    def should_stop(self) -> bool:
        """Tell whether to end early: deadline passed, lease lost, or the process is stopping."""
        return self._callbacks.stopping()


def _check_count(name: str, count: object) -> None:
    if count is None:
        return
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= LARGEST_COUNT:
        message = f"{name}={shown(count)}: pass a whole number from 0 up"
        raise ValueError(message)
