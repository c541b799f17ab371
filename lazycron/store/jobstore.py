"""Jobs and once keys: each method a transaction of its own, or a part of the caller's."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from lazycron.store import counted, history, jobs, once, settlements
from lazycron.store.counted import Counted
from lazycron.store.driver.engine import hasty_engine
from lazycron.store.driver.faults import DatabaseError, is_deadlock
from lazycron.store.driver.transaction import Transactions
from lazycron.store.history import RunRecord
from lazycron.store.jobs import JobCounts, JobRow
from lazycron.store.once import OnceRow
from lazycron.store.settlements import Abandoned

# How often a statement that lost a deadlock is sent again.
DEADLOCKS = 20

T = TypeVar("T")


class JobStore:
    """What is asked of the database about jobs and once keys.

    A connection handed in is the caller's, and its transaction stays his. On SQLite what a request
    asks for goes by connections that wait a quarter of a second for the file's write lock, which
    the request may hold itself.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._hasty = hasty_engine(engine) if self._is_sqlite else engine
        self._begin = Transactions(self._hasty)

    def close(self) -> None:
        """Close the connections that are this part's own."""
        self._begin.close()
        if self._is_sqlite:
            self._hasty.dispose()

    @contextmanager
    def _joining(
        self, connection: Connection | None, *, hastily: bool = True
    ) -> Iterator[Connection]:
        if connection is not None:
            yield connection
            return
        with (self._hasty if hastily else self._engine).begin() as own:
            yield own

    def _unless_deadlocked(self, connection: Connection | None, act: Callable[[], T]) -> T:
        """Do something again that lost a deadlock, unless it is a part of the caller's transaction.

        On MariaDB and MySQL two inserts of one key that wait for the same row to go may deadlock.
        """
        for _ in range(DEADLOCKS):
            try:
                return act()
            except DatabaseError as error:
                if connection is not None or not is_deadlock(error):
                    raise
        return act()

    def add(
        self,
        connection: Connection | None,
        *,
        name: str,
        key: str | None,
        arguments: str,
        due: datetime,
        now: datetime,
    ) -> int | None:
        """Insert a job's row and return its id; None where its key is taken."""
        values = jobs.values(name=name, key=key, arguments=arguments, due=due, now=now)
        statement = jobs.INSERT_UNLESS_TAKEN.get(self._engine.dialect.name)

        def insert() -> int | None:
            if connection is None and statement is not None:
                with self._begin() as begun:
                    return jobs.make(begun, statement, values)
            with self._joining(connection) as joined:
                return jobs.add(joined, values)

        return self._unless_deadlocked(connection, insert)

    def replace_arguments(
        self,
        connection: Connection | None,
        job_id: int,
        key: str,
        *,
        token: str | None,
        seen: datetime,
        arguments: str,
        due: datetime,
    ) -> bool:
        """Give a job other arguments, if it is still claimed under this token, or waits (None).

        `seen` is what it was scheduled for when it was looked at.
        """

        def change() -> bool:
            with self._joining(connection) as joined:
                return jobs.replace_arguments(
                    joined, job_id, key, token=token, seen=seen, arguments=arguments, due=due
                )

        return self._unless_deadlocked(connection, change)

    def by_key(self, name: str, key: str, connection: Connection | None = None) -> JobRow | None:
        """Read the job that holds a key."""
        with self._joining(connection) as joined:
            return jobs.by_key(joined, name, key, as_it_is=connection is not None)

    def by_id(self, job_id: int) -> JobRow | None:
        """Read a job by its id."""
        with self._engine.connect() as connection:
            return jobs.by_id(connection, job_id)

    def claim_of(self, job_id: int) -> Abandoned | None:
        """Read who holds a job's row, if anybody does."""
        with self._engine.connect() as connection:
            row = connection.execute(settlements.CLAIM_OF_JOB, {"p_id": job_id}).one_or_none()
        return None if row is None else settlements.to_abandoned(row)

    def listed(self, status: str | None, limit: int) -> list[JobRow]:
        """Read jobs of one status or of all, the first due first."""
        with self._engine.connect() as connection:
            return jobs.listed(connection, status, limit)

    def retry(self, job_id: int, key: str | None, now: datetime) -> bool | None:
        """Start a dead job anew; False if it is not dead, None if another has its key."""
        try:
            with self._engine.begin() as connection:
                return jobs.retry(connection, job_id, key, now)
        except IntegrityError:
            return None

    def discard(self, job_id: int, now: datetime) -> bool:
        """Delete a job's row unless it is running."""
        with self._engine.begin() as connection:
            return jobs.discard(connection, job_id, now)

    def last_run_of(self, job_id: int) -> RunRecord | None:
        """Read the newest run of a job, whose row may be gone."""
        with self._engine.connect() as connection:
            return history.newest_of_job(connection, job_id)

    def any_due(self, names: Sequence[str], now: datetime, floor: datetime) -> bool:
        """Tell whether any of these tasks has a job that is due; before `floor` all is unknown."""
        with self._engine.connect() as connection:
            return jobs.any_due(connection, names, now, floor)

    def counts(self) -> dict[str, JobCounts]:
        """Count each task's jobs by what they are doing."""
        with self._engine.connect() as connection:
            return jobs.counts(connection)

    def counted(self, names: Sequence[str]) -> dict[str, Counted]:
        """Count what the history still holds of tasks that have no row of their own."""
        with self._engine.connect() as connection:
            return counted.counted(connection, names)

    # once keys

    def register_once(
        self,
        connection: Connection | None,
        key: str,
        task: str | None,
        now: datetime,
        expires: datetime | None,
    ) -> bool:
        """Register a once key before its effect; False where it is taken.

        A task's run, for which nobody waits, waits for SQLite's write lock as long as need be.
        """

        def register() -> bool:
            with self._joining(connection, hastily=task is None) as joined:
                return once.register(joined, key, task, now, expires)

        return self._unless_deadlocked(connection, register)

    def refuse_once(self, connection: Connection | None, key: str) -> OnceRow | None:
        """Count a refusal and tell who has the key; None if it was given back meanwhile."""

        def refuse() -> OnceRow | None:
            with self._joining(connection, hastily=False) as joined:
                return once.refuse(joined, key)

        return self._unless_deadlocked(connection, refuse)

    def finish_once(
        self, connection: Connection | None, key: str, created_at: datetime, now: datetime
    ) -> None:
        """Note that the effect of a once key registered at that moment is finished."""
        with self._joining(connection, hastily=False) as joined:
            once.finish(joined, key, created_at, now)

    def give_back_once(self, connection: Connection | None, key: str, created_at: datetime) -> None:
        """Let a once key go that was registered at that moment, and whose effect has failed."""
        with self._joining(connection, hastily=False) as joined:
            once.give_back(joined, key, created_at)

    def prune_once(self, now: datetime) -> int:
        """Delete up to a thousand expired once keys."""
        with self._engine.begin() as connection:
            return once.prune(connection, now)

    def refused_once(self) -> dict[str | None, int]:
        """Count each task's refused once keys."""
        with self._engine.connect() as connection:
            return once.refused(connection)
