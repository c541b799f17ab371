"""Jobs: their rows made, found, changed and ended, each guarded by what was seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    not_,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.dml import ReturningInsert

from lazycron.durations import MICROSECOND
from lazycron.model.settle import RECURRING, State
from lazycron.schema import HAS_KEY, NAME_LENGTH, UTCDateTime, lazycron_setting
from lazycron.schema import scheduled_task as t
from lazycron.store.claims import is_known
from lazycron.store.driver.database import Database
from lazycron.store.driver.prepared import AnyRow
from lazycron.store.driver.transaction import Transactions
from lazycron.store.joining import Joining, unless_deadlocked
from lazycron.store.replacing import DISCARD, IS_JOB, REPLACE, REPLACE_WAITING
from lazycron.store.settlements import CLAIM_OF_JOB, Abandoned, to_abandoned

COLUMNS = (
    t.c.id,
    t.c.name,
    t.c.key,
    t.c.arguments,
    t.c.state,
    t.c.next_run_at,
    t.c.scheduled_for,
    t.c.lock_token,
    t.c.locked_by,
    t.c.last_run_at,
    t.c.attempts,
    t.c.failures,
    t.c.last_message,
    t.c.progress,
    t.c.progress_done,
    t.c.progress_total,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job's row as it stands in the table."""

    id: int
    name: str
    key: str | None
    arguments: str | None
    state: str
    next_run_at: datetime
    scheduled_for: datetime
    lock_token: str | None
    locked_by: str | None
    last_run_at: datetime | None
    attempts: int
    failures: int
    last_message: str | None
    progress: str | None
    progress_done: int | None
    progress_total: int | None


# A task without a schedule has no row of its own: a setting says that its jobs are held back. Read
# by the statement that makes or revives a job, it holds back those to come.
HELD, LET_GO = "held", "let go"
IS_LET_GO = not_(
    exists(
        select(lazycron_setting.c.name).where(
            lazycron_setting.c.name == bindparam("p_held"), lazycron_setting.c.value == HELD
        )
    )
)


def hold_setting(name: str) -> str:
    """Return the name of the setting that holds back a task's jobs; it has to fit its column."""
    plain = f"hold {name}"
    return plain if len(plain) <= NAME_LENGTH else f"hold {sha256(name.encode()).hexdigest()}"


VALUES = {
    "name": bindparam("p_name"),
    "key": bindparam("p_key"),
    "arguments": bindparam("p_arguments"),
    "enabled": IS_LET_GO,
    "next_run_at": bindparam("p_due", type_=UTCDateTime),
    "scheduled_for": bindparam("p_due", type_=UTCDateTime),
    "created_at": bindparam("p_now", type_=UTCDateTime),
}
INSERT = insert(t).values(VALUES)
# A unique key that is taken must not end the caller's transaction, as an error would.
INSERT_UNLESS_TAKEN: Mapping[str, ReturningInsert[int]] = {
    "postgresql": postgresql.insert(t)
    .values(VALUES)
    .on_conflict_do_nothing(index_elements=["name", "key"], index_where=HAS_KEY)
    .returning(t.c.id),
    "sqlite": sqlite.insert(t)
    .values(VALUES)
    .on_conflict_do_nothing(index_elements=["name", "key"], index_where=HAS_KEY)
    .returning(t.c.id),
}


BY_ID = select(*COLUMNS).where(t.c.id == bindparam("p_id"), IS_JOB)
BY_KEY = select(*COLUMNS).where(t.c.name == bindparam("p_name"), t.c.key == bindparam("p_key"))

# It reads past the snapshot of the caller's transaction: on MariaDB and MySQL the snapshot may be
# older than the row with which the INSERT has just collided.
BY_KEY_AS_IT_IS = BY_KEY.with_for_update(read=True)
MYSQLS = ("mariadb", "mysql")


WAITING = and_(t.c.state == State.ACTIVE, t.c.lock_token.is_(null()))
RUNNING = and_(t.c.state == State.ACTIVE, t.c.lock_token.is_not(null()))
DEAD = t.c.state == State.DEAD
STATES = {"waiting": WAITING, "running": RUNNING, "dead": DEAD}
# Running ones too: a run goes on to its end, and what it leaves waits.
HOLD = (
    update(t)
    .where(t.c.name == bindparam("p_name"), IS_JOB, t.c.state == State.ACTIVE)
    .values(enabled=bindparam("p_enabled"))
)


