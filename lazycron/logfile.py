"""The text log beside the state file: one line a run, for the day the bookkeeping failed."""

import errno
import os
import threading
import time
from collections import deque
from datetime import datetime
from math import inf
from pathlib import Path

from lazycron.files import open_or_make, open_own
from lazycron.locks import locked
from lazycron.texts import shorten, visible

LARGEST = 100_000
KEPT_LINES = 200
# A name of 191 and a message of 480 characters fit; two hundred lines stay a small file.
LINE_LENGTH = 1000
# So many bytes hold that many lines; no more is read of a file that something else made larger.
MOST_READ = KEPT_LINES * (4 * LINE_LENGTH + 1)
# In seconds: how long a line may wait for those that follow at once.
BURST = 0.05


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
        """Return the newest lines, newest first: no more than are in the file's last 800 kB."""
        self.flush()
        try:
            descriptor = open_own(self.path, os.O_RDONLY)
            try:
                content = _read_end(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            return []
        return content.decode("utf-8", "replace").splitlines()[::-1][: max(0, lines)]

    def _append(self, lines: str) -> bool:
        try:
            descriptor = open_or_make(self.path, os.O_WRONLY | os.O_APPEND)
            try:
                # Locked, so that no line is written while another process shortens; and in one
                # write at the end, so that lines do not mix where the lock was not to be had.
                with locked(descriptor):
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

    def _shorten(self) -> None:
        # In place: appenders keep their file. A process that is killed between the two steps
        # leaves lines twice, none is lost.
        descriptor = open_own(self.path, os.O_RDWR)
        try:
            kept = b"".join(_read_end(descriptor).splitlines(keepends=True)[-KEPT_LINES:])
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.ftruncate(descriptor, os.write(descriptor, kept))
        finally:
            os.close(descriptor)


def _read_end(descriptor: int) -> bytes:
    """Read the whole lines at a file's end, or all of it where it is not too long."""
    start = max(0, os.fstat(descriptor).st_size - MOST_READ)
    os.lseek(descriptor, start, os.SEEK_SET)
    content = bytearray()
    while len(content) <= MOST_READ and (more := os.read(descriptor, MOST_READ)):
        content += more
    return bytes(content.partition(b"\n")[2] if start else content)


def _write_whole(descriptor: int, content: bytes) -> None:
    """Write all or nothing: of a part, on a disk that is full, the next line would go on."""
    before = os.fstat(descriptor).st_size
    if os.write(descriptor, content) < len(content):
        os.ftruncate(descriptor, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _line(when: datetime, name: str, what: str, ms: int | None, rest: str) -> str:
    took = "-" if ms is None else f"{ms} ms"
    line = f"[{when.isoformat(' ', 'seconds')[:19]}] {name}  {what}  {took}  {rest}"
    # A terminal that shows the file must not obey what a task's message says.
    return shorten(visible(" ".join(line.splitlines())), LINE_LENGTH) + "\n"
