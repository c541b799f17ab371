"""Texts as every database can store them: bounded, valid, and marked where they were cut."""

import json
import logging
import reprlib
from datetime import datetime
from itertools import islice
from typing import Any

MOST_COUNT = 10**12
MESSAGE_LENGTH = 480
ERROR_LENGTH = 16_000
SHOWN_LENGTH = 120
ELLIPSIS = " … "
# A text cut to this length or more says how long it was.
TELLING_LENGTH = 200
# How much is read at each end of a text, in lengths of its line: it may hold many blanks.
LOOKED_AT = 10

Json = Any

# Made once: json.dumps makes an encoder for each call.
_COMPACT = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def storable(text: str) -> str:
    """Escape what some database refuses: NUL characters and lone surrogates."""
    if text.isprintable():  # such characters are not
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def shorten(text: str, length: int) -> str:
    """Make a text storable and cut it in the middle, so that both ends remain readable.

    A cut text says how long it was. However long it is, only its ends are read.
    """
    whole = len(text)
    if whole <= 2 * length:
        text = storable(text)
        return text if len(text) <= length else _cut(text, text, length, whole)
    return _cut(storable(text[:length]), storable(text[-length:]), length, whole)


def _cut(head: str, tail: str, length: int, whole: int) -> str:
    """Put the beginning of one text and the end of another around the mark of a cut."""
    mark = f" … ({whole} characters in all) " if length >= TELLING_LENGTH else ELLIPSIS
    kept = length - len(mark)
    return head[: kept - kept // 2] + mark + tail[max(0, len(tail) - kept // 2) :]


def at(moment: datetime) -> str:
    """Write a moment in UTC, to the second, for sentences and tables."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def visible(text: str) -> str:
    """Escape what a terminal would obey instead of showing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_json(text: str) -> str:
    """Escape what a terminal would obey in a JSON text, which stays the same JSON."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def one_line(text: str, length: int = MESSAGE_LENGTH) -> str:
    """Shorten a message to one line of at most 480 characters."""
    whole, longest = len(text), LOOKED_AT * length
    if whole <= longest:
        return shorten(" ".join(text.split()), length)
    head, tail = text[:longest], text[-longest:]
    return _cut(storable(" ".join(head.split())), storable(" ".join(tail.split())), length, whole)


def to_json(value: Json) -> str:
    """Write a value as compact JSON; raises TypeError or ValueError where that is impossible."""
    return _COMPACT.encode(value)


def from_json(text: str | None) -> Json:
    """Read a JSON column back; None stays None."""
    return None if text is None else json.loads(text)


def readable_json(text: str | None) -> Json:
    """Read a JSON column for show; None where it was edited by hand and cannot be read."""
    try:
        return from_json(text)
    except (ValueError, RecursionError):
        return None


def counters_from_json(text: str | None) -> dict[str, int]:
    """Read a row's counters; if they were edited by hand and are unreadable, they start from zero.

    If it were refused, such a row would stay the first for ever, and no row after it would run.
    """
    found = readable_json(text)
    if not isinstance(found, dict):
        return {}
    return {name: count for name, count in found.items() if _is_count(count)}


def _is_count(value: object) -> bool:
    """Tell whether a value can be counted on: it stays short, and a length of time in seconds."""
    return type(value) is int and 0 <= value < MOST_COUNT


def shown(value: object) -> str:
    """Write a refused value into an error's message: its repr, bounded, whatever it may raise."""
    return shorten(bounded_repr(value), SHOWN_LENGTH)


class _Bounded(reprlib.Repr):
    """Writes a value as `repr` does, except the parts that would be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 8 * SHOWN_LENGTH
        self.maxtuple = self.maxlist = self.maxarray = self.maxdict = SHOWN_LENGTH
        self.maxset = self.maxfrozenset = self.maxdeque = SHOWN_LENGTH

    def repr_bytes(self, value: bytes, level: int) -> str:
        del level
        return repr(value[: self.maxstring])

    repr_bytearray = repr_bytes

    def repr_dict(self, value: dict[object, object], level: int) -> str:
        if level <= 0 and value:
            return "{...}"
        pairs = [
            f"{self.repr1(name, level - 1)}: {self.repr1(one, level - 1)}"
            for name, one in islice(value.items(), self.maxdict)
        ]
        return "{" + ", ".join(pairs) + ("}" if len(pairs) == len(value) else ", ...}")

    def repr_set(self, value: set[object], level: int) -> str:
        if not value:
            return "set()"
        if level <= 0:
            return "{...}"
        some = [self.repr1(one, level - 1) for one in islice(value, self.maxset)]
        return "{" + ", ".join(some) + ("}" if len(some) == len(value) else ", ...}")

    def repr_instance(self, value: object, level: int) -> str:
        del level
        return repr(value)


_BOUNDED = _Bounded()


def bounded_repr(value: object) -> str:
    """Return a value's repr, whatever it may raise; of large built-in ones only the beginning."""
    try:
        return _BOUNDED.repr(value)
    except Exception as error:  # noqa: BLE001 - a task's object may raise anything here
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


class ShownOnly(logging.Filter):
    """Escapes, in a log record, what a terminal would obey: most logs are read on one."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape the record's texts and its traceback; every record passes."""
        if isinstance(record.args, tuple):
            record.args = tuple(
                visible(str(one)) if isinstance(one, str | BaseException) else one
                for one in record.args
            )
        if record.exc_info and not record.exc_text:
            lines = logging.Formatter().formatException(record.exc_info).split("\n")
            record.exc_text = "\n".join(map(visible, lines))
        return True


# Here, since each module that logs imports this one.
logging.getLogger("lazycron").addFilter(ShownOnly())
