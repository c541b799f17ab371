"""How a call ended becomes an outcome, in texts that every database can store."""

import traceback
from pathlib import PurePath

from lazycron.executors.base import Execution
from lazycron.executors.generators import Ended
from lazycron.model.run import Postpone
from lazycron.model.settle import Outcome, Status
from lazycron.texts import (
    ELLIPSIS,
    ERROR_LENGTH,
    MESSAGE_LENGTH,
    one_line,
    result_to_json,
    shorten,
    storable,
)


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
    """Turn an error into an outcome; a real interruption goes with it."""
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