RETRY = (
    update(t)
    .where(t.c.id == bindparam("p_id"), DEAD, IS_JOB)
    .values(
        state=State.ACTIVE,
        enabled=IS_LET_GO,
        key=bindparam("p_key"),
        next_run_at=bindparam("p_now", type_=UTCDateTime),
        attempts=0,
        failures=0,
        losses=0,
    )
)


def select_any_due(names: Sequence[str]) -> Select[bool]:
    """Select whether a known task has a job that is due: a range of the due index."""
    due = select(t.c.id).where(
        t.c.enabled == true(),
        t.c.next_run_at <= bindparam("p_now", type_=UTCDateTime),
        t.c.next_run_at >= bindparam("p_floor", type_=UTCDateTime),
        is_known(names),
        or_(t.c.key.is_(null()), t.c.key > RECURRING),
    )
    return select(exists(due))


IS_RUNNING = case((t.c.lock_token.is_not(null()), 1), else_=0)
COUNTS = (
    select(
        t.c.name,
        t.c.state,
        IS_RUNNING,
        func.count(),
        func.min(t.c.next_run_at),
        func.min(t.c.last_run_at),
    )
    .where(IS_JOB)
    .group_by(t.c.name, t.c.state, IS_RUNNING)
)
# For each task whose jobs have progress: the row that is running, else the oldest.
FURTHEST = (
    select(t.c.name, t.c.progress, t.c.progress_done, t.c.progress_total)
    .where(IS_JOB, t.c.state == State.ACTIVE, t.c.progress.is_not(null()))
    .order_by(t.c.name, IS_RUNNING.desc(), t.c.id)
)


@dataclass(slots=True, kw_only=True)
class JobCounts:
    """How many of a task's jobs wait, run and are dead.

    `next` is when the first of those waiting is due, `began` when the first of those running began,
    and `lease_until` the end of the lease that ends first. `progress`, a JSON text, is that of a
    running job, else of the oldest that has any.
    """

    waiting: int = 0
    running: int = 0
    dead: int = 0
    next: datetime | None = None
    began: datetime | None = None
    lease_until: datetime | None = None
    progress: str | None = None
    progress_done: int | None = None
    progress_total: int | None = None


# Enough for a person to begin with; the counts have the rest.
MOST_IN_TROUBLE = 100
IN_TROUBLE = (
    select(*COLUMNS)
    .where(
        IS_JOB,
        or_(
            DEAD,
            t.c.lock_token.is_not(null()),
            t.c.failures >= bindparam("p_failures", type_=t.c.failures.type),
            t.c.next_run_at < bindparam("p_before", type_=UTCDateTime),
        ),
    )
    .order_by(IS_RUNNING.desc(), t.c.state, t.c.id)
    .limit(MOST_IN_TROUBLE)
)
RUNNING_OF = (
    select(*COLUMNS).where(t.c.name == bindparam("p_name"), IS_JOB, RUNNING).order_by(t.c.id)
)


def _to_job(row: AnyRow) -> JobRow:
    return JobRow(**row._asdict())


