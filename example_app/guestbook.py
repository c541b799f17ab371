"""The guestbook's storage: two small tables of its own, in the same SQLite file as lazycron's."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

TABLES = """
CREATE TABLE IF NOT EXISTS entry (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL, written_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS note (name TEXT PRIMARY KEY, text TEXT NOT NULL);
"""
LONGEST_NAME = 60
LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """What one visitor has written."""

    name: str
    text: str
    written_at: datetime


class Guestbook:
    """Entries, and notes that outlive a restart. Blocking: call it from a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=5)) as connection, connection:
            connection.executescript(TABLES)
            yield connection

    def sign(self, name: str, text: str, now: datetime) -> None:
        """Add an entry; ValueError where a field is empty, and what is too long is cut."""
        name, text = name.strip()[:LONGEST_NAME], text.strip()[:LONGEST_TEXT]
        if not name or not text:
            message = "an entry needs a name and a message"
            raise ValueError(message)
        with self._open() as connection:
            connection.execute(
                "INSERT INTO entry (name, text, written_at) VALUES (?, ?, ?)",
                (name, text, now.isoformat(timespec="seconds")),
            )

    def newest(self, limit: int = 20) -> list[Entry]:
        """Return the newest entries, newest first."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT name, text, written_at FROM entry ORDER BY id DESC LIMIT ?", (limit,)
            )
            return [Entry(name, text, datetime.fromisoformat(at)) for name, text, at in rows]

    def count(self) -> tuple[int, int]:
        """Count the entries, and the names they are signed with."""
        with self._open() as connection:
            row = connection.execute("SELECT count(*), count(DISTINCT name) FROM entry").fetchone()
            return int(row[0]), int(row[1])

    def remove_before(self, moment: datetime) -> int:
        """Delete the entries written before a moment; return how many went."""
        with self._open() as connection:
            return connection.execute(
                "DELETE FROM entry WHERE written_at < ?", (moment.isoformat(timespec="seconds"),)
            ).rowcount

    def note(self, name: str, text: str) -> None:
        """Keep a note under a name, in place of the last one."""
        with self._open() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO note (name, text) VALUES (?, ?)", (name, text)
            )

    def noted(self, name: str, default: str = "") -> str:
        """Return the note kept under a name."""
        with self._open() as connection:
            row = connection.execute("SELECT text FROM note WHERE name = ?", (name,)).fetchone()
            return default if row is None else str(row[0])
