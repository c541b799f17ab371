"""Calling a task's function: whatever happens comes back as an outcome."""

import asyncio
import functools
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import FrameType
from typing import Any

import pytest

from lazycron.executors.base import Execution
from lazycron.executors.bridge import Bridge, in_a_new_loop, on_loop
from lazycron.executors.generators import Ended
from lazycron.executors.outcome import failure_message
from lazycron.executors.thread import ThreadExecutor
from lazycron.model.arguments import Arguments
from lazycron.model.retry import Retry
from lazycron.model.run import Callbacks, Postpone, Run
from lazycron.model.settle import Claim, Outcome, Status
from lazycron.model.task import make_task
from lazycron.testing import ManualClock
from tests import only_checked

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CLAIM = Claim(
    id=7,
    name="nightly",
    key="",
    token="0" * 32,
    schedule="every 5m",
    scheduled_for=START,
    started_at=START,
    lease_until=START + timedelta(minutes=5),
    trigger="url",
    attempt=1,
    failures=0,
    losses=0,
)


class Custom(BaseException):
    """A BaseException of the app's own."""


class SpeechlessError(Exception):
    """An error whose text raises."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class HoldingError(Exception):
    """An error that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def run_it(
    function: Callable[..., Any],
    *arguments: Any,
    bridge: Bridge = in_a_new_loop,
    interrupted: bool = False,
    clock: ManualClock | None = None,
) -> Outcome:
    """Execute a function as a task."""
    task = make_task(
        function,
        schedule=None,
        name="nightly",
        label=None,
        explanation=None,
        first_run=None,
        enabled=True,
        retry=Retry(),
        lease=None,
        on_lost="rerun",
        timeout=None,
    )
    callbacks = Callbacks(save=lambda *_: True, stopping=lambda: False, identify=lambda: "here")
    execution = Execution(
        run=Run(CLAIM, callbacks, None),
        started_at=START,
        monotonic=(clock or ManualClock(START)).monotonic,
        bridge=bridge,
        interrupted=lambda: interrupted,
    )
    return ThreadExecutor().execute(task, execution, Arguments(arguments))


def raising(error: BaseException) -> Callable[[], None]:
    """Return a function that raises this."""

    def work() -> None:
        raise error

    return work


def async_raising(error: BaseException) -> Callable[[], Any]:
    """Return a coroutine function that raises this."""

    async def work() -> None:
        raise error

    return work


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own, as an app's server does."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


# what a function returns


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "Done."),
        ("", "Done."),
        (" \n", "Done."),
        ("Swept.", "Swept."),
        (" two\nlines ", "two lines"),
        ("\x00\udc80", "\\x00\\udc80"),
    ],
)
def test_a_returned_text_is_the_message(value: str | None, message: str) -> None:
    """And the result, as it was returned; None and blanks say "Done."."""
    outcome = run_it(lambda: value)
    assert (outcome.status, outcome.message) == (Status.OK, message)
    assert outcome.result == (None if value is None else json.dumps(value))


def test_a_long_text_is_shortened_to_480_characters() -> None:
    """In the middle."""
    outcome = run_it(lambda: "x" * 10_000)
    assert len(outcome.message) == 480


@pytest.mark.parametrize("value", [0, False, [], {"rows": 3}, 2.5, ["text"]])
def test_anything_else_returned_is_the_result(value: object) -> None:
    """As JSON, with the message "Done."; falsy values too."""
    outcome = run_it(lambda: value)
    assert (outcome.status, outcome.message) == (Status.OK, "Done.")
    assert outcome.result == json.dumps(value, separators=(",", ":"))


class Mood(StrEnum):
    """A text that would come back as another kind."""

    GOOD = "good"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            float("nan"),
            "Done. The result was not stored: the result is nan, which JSON cannot express;",
        ),
        ({1: 2}, "Done. The result was not stored: the result has the key 1, which is not a text;"),
        ([b"x"], "Done. The result was not stored: the result[0] is a builtins.bytes, b'x'; a"),
        (Mood.GOOD, "good The result was not stored: the result is a tests.executors."),
        ("x" * 70_000, "xxx"),
    ],
    ids=range(5),
)
def test_a_result_that_cannot_be_stored_is_no_failure_and_the_message_says_why(
    value: object, message: str
) -> None:
    """The function is over, and its effects are done."""
    outcome = run_it(lambda: value)
    assert (outcome.status, outcome.result, outcome.error) == (Status.OK, None, None)
    assert outcome.message.startswith(message)
    assert "The result was not stored: the result" in outcome.message
    assert len(outcome.message) <= 480


