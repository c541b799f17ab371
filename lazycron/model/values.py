"""Write values to a JSON column and read them back unchanged: arguments, checkpoints, results."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from lazycron.errors import ArgumentsError
from lazycron.texts import Json, from_json, shown, to_json

MOST_BYTES = 65_536
MOST_DEPTH = 50
# Python reads and writes whole numbers as text only up to this length.
MOST_DIGITS = 4300
TOO_LARGE = 10**MOST_DIGITS
# Marks what JSON cannot express; a caller's mapping that has this key is marked itself.
TAG = "$"
# A naive datetime in the second pass of an hour that comes twice: ISO cannot express it.
FOLD = "datetime fold"
ACCEPTED = (
    "text, numbers, booleans, None, lists, tuples, dicts with text keys, "
    "datetimes, dates, UUIDs and Decimals"
)

_WRITERS: Mapping[type, tuple[str, Callable[[Any], str]]] = {
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    UUID: ("uuid", str),
    Decimal: ("decimal", str),
}
UNCHANGING = frozenset({bool, int, float, str, *_WRITERS})
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    FOLD: lambda text: datetime.fromisoformat(text).replace(fold=1),
    "date": date.fromisoformat,
    "uuid": UUID,
    "decimal": Decimal,
}


def write_value(value: object, what: str) -> str:
    """Write a checkpoint or a result, which `what` names, as JSON of at most 64 KiB.

    Raises ArgumentsError, which names the value, for one that would be read back differently.
    """
    takes = f"the {what} takes"
    text = to_json(Writer(f"a {what}", takes).write(value, f"the {what}"))
    check_size(takes, len(text))
    return text


def read_value(text: str | None) -> Any:  # noqa: ANN401 - whatever the task stored
    """Read a value back; raises an error for a text that was edited by hand and cannot be read."""
    return read_tagged(from_json(text))


def readable_value(text: str | None) -> Any:  # noqa: ANN401 - whatever the task stored
    """Read a value for show; None where its text was edited by hand and cannot be read."""
    try:
        return read_value(text)
    except Exception:  # noqa: BLE001 - a tag's reader may raise anything
        return None


def check_size(takes: str, size: int, about: str = "") -> None:
    """Refuse more than 64 KiB; `takes` is the beginning of the sentence that says so."""
    if size > MOST_BYTES:
        message = (
            f"{takes} {about}{size} bytes as JSON, more than {MOST_BYTES}; store the data "
            "elsewhere and pass where"
        )
        raise ArgumentsError(message)


@dataclass(slots=True)
class Writer:
    """Turns values into JSON's types, and stops as soon as they are too large together.

    `kind` and `takes` are for the errors: what may hold such values, and how the sentence about
    its size begins. `least` is the least number of bytes that the JSON takes.
    """

    kind: str
    takes: str
    least: int = 0

    def write(self, value: object, where: str, depth: int = 0) -> Json:
        """Write a value; raises ArgumentsError, which says where the refused value is."""
        kind = type(value)
        if depth > MOST_DEPTH:
            raise self._refusal(where, f"is nested deeper than {MOST_DEPTH}")
        self._count(1)
        # Exact types: a subclass would be read back as something else.
        if value is None or kind is bool:
            return value
        if kind in _WRITERS:
            return self._tagged(value, where)
        writer = _KINDS.get(kind)
        if writer is None:
            raise self._refusal(
                where, f"is a {kind.__module__}.{kind.__qualname__}, {shown(value)}"
            )
        return writer(self, value, where, depth)

    def _tagged(self, value: Any, where: str) -> Json:  # noqa: ANN401 - one of four kinds
        tag, write = _WRITERS[type(value)]
        if isinstance(value, datetime) and value.fold and value.tzinfo is None:
            tag = FOLD
        try:
            text = write(value)
        except Exception:  # noqa: BLE001 - a time zone is the caller's own code
            raise self._refusal(where, f"cannot be written: {shown(value)}") from None
        self._count(len(text))
        return {TAG: tag, "value": text}

    def _int(self, value: int, where: str, depth: int) -> int:
        del depth
        if not -TOO_LARGE < value < TOO_LARGE:
            raise self._refusal(where, f"has more than {MOST_DIGITS} digits")
        self._count(value.bit_length() // 4)
        return value

    def _float(self, value: float, where: str, depth: int) -> Json:
        del depth
        if not math.isfinite(value):
            raise self._refusal(where, f"is {value!r}, which JSON cannot express")
        return value

    def _text(self, value: str, where: str, depth: int) -> str:
        # JSON escapes what a database might refuse: NUL characters and lone surrogates.
        del where, depth
        self._count(len(value))
        return value

    def _list(self, value: Sequence[object], where: str, depth: int) -> Json:
        return [self.write(one, f"{where}[{n}]", depth + 1) for n, one in enumerate(value)]

    def _tuple(self, value: Sequence[object], where: str, depth: int) -> Json:
        return {TAG: "tuple", "value": self._list(value, where, depth)}

    def _mapping(self, value: dict[object, object], where: str, depth: int) -> Json:
        written = {}
        for name, one in value.items():
            if type(name) is not str:
                raise self._refusal(where, f"has the key {shown(name)}, which is not a text")
            self._count(len(name))
            written[name] = self.write(one, f"{where}[{shown(name)}]", depth + 1)
        return {TAG: "dict", "value": written} if TAG in written else written

    def _count(self, characters: int) -> None:
        self.least += characters
        check_size(self.takes, self.least, "at least ")

    def _refusal(self, where: str, what: str) -> ArgumentsError:
        return ArgumentsError(f"{where} {what}; {self.kind} may be {ACCEPTED}")


_KINDS: Mapping[type, Callable[[Writer, Any, str, int], Json]] = {
    str: Writer._text,  # noqa: SLF001 - its own
    int: Writer._int,  # noqa: SLF001
    float: Writer._float,  # noqa: SLF001
    list: Writer._list,  # noqa: SLF001
    tuple: Writer._tuple,  # noqa: SLF001
    dict: Writer._mapping,  # noqa: SLF001
}


def read_tagged(value: Json) -> Any:  # noqa: ANN401 - whatever was written
    """Turn JSON's types back into what was written."""
    if isinstance(value, list):
        return [read_tagged(one) for one in value]
    if not isinstance(value, dict):
        return value
    tag = value.get(TAG)
    if tag is None:
        return {name: read_tagged(one) for name, one in value.items()}
    inner = value["value"]
    if tag == "tuple":
        return tuple(read_tagged(one) for one in inner)
    if tag == "dict":
        return {name: read_tagged(one) for name, one in inner.items()}
    return _READERS[tag](inner)
