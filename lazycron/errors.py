"""What can go wrong, by name; an error's docstring is its message where none is given."""

import inspect


class LazyCronError(Exception):
    """Something in lazycron went wrong."""

    def __init__(self, message: str | None = None) -> None:
        self.message = message or inspect.getdoc(type(self)) or type(self).__name__
        super().__init__(self.message)

    def __str__(self) -> str:
        # KeyError, a base of one of us, would show the repr.
        return self.message


class ScheduleError(LazyCronError, ValueError):
    """A schedule or a duration that cannot be understood or can never be due."""


class DuplicateTaskError(LazyCronError):
    """Two functions were registered under one task name."""


class UnknownTaskError(LazyCronError, KeyError):
    """No task and no row has this name."""


class ArgumentsError(LazyCronError, TypeError):
    """A job's arguments do not fit its function or cannot be stored."""


class KeyTakenError(LazyCronError):
    """Another job of this task holds the key."""


class LeaseLostError(LazyCronError):
    """This run's lease has ended and another process may have the row by now."""


class ConfigurationError(LazyCronError):
    """A setting that lazycron cannot work with."""


class NotInstalledError(LazyCronError):
    """The database has no lazycron tables yet: run `lazycron migrate`."""


class BusyError(LazyCronError):
    """The row or the database is busy: try again, or end what holds it."""