class EvilText(str):
    """A text whose methods raise."""

    __slots__ = ()

    def raising(self, *_: object) -> str:
        """Raise."""
        raise Custom

    strip = split = __str__ = raising  # type: ignore[assignment]


def test_a_value_whose_own_methods_raise_is_still_a_success() -> None:
    """They are not called."""
    outcome = run_it(lambda: EvilText("text"))
    assert (outcome.status, outcome.message.split()[0]) == (Status.OK, "text")


# Postpone


@pytest.mark.parametrize("how", ["returned", "raised"])
def test_a_run_postpones_itself(how: str) -> None:
    """By returning Postpone or by raising it: due again from the start on, not a failure."""

    def work() -> Postpone:
        asked = Postpone("10m", reason="the shop\nis closed")
        if how == "raised":
            raise asked
        return asked

    outcome = run_it(work)
    assert (outcome.status, outcome.message) == (Status.POSTPONED, "the shop is closed")
    assert outcome.again_at == START + timedelta(minutes=10)
    assert outcome.error is None


def test_postponing_without_a_reason_or_delay_is_fine() -> None:
    """Zero: at once."""
    outcome = run_it(lambda: Postpone(0))
    assert (outcome.message, outcome.again_at) == ("Postponed.", START)


def test_an_async_run_postpones_itself() -> None:
    """By raising it."""
    assert run_it(async_raising(Postpone(5))).again_at == START + timedelta(seconds=5)


def test_a_postpone_that_was_tampered_with_is_a_failure() -> None:
    """Its delay is no length of time any more."""
    asked: Any = Postpone(5)
    asked.delay = "5m"
    assert run_it(lambda: asked).status is Status.FAILED


# what a function raises


KINDS = [
    ValueError("no"),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    StopAsyncIteration(),
    MemoryError("no room"),
    RecursionError("too deep"),
    Custom("mine"),
    BaseExceptionGroup("many", [SystemExit(1), ValueError("no")]),
    HoldingError(),
]


@pytest.mark.parametrize("error", KINDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("how", [raising, async_raising], ids=["sync", "async"])
def test_whatever_a_task_raises_is_a_failure(
    error: BaseException, how: Callable[[BaseException], Callable[[], Any]]
) -> None:
    """Recorded by kind and text, with the traceback, and nothing is to be obeyed."""
    outcome = run_it(how(error))
    assert outcome.status is Status.FAILED
    assert outcome.interrupted is None
    assert outcome.message.startswith(type(error).__name__)
    assert re.search(r" \(test_thread\.py:\d+\)$", outcome.message)
    assert outcome.error is not None
    assert "raise error" in outcome.error


def test_a_stop_iteration_is_a_failure() -> None:
    """Python makes a RuntimeError of one that leaves a coroutine."""
    assert run_it(raising(StopIteration(5))).message.startswith("StopIteration: 5 (test_thread")
    message = run_it(async_raising(StopIteration(5))).message
    assert message.startswith("RuntimeError: coroutine raised StopIteration")


@pytest.mark.parametrize("error", KINDS, ids=lambda error: type(error).__name__)
def test_whatever_an_async_task_raises_leaves_the_apps_loop_running(error: BaseException) -> None:
    """Also what would end it."""
    with running_loop() as loop:
        outcome = run_it(async_raising(error), bridge=on_loop(loop))
        assert (outcome.status, outcome.interrupted) == (Status.FAILED, None)
        asked = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "alive"), loop)
        assert asked.result(timeout=5) == "alive"


def test_an_error_whose_text_raises_is_recorded() -> None:
    """Even by SystemExit."""
    outcome = run_it(raising(SpeechlessError()))
    assert outcome.message.startswith(
        "SpeechlessError: its text raised SystemExit (test_thread.py:"
    )
    assert outcome.error is not None
    assert "SpeechlessError" in outcome.error


def test_an_error_without_a_text_is_named_by_its_kind_alone() -> None:
    """No colon."""
    assert re.fullmatch(
        r"KeyboardInterrupt \(test_thread\.py:\d+\)", run_it(raising(KeyboardInterrupt())).message
    )


