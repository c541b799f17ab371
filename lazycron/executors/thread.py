"""Call a task's function and turn whatever happens into an outcome: nothing escapes."""

import asyncio
import inspect
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunning
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any, Protocol

from lazycron.executors.generators import Ended, Pause, adrive, drive, never
from lazycron.model.arguments import Arguments, complete_call, read_arguments
from lazycron.model.run import Postpone, Run
from lazycron.model.settle import Outcome, Status
from lazycron.model.task import Task
from lazycron.texts import (
    ELLIPSIS,
    ERROR_LENGTH,
    MESSAGE_LENGTH,
    one_line,
    result_to_json,
    shorten,
    storable,
)

LOOP_POLL = 1.0
STOPPED_FOR_GOOD = 10


Call = Callable[[], Coroutine[Any, Any, Any]]


class Bridge(Protocol):
    """Runs a coroutine function to its end and says how it ended."""

    def __call__(self, call: Call) -> Ended:
        """Run the coroutine function to its end, in whatever loop this bridge leads to."""


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
    """Run a coroutine function in a loop of its own: from every door but ASGI."""
    return asyncio.run(_awaited(call))


def on_loop(loop: asyncio.AbstractEventLoop) -> Bridge:
    """Return the bridge to an app's running loop, for use from any other thread."""

    def bridge(call: Call) -> Ended:
        if not loop.is_running():
            return in_a_new_loop(call)
        future: Future[Ended] | None = None
        try:
            future = asyncio.run_coroutine_threadsafe(_awaited(call), loop)
            return _wait(future, loop)
        except BaseException as error:  # noqa: BLE001 - the future was cancelled with its loop
            real = future is not None and future.cancelled()
            if future is not None:
                future.cancel()  # where it was the waiting that was interrupted
            return Ended(error=error, real=real)

    return bridge


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What a call of a task needs besides the task: the run it is told of, times and the bridge.

    `interrupted` tells whether a signal handler of ours has fired, which is what makes a
    KeyboardInterrupt or SystemExit a real one; `pause` whether a generator should be paused.
    """

    run: Run
    started_at: datetime
    monotonic: Callable[[], float]
    bridge: Bridge
    interrupted: Callable[[], bool]
    pause: Pause = never


def execute(task: Task, execution: Execution, arguments: Arguments | str | None) -> Outcome:
    """Call the task's function with its arguments, or their JSON; return what that came to.

    Whatever the function raises, SystemExit and its kind included, is a failure; a real one is
    handed back in `Outcome.interrupted`, to be obeyed once the outcome is recorded.
    """
    begun = execution.monotonic()
    ended = _call(task, arguments, execution)
    ms = max(0, round((execution.monotonic() - begun) * 1000))
    try:
        return _to_outcome(ended, ms, execution)
    except BaseException as error:  # noqa: BLE001 - a value's own methods may raise, or a signal come
        return _failed(Ended(error=error), ms, execution)


def _call(task: Task, given: Arguments | str | None, execution: Execution) -> Ended:
    run, pause, bridge = execution.run, execution.pause, execution.bridge
    try:
        # Read here: a text that a hand has made unreadable is this job's failure alone.
        arguments = given if isinstance(given, Arguments) else read_arguments(given)
        positional, named = complete_call(task.function, task.run_parameter, run, arguments)
        if task.is_async:
            return bridge(lambda: task.function(*positional, **named))
        value = task.function(*positional, **named)
        if inspect.isgenerator(value):
            return drive(value, run, pause)
        if inspect.isasyncgen(value):
            return bridge(lambda: adrive(value, run, pause))
        if inspect.iscoroutine(value):
            # A decorator that is no coroutine function itself hides one.
            return bridge(lambda: value)
        return Ended(value=value)
    except BaseException as error:  # noqa: BLE001 - no task may stop another, or the server
        return Ended(error=error)


def _to_outcome(ended: Ended, ms: int, execution: Execution) -> Outcome:
    error = ended.error
    if ended.paused:
        return _paused(ended.value, ms)
    if isinstance(error, Postpone) or (error is None and isinstance(ended.value, Postpone)):
        asked = error if isinstance(error, Postpone) else ended.value
        return _postponed(asked, ms, execution)
    if error is None:
        return _returned(ended.value, ms)
    return _failed(ended, ms, execution)


def _failed(ended: Ended, ms: int, execution: Execution) -> Outcome:
    error = ended.error
    assert error is not None  # noqa: S101 - for the type checker
    stop = isinstance(error, KeyboardInterrupt | SystemExit) and execution.interrupted()
    return Outcome(
        status=Status.FAILED,
        message=failure_message(error),
        error=_traceback(error),
        ms=ms,
        interrupted=error if stop or ended.real else None,
    )


def _postponed(asked: Postpone, ms: int, execution: Execution) -> Outcome:
    return Outcome(
        status=Status.POSTPONED,
        message=one_line(str(asked.reason)) or "Postponed.",
        ms=ms,
        again_at=execution.started_at + asked.delay,
    )


def _paused(value: object, ms: int) -> Outcome:
    said = one_line(value) if isinstance(value, str) else ""
    return Outcome(status=Status.PAUSED, message=said or "Paused: its turn was over.", ms=ms)


def _returned(value: object, ms: int) -> Outcome:
    if value is None or (isinstance(value, str) and not value.strip()):
        return Outcome(status=Status.OK, ms=ms)
    if isinstance(value, str):
        return Outcome(status=Status.OK, message=one_line(value), ms=ms)
    return Outcome(status=Status.OK, result=result_to_json(value), ms=ms)


def failure_message(error: BaseException) -> str:
    """Write `Kind: text (file.py:12)` in at most 480 characters, shortened in the middle.

    The file and line are where the error was raised.
    """
    place = ""
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        place = f"({PurePath(frames[-1].filename).name}:{frames[-1].lineno})"
    words = _text(error).split()
    text = " ".join([f"{type(error).__name__}:", *words]) if words else type(error).__name__
    place = storable(" ".join(place.split()))
    place = f" {place}"[-MESSAGE_LENGTH // 2 :] if place else ""
    return shorten(text, MESSAGE_LENGTH - len(place)) + place


def _text(error: BaseException) -> str:
    try:
        return storable(str(error))
    except BaseException as second:  # noqa: BLE001 - __str__ is the task's own code
        return f"its text raised {type(second).__name__}"


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(error)
    except BaseException as second:  # noqa: BLE001 - formatting calls the task's own __str__
        return f"{type(error).__name__}{ELLIPSIS}its traceback raised {type(second).__name__}"
    return shorten("".join(lines), ERROR_LENGTH)
