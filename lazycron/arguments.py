"""A job's arguments: checked against the function, stored as JSON, and back as what they were."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from lazycron.errors import ArgumentsError
from lazycron.messages import Json, from_json, shown, to_json

MOST_BYTES = 65_536
MOST_DEPTH = 50
# Marks what JSON has no word for; a mapping of the caller's that has this key is marked itself.
TAG = "$"
ACCEPTED = (
    "text, numbers, booleans, None, lists, tuples, mappings with text keys, "
    "datetimes, dates, UUIDs and Decimals"
)

_WRITERS: Mapping[type, tuple[str, Callable[[Any], str]]] = {
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    UUID: ("uuid", str),
    Decimal: ("decimal", str),
}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "uuid": UUID,
    "decimal": Decimal,
}


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a job's function is called with, and the key its row had before it gave it up."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    key: str | None = None


def write_arguments(arguments: Arguments) -> str:
    """Take a snapshot of a job's arguments as JSON of at most 64 KiB.

    Raises ArgumentsError, which names the argument, for what would not come back as what it was.
    """
    named = arguments.kwargs or {}
    content = {
        "args": [_write(value, f"argument {n}", 0) for n, value in enumerate(arguments.args, 1)],
        "kwargs": {name: _write(value, f"argument {name}", 0) for name, value in named.items()},
    }
    if arguments.key is not None:
        content["key"] = arguments.key
    text = to_json(content)
    size = len(text.encode())
    if size > MOST_BYTES:
        message = (
            f"the arguments take {size} bytes as JSON, more than {MOST_BYTES}; store them "
            "elsewhere and pass where"
        )
        raise ArgumentsError(message)
    return text


def read_arguments(text: str | None) -> Arguments:
    """Read a job's arguments back."""
    found = from_json(text) or {}
    return Arguments(
        args=tuple(_read(value) for value in found.get("args", ())),
        kwargs={name: _read(value) for name, value in found.get("kwargs", {}).items()},
        key=found.get("key"),
    )


def _write(value: object, where: str, depth: int) -> Json:
    kind = type(value)
    if depth > MOST_DEPTH:
        raise _refusal(where, f"is nested deeper than {MOST_DEPTH}")
    # Exact types: a subclass would come back as something else.
    if value is None or kind in (bool, int):
        return value
    if kind in _WRITERS:
        tag, write = _WRITERS[kind]
        return {TAG: tag, "value": write(value)}
    writer = _CONTAINERS.get(kind)
    if writer is None:
        raise _refusal(where, f"is a {kind.__module__}.{kind.__qualname__}, {shown(value)}")
    return writer(value, where, depth)


def _write_float(value: float, where: str, depth: int) -> Json:
    del depth
    if not math.isfinite(value):
        raise _refusal(where, f"is {value!r}, which JSON has no word for")
    return value


def _write_list(value: Sequence[object], where: str, depth: int) -> Json:
    return [_write(one, f"{where}[{n}]", depth + 1) for n, one in enumerate(value)]


def _write_tuple(value: Sequence[object], where: str, depth: int) -> Json:
    return {TAG: "tuple", "value": _write_list(value, where, depth)}


def _write_text(value: str, where: str, depth: int = 0) -> str:
    del depth
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refusal(where, "has a lone surrogate, which no database stores") from None
    return value


def _write_mapping(value: dict[object, object], where: str, depth: int) -> Json:
    written = {}
    for name, one in value.items():
        if type(name) is not str:
            raise _refusal(where, f"has the key {shown(name)}, which is no text")
        written[_write_text(name, where)] = _write(one, f"{where}[{name!r}]", depth + 1)
    return {TAG: "dict", "value": written} if TAG in written else written


_CONTAINERS: Mapping[type, Callable[[Any, str, int], Json]] = {
    str: _write_text,
    float: _write_float,
    list: _write_list,
    tuple: _write_tuple,
    dict: _write_mapping,
}


def _refusal(where: str, what: str) -> ArgumentsError:
    return ArgumentsError(f"{where} {what}; a job's arguments may be {ACCEPTED}")


def _read(value: Json) -> Any:  # noqa: ANN401 - whatever the caller passed
    if isinstance(value, list):
        return [_read(one) for one in value]
    if not isinstance(value, dict):
        return value
    tag = value.get(TAG)
    if tag is None:
        return {name: _read(one) for name, one in value.items()}
    inner = value["value"]
    if tag == "tuple":
        return tuple(_read(one) for one in inner)
    if tag == "dict":
        return {name: _read(one) for name, one in inner.items()}
    return _READERS[tag](inner)


def check_call(
    function: Callable[..., Any], run_parameter: str | None, arguments: Arguments
) -> None:
    """Check that a function can be called with these arguments; raises ArgumentsError."""
    try:
        _signature(function, run_parameter).bind(*arguments.args, **(arguments.kwargs or {}))
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        message = f"{name}{_signature(function, run_parameter)} cannot be called so: {error}"
        raise ArgumentsError(message) from None


def complete_call(
    function: Callable[..., Any], run_parameter: str | None, run: object, arguments: Arguments
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return what to call the function with: the arguments, and the run in its own parameter.

    Raises TypeError where the function has changed since the job was enqueued.
    """
    named = dict(arguments.kwargs or {})
    if run_parameter is None:
        return arguments.args, named
    bound = _signature(function, run_parameter).bind(*arguments.args, **named)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    in_order = True
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name != run_parameter and parameter.name not in bound.arguments:
            in_order = False  # a default stands here: what follows goes by name
            continue
        value: Any = run if parameter.name == run_parameter else bound.arguments[parameter.name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional.extend(value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            keywords.update(value)
        elif parameter.kind is parameter.KEYWORD_ONLY or not in_order:
            keywords[parameter.name] = value
        else:
            positional.append(value)
    return positional, keywords


def _signature(function: Callable[..., Any], run_parameter: str | None) -> inspect.Signature:
    """Return the function's signature as its caller sees it: without the run."""
    whole = inspect.signature(function)
    seen = [one for one in whole.parameters.values() if one.name != run_parameter]
    return whole.replace(parameters=seen)
