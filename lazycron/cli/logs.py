"""lazycron's warnings on a terminal where the app has set up no logging of its own."""

import logging

from lazycron.cli.output import say

# The command line reports these itself.
SAID_OTHERWISE = ("run_", "not_installed")


class Warnings(logging.Handler):
    """Writes a warning as one line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, unless the command line says it itself."""
        if str(getattr(record, "action", "")).startswith(SAID_OTHERWISE):
            return
        say(f"lazycron: {record.getMessage()}", err=True)


def show_warnings(logger: logging.Logger) -> logging.Handler | None:
    """Show warnings where no other handler does; return the handler that was added."""
    if logger.hasHandlers():
        return None
    handler = Warnings(logging.WARNING)
    logger.addHandler(handler)
    return handler
