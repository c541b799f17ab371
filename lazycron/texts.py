"""Texts as every database can store them: bounded, valid, and marked where they were cut."""

import json
from typing import Any

MESSAGE_LENGTH = 480
ERROR_LENGTH = 16_000
RESULT_BYTES = 65_536
SHOWN_LENGTH = 120
ELLIPSIS = " … "

Json = Any

# Made once: json.dumps makes an encoder for each call.
_COMPACT = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def storable(text: str) -> str:
    """Escape what some database refuses: NUL characters and lone surrogates."""
    if text.isprintable():  # neither is
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def shorten(text: str, length: int) -> str:
    """Make a text storable and cut it in the middle, so that both ends remain readable."""
    text = storable(text)
    if len(text) <= length:
        return text
    kept = length - len(ELLIPSIS)
    tail = kept // 2
    return text[: kept - tail] + ELLIPSIS + text[len(text) - tail :]


def visible(text: str) -> str:
    """Escape what a terminal would obey instead of showing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str, length: int = MESSAGE_LENGTH) -> str:
    """Shorten a message to one line of at most 480 characters."""
    return shorten(" ".join(text.split()), length)


def to_json(value: Json) -> str:
    """Write a value as compact JSON; raises TypeError or ValueError where it is none."""
    return _COMPACT.encode(value)


def from_json(text: str | None) -> Json:
    """Read a JSON column back; None stays None."""
    return None if text is None else json.loads(text)


def readable_json(text: str | None) -> Json:
    """Read a JSON column for show; None where a hand has made it unreadable."""
    try:
        return from_json(text)
    except (ValueError, RecursionError):
        return None


def counters_from_json(text: str | None) -> dict[str, int]:
    """Read a row's counters; what a hand has made unreadable counts from nothing again.

    Refused, such a row would be first in line for ever, and nothing behind it would run.
    """
    found = readable_json(text)
    if not isinstance(found, dict):
        return {}
    return {name: count for name, count in found.items() if isinstance(count, int)}


def result_to_json(value: Json) -> str:
    """Write a run's result as JSON, or a marked stand-in where it is none or too large."""
    try:
        text = to_json(value)
    except Exception:  # noqa: BLE001 - encoding calls the methods of the task's own containers
        return to_json({"lazycron": "not JSON", "repr": shorten(_repr(value), MESSAGE_LENGTH)})
    if len(text) > RESULT_BYTES:
        return to_json({"lazycron": "too large", "characters": len(text)})
    return text


def shown(value: object) -> str:
    """Write a refused value into an error's message: its repr, bounded, whatever it may raise."""
    return shorten(_repr(value), SHOWN_LENGTH)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a task's object may raise anything here
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
