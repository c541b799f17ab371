"""A job's arguments: checked against the function, stored as JSON, and back as what they were."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from lazycron.errors import ArgumentsError
from lazycron.texts import Json, from_json, shown, to_json

MOST_BYTES = 65_536
MOST_DEPTH = 50
# Python reads and writes no longer whole numbers than this as text.
MOST_DIGITS = 4300
TOO_LARGE = 10**MOST_DIGITS
# Marks what JSON has no word for; a mapping of the caller's that has this key is marked itself.
TAG = "$"
# A naive datetime in the hour that comes twice, the second time: ISO has no word for it.
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


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a job's function is called with, and the key its row had before it gave it up."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    key: str | None = None


NONE = Arguments()
NONE_WRITTEN = '{"args":[],"kwargs":{}}'


def write_arguments(arguments: Arguments, names: Sequence[str] = ()) -> str:
    """Take a snapshot of a job's arguments as JSON of at most 64 KiB, its key not counted.

    `names` are those of the function's positional parameters, for errors. Raises ArgumentsError,
    which names the argument, for what would not come back as what it was.
    """
    named = arguments.kwargs or {}
    content = {
        "args": [
            _write(value, f"argument {names[n] if n < len(names) else n + 1}", 0)
            for n, value in enumerate(arguments.args)
        ],
        "kwargs": {name: _write(value, f"argument {name}", 0) for name, value in named.items()},
    }
    text = to_json(content)
    size = len(text.encode())
    if size > MOST_BYTES:
        message = (
            f"the arguments take {size} bytes as JSON, more than {MOST_BYTES}; store them "
            "elsewhere and pass where"
        )
        raise ArgumentsError(message)
    return text if arguments.key is None else to_json(content | {"key": arguments.key})


def read_arguments(text: str | None) -> Arguments:
    """Read a job's arguments back; raises an error for a text that was made unreadable by hand."""
    if text is None or text == NONE_WRITTEN:
        return NONE
    found = from_json(text)
    return Arguments(
        args=tuple(_read(value) for value in found.get("args", ())),
        kwargs={name: _read(value) for name, value in found.get("kwargs", {}).items()},
        key=found.get("key"),
    )


def is_snapshot(value: object) -> bool:
    """Tell whether nobody can change a value after it was written."""
    return value is None or type(value) in UNCHANGING


def _write(value: object, where: str, depth: int) -> Json:
    kind = type(value)
    if depth > MOST_DEPTH:
        raise _refusal(where, f"is nested deeper than {MOST_DEPTH}")
    # Exact types: a subclass would come back as something else.
    if value is None or kind is bool:
        return value
    if kind in _WRITERS:
        tag, write = _WRITERS[kind]
        if isinstance(value, datetime) and value.fold and value.tzinfo is None:
            tag = FOLD
        try:
            return {TAG: tag, "value": write(value)}
        except Exception:  # noqa: BLE001 - a time zone is the caller's own code
            raise _refusal(where, f"cannot be written: {shown(value)}") from None
    writer = _CONTAINERS.get(kind)
    if writer is None:
        raise _refusal(where, f"is a {kind.__module__}.{kind.__qualname__}, {shown(value)}")
    return writer(value, where, depth)


def _write_int(value: int, where: str, depth: int) -> int:
    del depth
    if not -TOO_LARGE < value < TOO_LARGE:
        raise _refusal(where, f"has more than {MOST_DIGITS} digits")
    return value


def _write_float(value: float, where: str, depth: int) -> Json:
    del depth
    if not math.isfinite(value):
        raise _refusal(where, f"is {value!r}, which JSON has no word for")
    return value


def _write_list(value: Sequence[object], where: str, depth: int) -> Json:
    return [_write(one, f"{where}[{n}]", depth + 1) for n, one in enumerate(value)]


def _write_tuple(value: Sequence[object], where: str, depth: int) -> Json:
    return {TAG: "tuple", "value": _write_list(value, where, depth)}


def _write_text(value: str, where: str, depth: int) -> str:
    # JSON escapes what a database might refuse: NUL characters and lone surrogates.
    del where, depth
    return value


def _write_mapping(value: dict[object, object], where: str, depth: int) -> Json:
    written = {}
    for name, one in value.items():
        if type(name) is not str:
            raise _refusal(where, f"has the key {shown(name)}, which is no text")
        written[name] = _write(one, f"{where}[{shown(name)}]", depth + 1)
    return {TAG: "dict", "value": written} if TAG in written else written


_CONTAINERS: Mapping[type, Callable[[Any, str, int], Json]] = {
    str: _write_text,
    int: _write_int,
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
) -> Sequence[str]:
    """Check that a function can be called with these arguments; raises ArgumentsError.

    Returns the names of the parameters that may be filled in by position.
    """
    signature, positional = _signature(function, run_parameter)
    if signature is None:
        return positional
    name = getattr(function, "__name__", "the task")
    named = arguments.kwargs or {}
    if run_parameter in named:
        message = f"{name}'s parameter {run_parameter!r} is filled in by lazycron: leave it out"
        raise ArgumentsError(message)
    try:
        signature.bind(*arguments.args, **named)
    except TypeError as error:
        message = f"{name}{signature} does not take these arguments: {error}"
        raise ArgumentsError(message) from None
    return positional


def complete_call(
    function: Callable[..., Any], run_parameter: str | None, run: object, arguments: Arguments
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return what to call the function with: the arguments, and the run in its own parameter.

    Raises TypeError where the function has changed since the job was enqueued.
    """
    named = dict(arguments.kwargs or {})
    signature = None if run_parameter is None else _signature(function, run_parameter)[0]
    if signature is None:
        return arguments.args, named
    bound = signature.bind(*arguments.args, **named)
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


Seen = tuple[inspect.Signature | None, Sequence[str]]


def _signature(function: Callable[..., Any], run_parameter: str | None) -> Seen:
    """Return the function's signature as its caller sees it, without the run.

    None for a builtin that does not say what it takes. With it come the names of the parameters
    that may be filled in by position.
    """
    try:
        return _cached_signature(function, run_parameter)
    except TypeError:  # a callable that has no hash
        return _read_signature(function, run_parameter)


def _read_signature(function: Callable[..., Any], run_parameter: str | None) -> Seen:
    try:
        whole = inspect.signature(function)
    except (TypeError, ValueError):
        return None, ()
    seen = [one for one in whole.parameters.values() if one.name != run_parameter]
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(one.name for one in seen if one.kind in by_position)
    return whole.replace(parameters=seen), names


# Looking takes longer than a small INSERT.
_cached_signature = lru_cache(maxsize=1000)(_read_signature)
