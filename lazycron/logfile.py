"""The text log beside the state file: one line a run, for the day the bookkeeping failed."""

import errno
import os
import threading
import time
from collections import deque
from datetime import datetime
from math import inf
from pathlib import Path

from lazycron.statefile import flocked
from lazycron.texts import shorten, visible

LARGEST = 100_000
KEPT_LINES = 200
# A name of 191 and a message of 480 characters fit; two hundred lines stay a small file.
LINE_LENGTH = 1000
# In seconds: how long a line may wait for those that follow at once.
BURST = 0.05
# Without O_NONBLOCK a FIFO in the log's place would hold its writer until somebody reads.
APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)


class LogFile:
    """Appends lines, shortens itself, and never lets an error of its own out.

    Of one task's runs that follow each other within milliseconds the lines are written together:
    one at a time they take a tenth of such a run, and a fifth where SQLite syncs each commit
    (measured).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self._waiting: deque[str] = deque()
        self._write_at = -inf
        self._burst_of = ""
        self._writing = threading.Lock()

    def note(self, when: datetime, name: str, what: str, ms: int | None, rest: str) -> None:
        """Append a line such as `[2026-11-30 03:00:07] nightly  ok  412 ms  traffic  Done.`."""
        self._waiting.append(_line(when, name, what, ms, rest))
        self.flush()

    def note_in_burst(
        self, when: datetime, name: str, what: str, ms: int | None, rest: str
    ) -> None:
        """Append a line at the latest with the next `flush`: the database has what it says."""
        self._waiting.append(_line(when, name, what, ms, rest))
        self._burst_of = name
        if time.monotonic() >= self._write_at:
            self.flush()

    def before_run_of(self, name: str) -> None:
        """Write what waits, unless this is one more run of a burst: it may end the process."""
        if name != self._burst_of:
            self.flush()

    def flush(self) -> None:
        """Write the lines that wait; what cannot be written waits on, the newest of it."""
        if not self._waiting:
            return
        with self._writing:
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if not self._append("".join(lines)):
                self._waiting.extendleft(reversed(lines[-KEPT_LINES:]))
            self._write_at = time.monotonic() + BURST

    def tail(self, lines: int) -> list[str]:
        """Return the newest lines, newest first."""
        self.flush()
        try:
            text = self.path.read_text("utf-8", "replace") if self.path.is_file() else ""
        except OSError:
            return []
        return text.splitlines()[::-1][: max(0, lines)]

    def _append(self, lines: str) -> bool:
        try:
            descriptor = self._open()
            try:
                # Locked, so that no line is written while somebody shortens; and in one write at
                # the file's end, so that lines do not mix where the lock was not to be had.
                with flocked(descriptor):
                    _write_whole(descriptor, lines.encode())
                    if os.fstat(descriptor).st_size > LARGEST:
                        self._shorten()
            finally:
                os.close(descriptor)
        except OSError as error:
            self.problem = f"log file {self.path}: {error.strerror or error}"
            return False
        self.problem = None
        return True

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


def _write_whole(descriptor: int, content: bytes) -> None:
    """Write all or nothing: of a part, on a disk that is full, the next line would go on."""
    before = os.fstat(descriptor).st_size
    if os.write(descriptor, content) < len(content):
        os.ftruncate(descriptor, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _line(when: datetime, name: str, what: str, ms: int | None, rest: str) -> str:
    took = "-" if ms is None else f"{ms} ms"
    line = f"[{when.isoformat(' ', 'seconds')[:19]}] {name}  {what}  {took}  {rest}"
    # Whoever shows the file on a terminal shall not obey what a task's message says.
    return shorten(visible(" ".join(line.splitlines())), LINE_LENGTH) + "\n"
