"""The guestbook's storage: small tables of its own, in the same SQLite file as lazycron's."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

TABLES = """
CREATE TABLE IF NOT EXISTS entry (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL, written_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS word (
    word TEXT NOT NULL, entry INTEGER NOT NULL, PRIMARY KEY (word, entry)
);
CREATE TABLE IF NOT EXISTS note (name TEXT PRIMARY KEY, text TEXT NOT NULL);
"""
SELECT = "SELECT id, name, text, written_at FROM entry "
LONGEST_NAME = 60
LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """What one visitor has written."""

    id: int
    name: str
    text: str
    written_at: datetime


def words_of(text: str) -> set[str]:
    """Return a text's words, in small letters."""
    return set(re.findall(r"\w+", text.lower()))


class Guestbook:
    """Entries, and notes that outlive a restart. Blocking: call it from a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=5)) as connection, connection:
            connection.executescript(TABLES)
            yield connection

    def sign(self, name: str, text: str, now: datetime) -> int:
        """Add an entry and return its number; ValueError where a field is empty.

        Texts that are too long are cut.
        """
        name, text = name.strip()[:LONGEST_NAME], text.strip()[:LONGEST_TEXT]
        if not name or not text:
            message = "an entry needs a name and a message"
            raise ValueError(message)
        with self._open() as connection:
            row = connection.execute(
                "INSERT INTO entry (name, text, written_at) VALUES (?, ?, ?) RETURNING id",
                (name, text, now.isoformat(timespec="seconds")),
            ).fetchone()
            return int(row[0])

    def newest(self, limit: int = 20) -> list[Entry]:
        """Return the newest entries, newest first."""
        return self._entries("ORDER BY id DESC LIMIT ?", limit)

    def entry(self, number: int) -> Entry | None:
        """Return one entry, if it still exists."""
        return next(iter(self._entries("WHERE id = ?", number)), None)

    def after(self, number: int, limit: int) -> list[Entry]:
        """Return the first entries after one, oldest first."""
        return self._entries("WHERE id > ? ORDER BY id LIMIT ?", number, limit)

    def _entries(self, which: str, *values: int | str) -> list[Entry]:
        with self._open() as connection:
            rows = connection.execute(SELECT + which, values)
            return [Entry(n, name, text, datetime.fromisoformat(at)) for n, name, text, at in rows]

    def clear_index(self) -> None:
        """Delete every word."""
        with self._open() as connection:
            connection.execute("DELETE FROM word")

    def index(self, entries: Sequence[Entry]) -> None:
        """Note the words of some entries; noting them twice does no harm."""
        pairs = [(word, entry.id) for entry in entries for word in words_of(entry.text)]
        with self._open() as connection:
            connection.executemany("INSERT OR IGNORE INTO word (word, entry) VALUES (?, ?)", pairs)

    def search(self, word: str) -> list[Entry]:
        """Return the entries that have a word, newest first, as far as the index knows."""
        which = "WHERE id IN (SELECT entry FROM word WHERE word = ?) ORDER BY id DESC"
        return self._entries(which, word.strip().lower())

    def count(self) -> tuple[int, int]:
        """Count the entries, and the names they are signed with."""
        with self._open() as connection:
            row = connection.execute("SELECT count(*), count(DISTINCT name) FROM entry").fetchone()
            return int(row[0]), int(row[1])

    def remove_before(self, moment: datetime) -> int:
        """Delete the entries written before a moment; return how many were deleted."""
        with self._open() as connection:
            return connection.execute(
                "DELETE FROM entry WHERE written_at < ?", (moment.isoformat(timespec="seconds"),)
            ).rowcount

    def note(self, name: str, text: str) -> None:
        """Keep a note under a name, instead of the last one."""
        with self._open() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO note (name, text) VALUES (?, ?)", (name, text)
            )

    def noted(self, name: str, default: str = "") -> str:
        """Return the note kept under a name."""
        with self._open() as connection:
            row = connection.execute("SELECT text FROM note WHERE name = ?", (name,)).fetchone()
            return default if row is None else str(row[0])