def test_a_failures_message_says_kind_text_and_place() -> None:
    """The place is where it was raised, not where it was called."""

    def deep() -> None:
        int("x")

    line = deep.__code__.co_firstlineno + 1
    expected = f"ValueError: invalid literal for int() with base 10: 'x' (test_thread.py:{line})"
    assert run_it(deep).message == expected


def test_a_long_message_is_shortened_in_the_middle_and_keeps_its_place() -> None:
    """480 characters, kind first, file and line last."""
    message = run_it(raising(ValueError("begin" + "x" * 5000 + "end"))).message
    assert len(message) == 480
    assert message.startswith("ValueError: beginx")
    assert re.search(r"xend \(test_thread\.py:\d+\)$", message)


def test_odd_characters_in_a_message_are_escaped_and_lines_joined() -> None:
    """As every database can store them."""
    message = run_it(raising(ValueError("a\x00b\udc80\nc:"))).message
    assert message.startswith("ValueError: a\\x00b\\udc80 c: (")


def test_the_message_is_bounded_whatever_the_files_name_is() -> None:
    """Four hundred characters and a line end in it."""
    code = compile("1/0", "/tmp/" + "long\n" * 100 + ".py", "exec")
    try:
        exec(code)
    except ZeroDivisionError as error:
        message = failure_message(error)
    else:
        raise AssertionError
    assert len(message) <= 480
    assert "\n" not in message
    assert message.endswith(".py:1)")
    assert message.startswith("ZeroDivisionError")


def test_the_traceback_is_bounded() -> None:
    """16,000 characters, both ends."""
    outcome = run_it(raising(ValueError("x" * 100_000)))
    assert outcome.error is not None
    assert 8_000 < len(outcome.error) <= 16_000
    assert outcome.error.startswith("Traceback")
    assert "(100000 characters in all)" in outcome.error


def test_wrong_arguments_are_a_failure() -> None:
    """As for any call."""
    outcome = run_it(lambda: None, 1, 2)
    assert outcome.message.startswith("TypeError")


def test_the_time_a_run_took_is_measured_on_the_monotonic_clock() -> None:
    """Whether it returns or raises; a wall clock set back does not count."""
    clock = ManualClock(START)

    def work() -> None:
        clock.tick("1.5s")
        clock.jump(timedelta(hours=-1))

    def fail() -> None:
        clock.tick("0.25s")
        raise ValueError

    assert run_it(work, clock=clock).ms == 1500
    assert run_it(fail, clock=clock).ms == 250


# real interruptions


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(0)], ids=["int", "term"])
@pytest.mark.parametrize("how", [raising, async_raising], ids=["sync", "async"])
def test_an_exit_is_real_when_a_signal_handler_has_fired(
    error: BaseException, how: Callable[[BaseException], Callable[[], Any]]
) -> None:
    """It is a failure, and comes back to be obeyed."""
    outcome = run_it(how(error), interrupted=True)
    assert (outcome.status, outcome.interrupted) == (Status.FAILED, error)


@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError(), Custom()])
def test_other_errors_are_not_made_real_by_a_signal(error: BaseException) -> None:
    """A task that fails while the process is being stopped has merely failed."""
    assert run_it(raising(error), interrupted=True).interrupted is None


def test_a_cancellation_is_real_when_the_loop_cancels_its_tasks() -> None:
    """A loop that shuts down while the task runs: a failure, to be obeyed."""
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
        begun.wait(5)
        loop.call_soon_threadsafe(lambda: [one.cancel() for one in asyncio.all_tasks(loop)])

    with running_loop() as loop:
        canceller = threading.Thread(target=cancel_all, args=(loop,))
        canceller.start()
        outcome = run_it(work, bridge=on_loop(loop))
        canceller.join()
    assert outcome.status is Status.FAILED
    assert isinstance(outcome.interrupted, asyncio.CancelledError)
    assert outcome.message.startswith("CancelledError")


def test_a_cancellation_that_a_task_got_over_is_not_real() -> None:
    """A time-out of the task's own ends in a TimeoutError."""

    async def work() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    outcome = run_it(work)
    assert (outcome.message[:12], outcome.interrupted) == ("TimeoutError", None)


def test_a_real_signal_in_a_run_comes_back_to_be_obeyed() -> None:
    """A handler that notes it and raises, as the command line's does."""
    fired = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        del number, frame
        fired.set()
        raise KeyboardInterrupt

    def work() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        threading.Event().wait(5)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        task_outcome = run_it(work, interrupted=True)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert fired.is_set()
    assert isinstance(task_outcome.interrupted, KeyboardInterrupt)


