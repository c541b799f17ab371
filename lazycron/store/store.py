"""The store: one method for each thing done to the database, each in its own transaction."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from hashlib import sha256

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import DBAPIError

from lazycron.clock import EPOCH
from lazycron.model.settle import Claim, Settlement
from lazycron.schema import missing_tables
from lazycron.store import claims, history, recurring, settlements
from lazycron.store.claims import Stamp
from lazycron.store.dialects import sqlite
from lazycron.store.dialects.portable import Portable
from lazycron.store.driver.database import Database
from lazycron.store.driver.engine import shown
from lazycron.store.driver.faults import DatabaseError
from lazycron.store.driver.forks import close_before_forks
from lazycron.store.driver.replaced_file import OpenedFile
from lazycron.store.driver.sqlite_path import file_of
from lazycron.store.driver.transaction import Transactions
from lazycron.store.history import History
from lazycron.store.jobs import Jobs
from lazycron.store.joining import Joining
from lazycron.store.once import OnceKeys
from lazycron.store.probe import Probe
from lazycron.store.recurring import Recurring, TaskRow
from lazycron.store.settlements import Abandoned, Changed, Lost, Recorded
from lazycron.store.shared import READ_ONE as READ_SETTING
from lazycron.store.shared import Shared
from lazycron.store.statements import CLOCKS, DIALECTS, PLACES, Statements

# What a URL's query may hold that is not even hashed.
SECRET = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)


class Store:
    """All that lazycron asks of its database: what a tick asks here, the rest in its parts.

    Methods take and return plain values and raise the database's errors; `fault_of` says what one
    means. Between two calls no connection stays out of the pool, except the one that
    `Transactions` keeps on SQLite.
    """

    def __init__(self, engine: Engine, by: str, probe: Probe | None = None) -> None:
        self.engine = engine
        self.by = by
        self.probe = probe or Probe()
        self._file = OpenedFile(engine)
        self._begin = Transactions(engine)
        joining = Joining(engine)
        database = Database(engine)
        self.recurring = Recurring(database)
        self.jobs = Jobs(database, joining, self._begin)
        self.once = OnceKeys(database, joining, lambda: self.probe.is_alive)
        self.history = History(database, self._begin)
        self.shared = Shared(database)
        kind = DIALECTS.get(database.dialect, Portable)
        self._dialect = kind(self._begin.prepare)
        self._clock = CLOCKS.get(database.dialect)
        self._setting = self._begin.prepare(READ_SETTING)
        self._known = Statements(self._dialect, self._clock, {})
        if self.is_sqlite:
            close_before_forks(self)

    @contextmanager
    def probed(self, probe: Probe) -> Iterator[None]:
        """Work with another probe for the time of a block."""
        before, self.probe = self.probe, probe
        try:
            yield
        finally:
            self.probe = before

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is one file with one writer at a time."""
        return self.engine.dialect.name == "sqlite"

    @property
    def database(self) -> str:
        """The database's name: the absolute path of SQLite's file, else the URL without secrets."""
        url = self.engine.url
        if self.is_sqlite:
            return str(file_of(url).absolute())
        return shown(url.set(password=None))

    @property
    def identity(self) -> str:
        """What tells this database from others: its query may choose a host or a schema."""
        query = self.engine.url.query.items()
        chosen = [(name, value) for name, value in sorted(query) if not SECRET.search(name)]
        return f"{self.database}?{chosen}" if chosen and not self.is_sqlite else self.database

    def setting(self, name: str) -> str | None:
        """Read a setting that all hosts share, by the driver's own cursor: ticks ask for one."""
        with self._begin.reading() as begun:
            row = begun.one(self._setting, {"p_name": name})
        return None if row is None else str(row.value)

    def installation(self, installation_id: str) -> str:
        """Return what tells this installation's files from those of others, copies of it included.

        It is made from the id in its tables and from where the server says that the tables are.
        """
        if self.is_sqlite:
            place = self._file.number
        else:
            with self.engine.connect() as connection:
                place = connection.execute(PLACES[self.engine.dialect.name]).scalar()
        return sha256(f"{place} {installation_id}".encode()).hexdigest()[:16]

    def close(self) -> None:
        """Close the pool's connections."""
        self._begin.close()
        self.engine.dispose()

    def reopen_if_replaced(self) -> bool:
        """Close all connections if SQLite's file was replaced since it was opened; tell whether."""
        if not self._file.is_another():
            return False
        self.close()
        return True

    def know(self, leases: Mapping[str, timedelta]) -> None:
        """Learn the known tasks' names and leases; statements are built once for each set."""
        if not self._known.is_about(leases):
            self._known = Statements(self._dialect, self._clock, leases)

    def _claims_for(self, stamp: Stamp | None) -> Portable:
        return self._known.without(frozenset() if stamp is None else stamp.without).dialect

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the known tasks."""
        return self._known.all.claiming.names

    def has_tables(self) -> bool:
        """Tell whether lazycron's tables are all there."""
        return not self.missing_tables()

    def missing_tables(self) -> list[str]:
        """Return the names of lazycron's tables that are missing."""
        return missing_tables(self.engine)

    def advice(self) -> list[str]:
        """Return advice about the database's settings; empty if there is none."""
        if not self.is_sqlite:
            return []
        with self.engine.connect() as connection:
            return sqlite.advice(connection)

    # claims

    def claim(self, stamp: Stamp) -> Claim | None:
        """Claim the oldest due row of a known task."""

        def claim() -> Claim | None:
            with self._begin() as begun:
                return self._claims_for(stamp).claim(begun, stamp)

        return self._claimed(claim, stamp)

    def claim_by_name(self, name: str, stamp: Stamp) -> Claim | None:
        """Claim a task's recurring row, due or not; None where it is claimed already."""

        def claim() -> Claim | None:
            with self.engine.begin() as connection:
                return claims.claim_by_name(connection, self._known.all.claiming, stamp, name)

        return self._claimed(claim, stamp)

    def claim_job(self, name: str, stamp: Stamp) -> Claim | None:
        """Claim a task's oldest waiting job, due or not; None where there is none."""

        def claim() -> Claim | None:
            with self.engine.connect() as connection:
                found = claims.claim_job(connection, self._known.all.claiming, stamp, name)
                connection.commit()
                return found

        return self._claimed(claim, stamp)

    def _claimed(self, claim: Callable[[], Claim | None], stamp: Stamp) -> Claim | None:
        """Claim; where the database's answer was lost, look up what was claimed.

        Otherwise the row would wait for its lease's end and be recorded as lost without a run.
        """
        try:
            return claim()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            with suppress(DatabaseError), self.engine.connect() as connection:
                found = claims.claimed_under(connection, self._known.all.claiming, stamp)
                if found is not None:
                    return found
            raise

    def record(self, settlement: Settlement, then: Stamp | None) -> Recorded | Changed | Lost:
        """Write a settlement and its history row, and in the same commit claim the next row."""
        settlement = self.probe.recording(settlement)
        with self._begin() as begun:
            dialect = self._claims_for(then)
            recorded = dialect.record(begun, settlement, self.by, then)
            if recorded is not None:
                return recorded
        values = {"p_id": settlement.claim.id, "p_token": settlement.claim.token}
        with self.engine.connect() as connection:
            row = connection.execute(settlements.STILL_OURS, values).one_or_none()
        return Lost() if row is None else Changed(row.schedule_now, row.asked_again)

    def recorded_unanswered(self, settlement: Settlement, then: Stamp | None) -> Recorded | None:
        """Return what an attempt to record did when its answer was lost; None for nothing.

        One commit wrote the settlement and claimed the next row, so either proves the other.
        """
        with self.engine.connect() as connection:
            claimed = (
                claims.claimed_under(connection, self._known.all.claiming, then) if then else None
            )
            if claimed or history.is_stored(connection, settlement, self.by):
                return Recorded(claimed)
        return None

    def renew(self, claim: Claim, until: datetime) -> bool:
        """Move the end of a claim's lease; False where the claim is no longer ours."""
        values = {"p_id": claim.id, "p_token": claim.token, "p_lease": until}
        with self._unwaiting() as connection:
            renewed = connection.execute(claims.RENEW, values).rowcount == 1
            connection.commit()
            return renewed

    def checkpoint(
        self,
        claim: Claim,
        progress: str,
        done: int | None,
        total: int | None,
        until: datetime | None,
    ) -> bool:
        """Store a run's progress; False where the claim is no longer ours.

        The lease is renewed too, unless `until` is None: past a time-out it is left to run out.
        """
        values = {
            "p_id": claim.id,
            "p_token": claim.token,
            "p_renews": until is not None,
            "p_lease": until,
            "p_progress": progress,
            "p_done": done,
            "p_total": total,
        }
        with self.engine.begin() as connection:
            is_ours = connection.execute(claims.CHECKPOINT, values).rowcount == 1
        self.probe.checkpointed()
        return is_ours

    def abandoned(self, now: datetime, floor: datetime) -> list[Abandoned]:
        """Read the known tasks' claims whose lease has ended."""
        with self._begin.reading() as begun:
            found = begun.all(self._known.all.abandoned, {"p_now": now, "p_floor": floor})
        return [settlements.to_abandoned(row) for row in found]

    def write_lock_is_free(self) -> bool:
        """Tell whether SQLite's write lock can be had without waiting; True on the servers."""
        if not self.is_sqlite:
            return True
        with self._unwaiting() as connection:
            sqlite.take_write_lock(connection)
        return True

    def bury(self, settlement: Settlement, by: str, now: datetime) -> bool:
        """Take an expired claim of `by` off its row; False if it was renewed meanwhile."""
        with self._unwaiting() as connection:
            buried = self._dialect.bury(self._begin.on(connection), settlement, by, now)
            connection.commit()
            return buried

    def claim_of(self, name: str) -> Abandoned | None:
        """Read who holds a task's recurring row; None where it is free."""
        with self.engine.connect() as connection:
            row = connection.execute(settlements.CLAIM_OF, {"p_name": name}).one_or_none()
        return None if row is None else settlements.to_abandoned(row)

    def release(self, settlement: Settlement, by: str) -> bool:
        """Take a claim of `by` off its row; False if it was no longer there."""
        with self._begin() as begun:
            return self._dialect.release(begun, settlement, by)

    def next_due(
        self, floor: datetime = EPOCH, without: frozenset[str] = frozenset()
    ) -> tuple[datetime | None, datetime | None]:
        """Return when a known row is next due or a lease ends, and the time of the server's clock.

        That time is None on SQLite, which has no clock. `without` leaves names out.
        """
        with self._begin.reading() as begun:
            row = begun.one(self._known.without(without).next_due, {"p_floor": floor})
        if row is None:
            return None, None
        return row[0], row[1] if len(row) > 1 else None

    def server_now(self) -> datetime | None:
        """Return what the server's clock shows; None on SQLite."""
        if self._clock is None:
            return None
        with self.engine.connect() as connection:
            return connection.execute(select(self._clock)).scalar()

    def known_rows(self) -> list[TaskRow]:
        """Read the recurring rows of known tasks."""
        with self._begin.reading() as begun:
            found = begun.all(self._known.all.known_rows, {})
        return [recurring.to_row(row) for row in found]

    @contextmanager
    def _unwaiting(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            if not self.is_sqlite:
                yield connection
                return
            with sqlite.busy_timeout(connection, 0):
                yield connection
