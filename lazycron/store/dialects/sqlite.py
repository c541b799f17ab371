"""SQLite: one UPDATE … RETURNING; every transaction must begin with a write, and this is it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Select, update

from lazycron.model.settle import Claim
from lazycron.schema import scheduled_task as t
from lazycron.store.claims import CLAIMED_COLUMNS, Stamp
from lazycron.store.dialects.portable import Portable
from lazycron.store.driver.prepared import Prepared
from lazycron.store.driver.transaction import Transaction

LEAST_BUSY_TIMEOUT_MS = 1000


class SQLite(Portable):
    """Updates the row whose id the subselect finds, and returns it."""

    def _build_claims(self) -> None:
        self._take_one = self._taking(self.claiming.first_due(t.c.id))
        self._take_recurring = self._taking(self.claiming.first_recurring(t.c.id))

    def _taking(self, oldest: Select[Any]) -> Prepared:
        take = update(t).where(t.c.id == oldest.scalar_subquery()).values(self.claiming.stamps)
        return self.prepare(take.returning(*CLAIMED_COLUMNS))

    def claim(self, transaction: Transaction, stamp: Stamp) -> Claim | None:
        """Claim the oldest due row, or return None."""
        take = self._take_recurring if stamp.recurring else self._take_one
        row = transaction.one(take, self.claiming.values(stamp))
        return None if row is None else self.claiming.to_claim(row, stamp, attempt=row.attempts)


@contextmanager
def busy_timeout(connection: Connection, milliseconds: int) -> Iterator[None]:
    """Within this block, wait no longer than this for the file's lock."""
    before = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(milliseconds)}")
    try:
        yield
    finally:
        connection.rollback()
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(before)}")


def take_write_lock(connection: Connection) -> None:
    """Begin a transaction that holds the file's write lock from its start."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def advice(connection: Connection) -> list[str]:
    """Return advice for a file that requests and tasks write at the same time."""
    found = []
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if mode != "wal":
        found.append(f"journal_mode is {mode}; with WAL readers do not wait for writers")
    timeout = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    if timeout < LEAST_BUSY_TIMEOUT_MS:
        found.append(f"busy_timeout is {timeout} ms; with 5000 a writer waits for its turn")
    return found
