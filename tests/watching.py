"""What an engine is asked: its statements and transactions, in order."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, event


@dataclass
class Watched:
    """Statements with their parameters, and how many transactions they were sent in.

    A statement on a connection in autocommit mode is a transaction of its own.
    """

    statements: list[str] = field(default_factory=list)
    parameters: list[Any] = field(default_factory=list)
    commits: int = 0

    @property
    def counted(self) -> tuple[int, int]:
        """The numbers of statements and of transactions."""
        return len(self.statements), self.commits

    def of(self, *words: str) -> list[str]:
        """Return the statements that hold all these words."""
        return [one for one in self.statements if all(word in one for word in words)]


@contextmanager
def watch(engine: Engine) -> Iterator[Watched]:
    """Watch what an engine is asked within this block, but for PRAGMA and what opens a file."""
    found = Watched()
    begun: set[int] = set()

    def note(*heard: Any) -> None:
        connection, statement, parameters = heard[0], heard[2], heard[3]
        if statement.startswith("PRAGMA"):
            return
        found.statements.append(statement)
        found.parameters.append(parameters)
        if connection.get_isolation_level() == "AUTOCOMMIT":
            found.commits += 1
        else:
            begun.add(id(connection))

    def end(connection: Connection) -> None:
        if id(connection) in begun:
            begun.discard(id(connection))
            found.commits += 1

    event.listen(engine, "before_cursor_execute", note)
    event.listen(engine, "commit", end)
    event.listen(engine, "rollback", end)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)
        event.remove(engine, "commit", end)
        event.remove(engine, "rollback", end)


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count the calls and returns of this thread's functions: what a time limit would guess at."""
    found = [0]

    def count(*_: object) -> None:
        found[0] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(before)
