"""The text log beside the state file: one line a run, for the day the bookkeeping failed."""

import os
from datetime import datetime
from pathlib import Path

from lazycron.messages import shorten, visible
from lazycron.statefile import flocked

LARGEST = 100_000
KEPT_LINES = 200
# A name of 191 and a message of 480 characters fit; two hundred lines stay a small file.
LINE_LENGTH = 1000
# Without O_NONBLOCK a FIFO in the log's place would hold its writer until somebody reads.
APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)


class LogFile:
    """Appends lines, shortens itself, and never lets an error of its own out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None

    def note(self, when: datetime, name: str, what: str, ms: int | None, rest: str) -> None:
        """Append a line such as `[2026-11-30 03:00:07] nightly  ok  412 ms  traffic  Done.`."""
        took = "-" if ms is None else f"{ms} ms"
        line = f"[{when:%Y-%m-%d %H:%M:%S}] {name}  {what}  {took}  {rest}"
        # Whoever shows the file on a terminal shall not obey what a task's message says.
        self._append(shorten(visible(" ".join(line.splitlines())), LINE_LENGTH) + "\n")

    def tail(self, lines: int) -> list[str]:
        """Return the newest lines, newest first."""
        try:
            text = self.path.read_text("utf-8", "replace") if self.path.is_file() else ""
        except OSError:
            return []
        return text.splitlines()[::-1][: max(0, lines)]

    def _append(self, line: str) -> None:
        try:
            descriptor = self._open()
            try:
                # Locked, so that no line is written while somebody shortens; and in one write at
                # the file's end, so that lines do not mix where the lock was not to be had.
                with flocked(descriptor):
                    os.write(descriptor, line.encode())
                    if os.fstat(descriptor).st_size > LARGEST:
                        self._shorten()
            finally:
                os.close(descriptor)
            self.problem = None
        except OSError as error:
            self.problem = f"log file {self.path}: {error.strerror or error}"

    def _open(self) -> int:
        try:
            return os.open(self.path, APPENDING, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self.path, APPENDING, 0o600)

    def _shorten(self) -> None:
        # In place: appenders keep their file. Whoever is killed between the two steps leaves
        # lines twice, none is lost.
        with self.path.open("r+b") as file:
            kept = b"".join(file.readlines()[-KEPT_LINES:])
            file.seek(0)
            file.write(kept)
            file.truncate()