# sync and async, and where a coroutine runs


def test_an_async_task_runs_on_the_apps_own_loop() -> None:
    """Where its clients and locks live."""

    async def work() -> str:
        return str(id(asyncio.get_running_loop()))

    with running_loop() as loop:
        assert run_it(work, bridge=on_loop(loop)).message == str(id(loop))


def test_an_async_task_runs_in_a_loop_of_its_own_from_every_other_door() -> None:
    """Two runs, two loops; nothing is left running."""
    seen: list[asyncio.AbstractEventLoop] = []

    async def work() -> str:
        await asyncio.sleep(0)
        seen.append(asyncio.get_running_loop())
        return "Done it."

    assert [run_it(work).message for _ in range(2)] == ["Done it.", "Done it."]
    assert seen[0] is not seen[1]
    assert all(loop.is_closed() for loop in seen)


def test_an_async_task_runs_in_a_loop_of_its_own_where_the_apps_is_not_running() -> None:
    """Before the server starts, or after."""

    async def work() -> str:
        return "Done it."

    loop = asyncio.new_event_loop()
    loop.close()
    assert run_it(work, bridge=on_loop(loop)).message == "Done it."


def test_a_sync_task_runs_in_the_thread_that_asks() -> None:
    """Never on the app's loop."""
    with running_loop() as loop:
        outcome = run_it(lambda: threading.current_thread().name, bridge=on_loop(loop))
    assert outcome.message == threading.current_thread().name


def test_a_decorator_that_hides_a_coroutine_does_not_hide_the_work() -> None:
    """A plain function that returns one: it is awaited, and its failure recorded."""

    async def work() -> str:
        return "Done it."

    @functools.wraps(work)
    def hiding() -> Any:  # noqa: ANN401 - a coroutine
        return work()

    assert run_it(hiding).message == "Done it."
    coroutine = async_raising(ValueError("no"))()
    assert run_it(lambda: coroutine).message.startswith("ValueError: no")


def test_a_loop_that_closes_during_the_run_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a failure that says so; the thread that waits does not wait for ever."""
    monkeypatch.setattr("lazycron.executors.bridge.LOOP_POLL", 0.01)
    begun, closed = threading.Event(), threading.Event()
    loop = asyncio.new_event_loop()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        # Dropped as an impatient server does: nobody awaits what was cancelled.
        for one in asyncio.all_tasks(loop):
            one._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        closed.set()

    server = threading.Thread(target=serve)
    server.start()

    def stop() -> None:
        begun.wait(5)
        loop.call_soon_threadsafe(loop.stop)

    stopper = threading.Thread(target=stop)
    stopper.start()
    outcome = run_it(work, bridge=on_loop(loop))
    stopper.join()
    server.join()
    assert closed.is_set()
    assert outcome.message == "RuntimeError: the app's event loop closed during the run"
    assert outcome.interrupted is None


def test_waiting_that_is_interrupted_cancels_what_it_waited_for() -> None:
    """Otherwise a run that is recorded as failed would go on."""
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def handler(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    def interrupt() -> None:
        begun.wait(5)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with running_loop() as loop:
            thread = threading.Thread(target=interrupt)
            thread.start()
            outcome = run_it(work, bridge=on_loop(loop), interrupted=True)
            thread.join()
            assert ended.wait(5)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert isinstance(outcome.interrupted, KeyboardInterrupt)


def test_a_bridge_that_raises_is_a_failure_too() -> None:
    """Whatever goes wrong between here and the loop."""

    def broken(call: Any) -> Ended:  # noqa: ANN401 - never called
        del call
        raise Custom

    async def work() -> None:
        """Work."""

    assert run_it(work, bridge=broken).message.startswith("Custom")


# the Run parameter


def test_a_parameter_annotated_run_is_filled_in() -> None:
    """Sync, async, and where its name is there for the type checker only."""

    def work(run: Run) -> str:
        return run.task

    async def async_work(amount: int, *, run: Run) -> str:
        return f"{run.task} {amount}"

    assert run_it(work).message == "nightly"
    assert run_it(async_work, 5).message == "nightly 5"
    assert run_it(only_checked.bare).message == "nightly"
    assert run_it(only_checked.through_a_module).message == "nightly"
