"""The command line: `lazycron --app module:attribute VERB`."""

import io
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from lazycron.cli.command import lazycron

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a task's message is no reason to stop.
            stream.reconfigure(errors="backslashreplace")
    lazycron(prog_name="lazycron")
