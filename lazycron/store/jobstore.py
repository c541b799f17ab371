"""Jobs and once keys: each method a transaction of its own, or a part of the caller's."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from lazycron.store import history, jobs, once, sqlite
from lazycron.store.history import RunRecord
from lazycron.store.jobs import JobRow
from lazycron.store.once import OnceRow

# How long enqueueing and once keys wait for SQLite's write lock: a request may hold it itself.
PATIENCE_MS = 250


class JobStore:
    """What is asked of the database about jobs and once keys.

    A connection handed in is the caller's, and its transaction stays his.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def _joining(self, connection: Connection | None) -> Iterator[Connection]:
        if connection is not None:
            yield connection
            return
        if self._engine.dialect.name != "sqlite":
            with self._engine.begin() as own:
                yield own
            return
        with self._engine.connect() as own, sqlite.busy_timeout(own, PATIENCE_MS):
            yield own
            own.commit()

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
        with self._joining(connection) as joined:
            return jobs.add(joined, name=name, key=key, arguments=arguments, due=due, now=now)

    def replace_arguments(
        self, connection: Connection | None, job_id: int, key: str, arguments: str, due: datetime
    ) -> bool:
        """Give a waiting or running job other arguments; False if it has ended meanwhile."""
        with self._joining(connection) as joined:
            return jobs.replace_arguments(joined, job_id, key, arguments, due)

    def by_key(self, name: str, key: str, connection: Connection | None = None) -> JobRow | None:
        """Read the job that holds a key."""
        with self._joining(connection) as joined:
            return jobs.by_key(joined, name, key)

    def by_id(self, job_id: int) -> JobRow | None:
        """Read a job by its id."""
        with self._engine.connect() as connection:
            return jobs.by_id(connection, job_id)

    def listed(self, status: str | None, limit: int) -> list[JobRow]:
        """Read jobs of one status or of all, the first due first."""
        with self._engine.connect() as connection:
            return jobs.listed(connection, status, limit)

    def retry(self, job_id: int, key: str | None, now: datetime) -> bool:
        """Start a dead job anew; False if it is not dead, or if another has its key."""
        try:
            with self._engine.begin() as connection:
                return jobs.retry(connection, job_id, key, now)
        except IntegrityError:
            return False

    def discard(self, job_id: int, now: datetime) -> bool:
        """Delete a job's row unless it is running."""
        with self._engine.begin() as connection:
            return jobs.discard(connection, job_id, now)

    def last_run_of(self, job_id: int) -> RunRecord | None:
        """Read the newest run of a job, whose row may be gone."""
        with self._engine.connect() as connection:
            return history.newest_of_job(connection, job_id)

    def any_waiting(self, names: tuple[str, ...]) -> bool:
        """Tell whether any of these tasks has a job that may run."""
        with self._engine.connect() as connection:
            return jobs.any_waiting(connection, names)

    def counts(self) -> dict[str, dict[str, int]]:
        """Count each task's jobs by state."""
        with self._engine.connect() as connection:
            return jobs.counts(connection)

    # once keys

    def register_once(
        self,
        connection: Connection | None,
        key: str,
        task: str | None,
        now: datetime,
        expires: datetime | None,
    ) -> bool:
        """Register a once key before its effect; False where it is taken."""
        with self._joining(connection) as joined:
            return once.register(joined, key, task, now, expires)

    def refuse_once(self, connection: Connection | None, key: str) -> OnceRow | None:
        """Count a refusal and tell who has the key; None if it was given back meanwhile."""
        with self._joining(connection) as joined:
            return once.refuse(joined, key)

    def finish_once(self, connection: Connection | None, key: str, now: datetime) -> None:
        """Note that a once key's effect is finished."""
        with self._joining(connection) as joined:
            once.finish(joined, key, now)

    def give_back_once(self, connection: Connection | None, key: str) -> None:
        """Let a once key go whose effect has failed."""
        with self._joining(connection) as joined:
            once.give_back(joined, key)

    def prune_once(self, now: datetime) -> int:
        """Delete up to a thousand expired once keys."""
        with self._engine.begin() as connection:
            return once.prune(connection, now)

    def refused_once(self) -> dict[str | None, int]:
        """Count each task's refused once keys."""
        with self._engine.connect() as connection:
            return once.refused(connection)
