"""The text log beside the state file: one line a run, for the day the bookkeeping failed."""

import os
from datetime import datetime
from pathlib import Path

LARGEST = 100_000
KEPT_LINES = 200


class LogFile:
    """Appends lines, shortens itself, and never lets an error of its own out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None

    def note(self, when: datetime, name: str, what: str, ms: int | None, rest: str) -> None:
        """Append a line such as `[2026-11-30 03:00:07] nightly  ok  412 ms  traffic  Done.`."""
        took = "-" if ms is None else f"{ms} ms"
        line = f"[{when:%Y-%m-%d %H:%M:%S}] {name}  {what}  {took}  {rest}"
        self._append(" ".join(line.split("\n")) + "\n")

    def tail(self, lines: int) -> list[str]:
        """Return the newest lines, newest first."""
        try:
            text = self.path.read_text("utf-8", "replace")
        except OSError:
            return []
        return text.splitlines()[::-1][:lines]

    def _append(self, line: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # One write to a descriptor opened for appending: lines of several processes never mix.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.write(descriptor, line.encode("utf-8", "replace"))
                large = os.fstat(descriptor).st_size > LARGEST
            finally:
                os.close(descriptor)
            if large:
                self._shorten()
            self.problem = None
        except OSError as error:
            self.problem = f"log file {self.path}: {error.strerror or error}"

    def _shorten(self) -> None:
        kept = self.path.read_text("utf-8", "replace").splitlines(keepends=True)[-KEPT_LINES:]
        # Long lines could keep the file above its bound for ever.
        while len(kept) > 1 and sum(map(len, kept)) > LARGEST:
            kept = kept[len(kept) // 2 :]
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        beside.write_text("".join(kept), "utf-8")
        beside.replace(self.path)
