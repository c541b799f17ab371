"""Turn how a call ended into an outcome, in texts that every database can store."""

from pathlib import PurePath
from types import TracebackType

from lazycron.errors import ArgumentsError
from lazycron.executors.base import Execution
from lazycron.executors.generators import Ended
from lazycron.executors.tracebacks import text_of, traceback_of
from lazycron.model.run import Postpone
from lazycron.model.settle import Outcome, Status
from lazycron.model.values import write_value
from lazycron.texts import MESSAGE_LENGTH, one_line

DONE = "Done."
# The least that is kept of a run's own text where its message has to say more.
SAID_LENGTH = 100


def to_outcome(ended: Ended, ms: int, execution: Execution) -> Outcome:
    """Turn how a call ended, after so many milliseconds, into an outcome."""
    error = ended.error
    if ended.paused:
        return _paused(ended.value, ms)
    if isinstance(error, Postpone) or (error is None and isinstance(ended.value, Postpone)):
        asked = error if isinstance(error, Postpone) else ended.value
        return _postponed(asked, ms, execution)
    if error is None:
        return _returned(ended.value, ms)
    return failed(ended, ms, execution)


def failed(ended: Ended, ms: int, execution: Execution) -> Outcome:
    """Turn an error into an outcome, which also holds a real interruption."""
    error = ended.error
    assert error is not None  # noqa: S101 - for the type checker
    stop = isinstance(error, KeyboardInterrupt | SystemExit) and execution.interrupted()
    return Outcome(
        status=Status.FAILED,
        message=failure_message(error),
        error=traceback_of(error),
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
    if value is None:
        return Outcome(status=Status.OK, ms=ms)
    # A subclass's own methods are the task's code.
    text = str.__str__(value) if isinstance(value, str) else ""
    try:
        result = write_value(value, "result")
    except Exception as error:  # noqa: BLE001 - a list may change while it is written
        return Outcome(status=Status.OK, message=_unstored(text, error), ms=ms)
    return Outcome(status=Status.OK, message=one_line(text) or DONE, result=result, ms=ms)


def _unstored(text: str, error: Exception) -> str:
    """Return a run's text and why its result is not stored; its effects are done all the same."""
    why = error.message if isinstance(error, ArgumentsError) else type(error).__name__
    note = one_line(f"The result was not stored: {why}", MESSAGE_LENGTH - SAID_LENGTH)
    return f"{one_line(text, MESSAGE_LENGTH - len(note) - 1) or DONE} {note}"


def failure_message(error: BaseException) -> str:
    """Write `Kind: text (file.py:12)` in at most 480 characters, shortened in the middle.

    The file and line are where the error was raised.
    """
    place = _place(error.__traceback__)
    name = one_line(type(error).__name__, SAID_LENGTH)
    text = one_line(text_of(error), MESSAGE_LENGTH - len(name) - len(": ") - len(place))
    return f"{name}: {text}{place}" if text else f"{name}{place}"


def _place(trace: TracebackType | None) -> str:
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    name = PurePath(trace.tb_frame.f_code.co_filename).name
    place = one_line(f"({name}:{trace.tb_lineno})", MESSAGE_LENGTH // 2)
    return f" {place}"
