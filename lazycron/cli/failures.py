"""Errors as the command line tells them: one line on stderr, and an exit code."""

import errno
import sys
from typing import IO, Any

import click

from lazycron.cli.output import say
from lazycron.errors import ArgumentsError, LazyCronError, ScheduleError, UnknownTaskError
from lazycron.store import DatabaseError, Fault, fault_of
from lazycron.texts import one_line

WRONG = 1
MISUSED = 2
SIGNALLED = 128

# The operator's typing is wrong, not the installation.
MISTYPED = (ArgumentsError, ScheduleError, UnknownTaskError)
# Told in a line. Any other error is a bug in lazycron and keeps its traceback.
TOLD = (LazyCronError, DatabaseError, ImportError, OSError)


class Failed(click.ClickException):
    """A command that failed: its line for stderr, and its exit code."""

    def __init__(self, message: str, exit_code: int = WRONG) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc] # click sets it so itself

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line, with the command's name before it."""
        say(f"lazycron: {self.message}", file=sys.stderr if file is None else file)


def told(error: BaseException) -> Failed | None:
    """Turn an error into its line; None for one that keeps its traceback."""
    if isinstance(error, KeyboardInterrupt):
        return Failed("interrupted", SIGNALLED + 2)
    if not isinstance(error, TOLD) or getattr(error, "errno", None) == errno.EPIPE:
        return None
    if isinstance(error, LazyCronError):
        return Failed(str(error), MISUSED if isinstance(error, MISTYPED) else WRONG)
    if isinstance(error, DatabaseError):
        return Failed(of_database(error))
    return Failed(f"{type(error).__name__}: {one_line(str(error))}")


def of_database(error: DatabaseError) -> str:
    """Say in a line what a database error means; no SQL, no parameters, no URL."""
    # The driver's own words name hosts and users; SQLAlchemy's add the statement and its values.
    words = one_line(str(getattr(error, "orig", None) or "")) or "no details"
    fault = fault_of(error)
    if fault is Fault.MISSING:
        return "the database has no lazycron tables: run `lazycron migrate`"
    what = {
        Fault.BUSY: "the database is busy",
        Fault.GONE: "the database cannot be reached",
    }.get(fault, "the database refused")
    return f"{what} ({type(error).__name__}: {words})"
