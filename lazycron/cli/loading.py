"""Find the LazyCron that `--app module:attribute` names."""

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import click

from lazycron.app import LazyCron
from lazycron.cli.failures import Failed
from lazycron.model.task import Task
from lazycron.texts import one_line

DEFAULT_ATTRIBUTE = "cron"
MISSING = 'no app is named: pass --app "module:attribute" or set LAZYCRON_APP'


def load(target: str | None) -> LazyCron:
    """Import the module and return its LazyCron, calling a factory for it.

    Raises a usage error that says what is missing, and Failed where the app's own code fails.
    """
    if not target:
        raise click.UsageError(MISSING)
    name, _, attribute = target.partition(":")
    attribute = attribute or DEFAULT_ATTRIBUTE
    module = _import(name, target)
    try:
        found = functools.reduce(getattr, attribute.split("."), module)
    except AttributeError:
        message = f'--app "{target}": module {name} has no {attribute}'
        raise click.UsageError(message) from None
    return _to_cron(found, target)


def _import(name: str, target: str) -> ModuleType:
    folder = os.getcwd()  # noqa: PTH109 - sys.path holds texts
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not name or name.startswith("."):
        message = f'--app "{target}": pass "module:attribute", such as "myapp.main:cron"'
        raise click.UsageError(message)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            message = f'--app "{target}": there is no module {error.name} (looked in {folder} too)'
            raise click.UsageError(message) from error
        raise _broken(target, "importing it", error) from error
    except Exception as error:
        raise _broken(target, "importing it", error) from error


def _to_cron(found: Any, target: str) -> LazyCron:  # noqa: ANN401 - whatever the module has there
    # A task is callable too, and calling it would run it; an app takes arguments.
    if callable(found) and not isinstance(found, LazyCron | Task) and _takes_nothing(found):
        try:
            found = found()
        except Exception as error:
            raise _broken(target, "calling it", error) from error
    if isinstance(found, LazyCron):
        return found
    message = (
        f'--app "{target}" is a {type(found).__name__}, not a LazyCron or a function that makes '
        'one; pass the module and the name of its LazyCron, such as "myapp.main:cron"'
    )
    raise click.UsageError(message)


def _takes_nothing(factory: Callable[..., Any]) -> bool:
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError):
        return False
    return True


def _broken(target: str, doing: str, error: Exception) -> Failed:
    words = one_line(f"{type(error).__name__}: {error}")
    return Failed(f'--app "{target}": {doing} raised {words} (--traceback shows where)')
