"""What all verbs share: the app, who is asking, and how errors are told."""

import getpass
import logging
import socket
from dataclasses import dataclass
from typing import Any

import click

from lazycron.app import LazyCron, parts_of
from lazycron.cli.failures import told
from lazycron.cli.loading import load
from lazycron.cli.logs import show_warnings
from lazycron.verbs.operator import note_action

logger = logging.getLogger("lazycron")

WHO_LENGTH = 191


@dataclass(slots=True)
class Session:
    """One call of the command line; the app is loaded when a verb first asks for it."""

    app: str | None
    traceback: bool
    _cron: LazyCron | None = None
    _warnings: logging.Handler | None = None

    @property
    def cron(self) -> LazyCron:
        """The LazyCron that `--app` names."""
        if self._cron is None:
            self._cron = load(self.app)
            # After the import, which may have set up logging.
            self._warnings = None if self.traceback else show_warnings(logger)
        return self._cron

    def acted(self, verb: str, name: str | None = None, detail: str = "") -> None:
        """Note in the database that this verb was carried out, and by whom."""
        note_action(parts_of(self.cron), who(), verb, name, detail)

    def close(self) -> None:
        """Close the database's connections."""
        if self._warnings is not None:
            logger.removeHandler(self._warnings)
        if self._cron is not None:
            self._cron.close()


pass_session = click.make_pass_decorator(Session)


def who() -> str:
    """Return `cli:user@host`, which actions are noted with."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        user = "?"
    return f"cli:{user}@{socket.gethostname()}"[:WHO_LENGTH]


class Verbs(click.Group):
    """A group whose errors are one line on stderr, unless tracebacks are asked for."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit) as error:
            # An app that cannot be imported is told in a line as well; its own error is the cause.
            if error.__cause__ is not None and _wants_traceback(ctx):
                raise error.__cause__ from None
            raise
        except (Exception, KeyboardInterrupt) as error:
            line = None if _wants_traceback(ctx) else told(error)
            if line is None:
                raise
            raise line from None


def _wants_traceback(ctx: click.Context) -> bool:
    return isinstance(ctx.obj, Session) and ctx.obj.traceback
