"""The way from a thread to an event loop: where the coroutine of an `async def` task is awaited."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunning
from contextlib import suppress
from typing import Any, Protocol

from lazycron.executors.generators import Ended

LOOP_POLL = 1.0
STOPPED_FOR_GOOD = 10

Call = Callable[[], Coroutine[Any, Any, Any]]


class Bridge(Protocol):
    """Runs a coroutine function to its end and says how it ended."""

    def __call__(self, call: Call) -> Ended:
        """Run the coroutine function to its end, in the loop to which this bridge leads."""


async def _awaited(call: Call) -> Ended:
    """Await a call inside its own asyncio task, letting nothing out into the loop."""
    try:
        value = await call()
        return value if isinstance(value, Ended) else Ended(value=value)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        return Ended(error=error, real=task is not None and task.cancelling() > 0)
    except BaseException as error:  # noqa: BLE001 - a SystemExit would end the app's event loop
        return Ended(error=error)


def in_a_new_loop(call: Call) -> Ended:
    """Run a coroutine function in its own loop: in every tick except those of ASGI."""
    return asyncio.run(_awaited(call))


def on_loop(loop: asyncio.AbstractEventLoop) -> Bridge:
    """Return the bridge to an app's running loop, for use from any other thread."""

    def bridge(call: Call) -> Ended:
        if not loop.is_running():
            return in_a_new_loop(call)
        awaiting = _Awaiting(call)
        future: Future[Ended] | None = None
        try:
            future = asyncio.run_coroutine_threadsafe(awaiting.run(), loop)
            return _wait(future, loop)
        except BaseException as error:  # noqa: BLE001 - the future was cancelled with its loop
            real = future is not None and future.cancelled()
            awaiting.give_up(loop)  # where the waiting was interrupted
            return Ended(error=error, real=real)

    return bridge


class _Awaiting:
    """A call that runs in a loop and can be given up at any moment.

    Its future alone is not enough: a signal may come before anything refers to the future.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._task: asyncio.Task[Any] | None = None
        self._given_up = False

    async def run(self) -> Ended:
        self._task = asyncio.current_task()
        if self._given_up:
            return Ended(error=asyncio.CancelledError())
        return await _awaited(self._call)

    def give_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the call in its loop, or keep it from beginning."""
        self._given_up = True
        with suppress(RuntimeError):  # the loop is closed: nothing runs in it
            loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _wait(future: Future[Ended], loop: asyncio.AbstractEventLoop) -> Ended:
    stopped = 0
    while True:
        try:
            return future.result(timeout=LOOP_POLL)
        except StillRunning:
            # A loop that was stopped for good never completes the future.
            stopped = 0 if loop.is_running() else stopped + 1
            if loop.is_closed() or stopped > STOPPED_FOR_GOOD:
                return Ended(error=RuntimeError("the app's event loop closed during the run"))
