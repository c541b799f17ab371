"""A job's arguments: checked against the function, stored as JSON, and read back unchanged."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lazycron.errors import ArgumentsError
from lazycron.model.values import UNCHANGING, Writer, check_size, read_tagged
from lazycron.texts import from_json, to_json


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a job's call, and the key that its row has given up, if any."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    key: str | None = None


NONE = Arguments()
NONE_WRITTEN = '{"args":[],"kwargs":{}}'


def write_arguments(arguments: Arguments, names: Sequence[str] = ()) -> str:
    """Take a snapshot of a job's arguments as JSON of at most 64 KiB, its key not counted.

    `names` are the function's positional parameters, for errors. Raises ArgumentsError, which names
    the argument, for a value that would be read back as a different one.
    """
    named = arguments.kwargs or {}
    write = Writer("a job's arguments", "the arguments take").write
    content = {
        "args": [
            write(value, f"argument {names[n] if n < len(names) else n + 1}")
            for n, value in enumerate(arguments.args)
        ],
        "kwargs": {name: write(value, f"argument {name}") for name, value in named.items()},
    }
    text = to_json(content)
    check_size("the arguments take", len(text))
    return text if arguments.key is None else to_json(content | {"key": arguments.key})


def read_arguments(text: str | None) -> Arguments:
    """Read a job's arguments back; raises an error for an unreadable text (edited by hand)."""
    if text is None or text == NONE_WRITTEN:
        return NONE
    found = from_json(text)
    return Arguments(
        args=tuple(read_tagged(value) for value in found.get("args", ())),
        kwargs={name: read_tagged(value) for name, value in found.get("kwargs", {}).items()},
        key=found.get("key"),
    )


def is_snapshot(value: object) -> bool:
    """Tell whether a value cannot change after it was written."""
    return value is None or type(value) in UNCHANGING


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
            in_order = False  # a default applies here: what follows is passed by name
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

    It is None for a builtin without a signature. The names of the parameters that may be filled in
    by position come with it.
    """
    try:
        return _cached_signature(function, run_parameter)
    except TypeError:  # the callable has no hash
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


# Reading a signature takes longer than a small INSERT.
_cached_signature = lru_cache(maxsize=1000)(_read_signature)
