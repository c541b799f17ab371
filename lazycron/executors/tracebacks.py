"""An error's text and traceback, bounded before they are written: both may have any size."""

import linecache
import traceback
from collections.abc import Iterator
from itertools import islice
from types import TracebackType

from lazycron.texts import ERROR_LENGTH, bounded_repr, shorten

# Beyond these, Python's own traceback would cost more than what is kept of it.
MOST_FRAMES = 1000
MOST_ERRORS = 50
LONGEST_LINE = 1000
# What is kept of an error whose traceback is not Python's own.
KEPT_ERRORS = 10
KEPT_FRAMES = 10
KEPT_NOTES = 10
KEPT_TEXT = ERROR_LENGTH // 2
CAUSED = "\nThe above exception was the direct cause of the following exception:\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n"


def text_of(error: BaseException) -> str:
    """Return an error's text, whatever its code raises; the caller must cut it first."""
    try:
        return _said(error)
    except BaseException as second:  # noqa: BLE001 - __str__ is the task's own code
        return f"its text raised {type(second).__name__}"


def traceback_of(error: BaseException) -> str:
    """Return an error's traceback: Python's own, or a shorter one where Python's is large."""
    try:
        if all(_is_small(one) for one in _family(error)):
            return shorten("".join(traceback.format_exception(error)), ERROR_LENGTH)
        return shorten("\n".join(_in_short(error)), ERROR_LENGTH)
    except BaseException as second:  # noqa: BLE001 - formatting calls the task's own code
        return f"{type(error).__name__} … its traceback raised {type(second).__name__}"


def _said(error: BaseException) -> str:
    if not _is_pythons(error):
        return str(error)
    given = error.args[0] if len(error.args) == 1 else error.args
    if isinstance(given, str) and not isinstance(error, KeyError):
        return str.__str__(given)
    return str(error) if _is_light(error.args) else bounded_repr(given)


def _is_pythons(error: BaseException) -> bool:
    """Whether an error's text is its arguments as Python writes them."""
    return type(error).__str__ in (BaseException.__str__, KeyError.__str__)


def _is_light(given: object) -> bool:
    """Whether a value is short when written, as far as Python's own types go."""
    waiting, left = [given], ERROR_LENGTH
    while waiting and left >= 0:
        one = waiting.pop()
        left -= 1
        if isinstance(one, str | bytes | bytearray | list | tuple | set | frozenset | dict):
            left -= len(one)
        if left >= 0 and isinstance(one, list | tuple | set | frozenset | dict):
            waiting += one
            waiting += one.values() if isinstance(one, dict) else ()
    return left >= 0


def _family(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that Python shows with it, at most one more than allowed."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) <= MOST_ERRORS:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [link for link in (one.__cause__, one.__context__) if link is not None]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions[: MOST_ERRORS + 1]
    if waiting:
        yield _TooManyError()


class _TooManyError(Exception):
    """Stands for the errors that are left out."""


def _is_small(error: BaseException) -> bool:
    """Whether Python's own traceback of an error is cheap to write."""
    return (
        not isinstance(error, _TooManyError)
        and (_is_light(error.args) or not _is_pythons(error))
        and len(_said(error)) < ERROR_LENGTH
        and len(getattr(error, "text", None) or "") < ERROR_LENGTH  # a SyntaxError's line
        and len(_notes(error)) <= MOST_ERRORS
        and all(isinstance(one, str) and len(one) < ERROR_LENGTH for one in _notes(error))
        and _is_short(error.__traceback__)
    )


def _notes(error: BaseException) -> list[object]:
    notes = getattr(error, "__notes__", None)
    return notes if isinstance(notes, list) else []


def _is_short(trace: TracebackType | None) -> bool:
    for number, (frame, line) in enumerate(traceback.walk_tb(trace)):
        if number >= MOST_FRAMES or len(_line(frame.f_code.co_filename, line)) > LONGEST_LINE:
            return False
    return True


def _line(filename: str, number: int) -> str:
    return linecache.getline(filename, number)


def _in_short(error: BaseException) -> Iterator[str]:
    """Write an error and its causes, oldest first as Python does, with each one's newest frames."""
    links = [(error, "")]
    seen = {id(error)}
    while len(links) < KEPT_ERRORS:
        last = links[-1][0]
        earlier, words = last.__cause__, CAUSED
        if earlier is None and not last.__suppress_context__:
            earlier, words = last.__context__, DURING
        if earlier is None or id(earlier) in seen:
            break
        seen.add(id(earlier))
        links.append((earlier, words))
    for one, words in reversed(links):
        yield from _alone(one)
        if words:
            yield words


def _alone(error: BaseException) -> Iterator[str]:
    frames = _newest_frames(error.__traceback__)
    if frames:
        yield "Traceback (most recent call last):"
    yield from frames
    yield f"{type(error).__qualname__}: {shorten(text_of(error), KEPT_TEXT)}"
    for note in _notes(error)[:KEPT_NOTES]:
        yield shorten(note if isinstance(note, str) else bounded_repr(note), KEPT_TEXT)
    if isinstance(error, BaseExceptionGroup):
        for one in islice(error.exceptions, KEPT_ERRORS):
            yield f"  | {type(one).__qualname__}: {shorten(text_of(one), LONGEST_LINE)}"


def _newest_frames(trace: TracebackType | None) -> list[str]:
    newest = list(traceback.walk_tb(trace))[-KEPT_FRAMES:]
    return [
        f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}\n'
        f"    {shorten(_line(frame.f_code.co_filename, line)[:LONGEST_LINE].strip(), LONGEST_LINE)}"
        for frame, line in newest
    ]