class Jobs:
    """Jobs outside of a run; each method is a transaction, or a part of the caller's connection."""

    def __init__(self, database: Database, joining: Joining, begin: Transactions) -> None:
        self._database = database
        self._joining = joining
        self._begin = begin
        statement = INSERT_UNLESS_TAKEN.get(database.dialect)
        self._insert_unless_taken = None if statement is None else self._begin.prepare(statement)

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
        """Insert a job's row and return its id; None where its key is taken.

        Where another open transaction has the key, this waits for its end; on SQLite it waits for
        every writer, as long as the engine's timeout.
        """
        values = {
            "p_name": name,
            "p_key": key,
            "p_arguments": arguments,
            "p_due": due,
            "p_now": now,
            "p_held": hold_setting(name),
        }
        statement = INSERT_UNLESS_TAKEN.get(self._database.dialect)

        def add(joined: Connection) -> int | None:
            if statement is not None:
                return joined.execute(statement, values).scalar()
            try:
                # On MariaDB and MySQL a duplicate key ends the statement, not the transaction.
                made = joined.execute(INSERT, values).inserted_primary_key
            except IntegrityError:
                return None
            return None if made is None else int(made[0])

        prepared = self._insert_unless_taken
        if connection is not None or prepared is None:
            return self._joining(connection, add)

        def add_alone() -> int | None:
            with self._begin() as begun:
                row = begun.one(prepared, values)
            return None if row is None else int(row.id)

        return unless_deadlocked(add_alone)

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
        now: datetime,
    ) -> bool:
        """Give a job other arguments, if it is still claimed under this token, or waits (None).

        `seen` is what it was scheduled for when it was read. The new arguments get a later nominal
        time than any before, whenever they are due, and so another idempotency key.
        """
        values: dict[str, object] = {
            "p_seen": seen,
            "p_scheduled_for": max(due, seen + MICROSECOND),
            "p_id": job_id,
            "p_key": key,
            "p_token": token or "",
            "p_arguments": arguments,
            "p_due": due,
        }

        def replace(joined: Connection) -> bool:
            if token is None:
                return REPLACE_WAITING(joined, values, now) == 1
            return joined.execute(REPLACE, values).rowcount == 1

        def alone() -> bool:
            with self._database.several() as own:
                return replace(own)

        return (
            unless_deadlocked(alone) if connection is None else self._joining(connection, replace)
        )

    def by_key(self, name: str, key: str, connection: Connection | None = None) -> JobRow | None:
        """Read the job that holds a key."""
        as_it_is = connection is not None and self._database.dialect in MYSQLS
        query = BY_KEY_AS_IT_IS if as_it_is else BY_KEY

        def read(joined: Connection) -> JobRow | None:
            row = joined.execute(query, {"p_name": name, "p_key": key}).one_or_none()
            return None if row is None else _to_job(row)

        return self._joining(connection, read)

    def by_id(self, job_id: int) -> JobRow | None:
        """Read a job by its id."""
        row = self._database.row(BY_ID, {"p_id": job_id})
        return None if row is None else _to_job(row)

    def claim_of(self, job_id: int) -> Abandoned | None:
        """Read who holds a job's row; None where it is free."""
        row = self._database.row(CLAIM_OF_JOB, {"p_id": job_id})
        return None if row is None else to_abandoned(row)

    def listed(self, status: str | None, limit: int) -> list[JobRow]:
        """Read jobs of one status or of all, the first due first."""
        query = select(*COLUMNS).where(IS_JOB).order_by(t.c.next_run_at, t.c.id).limit(limit)
        if status is not None:
            query = query.where(STATES[status])
        return [_to_job(row) for row in self._database.rows(query)]

    def retry(self, job_id: int, name: str, key: str | None, now: datetime) -> bool | None:
        """Make a dead job due with all attempts; False if not dead, None if its key is taken."""
        try:
            values = {"p_id": job_id, "p_key": key, "p_now": now, "p_held": hold_setting(name)}
            return self._database.write(RETRY, values) == 1
        except IntegrityError:
            return None

    def hold(self, name: str, *, enabled: bool) -> None:
        """Hold back a task's jobs, or let them go; the setting for those to come stands first."""
        self._database.write(HOLD, {"p_name": name, "p_enabled": enabled})

    def discard(self, job_id: int, now: datetime) -> bool:
        """Delete a job's row unless it is running; False where nothing was deleted."""
        with self._database.several() as connection:
            return DISCARD(connection, {"p_id": job_id, "p_now": now}, now) == 1

    def any_due(self, names: Sequence[str], now: datetime, floor: datetime) -> bool:
        """Tell whether any of these tasks has a job that is due; before `floor` all is unknown."""
        row = self._database.row(select_any_due(names), {"p_now": now, "p_floor": floor})
        return row is not None and bool(row[0])

    def in_trouble(self, failures: int, before: datetime) -> list[JobRow]:
        """Read jobs that may need a person: dead, running, failed so often, or due before then."""
        values = {"p_failures": failures, "p_before": before}
        return [_to_job(row) for row in self._database.rows(IN_TROUBLE, values)]

    def running_of(self, name: str) -> list[JobRow]:
        """Read a task's running jobs."""
        return [_to_job(row) for row in self._database.rows(RUNNING_OF, {"p_name": name})]

    def counts(self) -> dict[str, JobCounts]:
        """Count each task's jobs by what they are doing."""
        found: dict[str, JobCounts] = {}
        for name, state, running, number, first, began in self._database.rows(COUNTS):
            counted = found.setdefault(name, JobCounts())
            if state == State.DEAD:
                counted.dead += number
            elif running:
                counted.running += number
                counted.began, counted.lease_until = began, first
            else:
                counted.waiting += number
                counted.next = first
        for name, progress, done, total in self._database.rows(FURTHEST):
            counted = found.setdefault(name, JobCounts())
            if counted.progress is None:
                counted.progress = progress
                counted.progress_done, counted.progress_total = done, total
        return found
