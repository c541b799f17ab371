"""Jobs: their rows made, found, changed and ended, each guarded by what was seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
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
from lazycron.schema import HAS_KEY, UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store.claims import is_known
from lazycron.store.driver.transaction import Transaction

IS_JOB = or_(t.c.key.is_(null()), t.c.key != RECURRING)
COLUMNS = (
    t.c.id,
    t.c.name,
    t.c.key,
    t.c.arguments,
    t.c.state,
    t.c.next_run_at,
    t.c.scheduled_for,
    t.c.lock_token,
    t.c.attempts,
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
    attempts: int
    last_message: str | None
    progress: str | None
    progress_done: int | None
    progress_total: int | None


VALUES = {
    "name": bindparam("p_name"),
    "key": bindparam("p_key"),
    "arguments": bindparam("p_arguments"),
    "enabled": true(),
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


def values(
    *, name: str, key: str | None, arguments: str, due: datetime, now: datetime
) -> dict[str, Any]:
    """Return the parameters of the INSERTs."""
    return {
        "p_name": name,
        "p_key": key,
        "p_arguments": arguments,
        "p_due": due,
        "p_now": now,
    }


def make(
    transaction: Transaction, statement: ReturningInsert[int], values: Mapping[str, Any]
) -> int | None:
    """Insert a job's row by one of INSERT_UNLESS_TAKEN, and return its id; None: a taken key."""
    row = transaction.one(statement, values)
    return None if row is None else int(row.id)


def add(connection: Connection, values: Mapping[str, Any]) -> int | None:
    """Insert a job's row by a connection that may not be ours; return its id; None: a taken key.

    A key in somebody's open transaction is waited for until that has ended.
    """
    statement = INSERT_UNLESS_TAKEN.get(connection.dialect.name)
    if statement is not None:
        found: int | None = connection.execute(statement, values).scalar()
        return found
    try:
        # On MariaDB and MySQL a duplicate key ends the statement, not the transaction.
        made = connection.execute(INSERT, values).inserted_primary_key
    except IntegrityError:
        return None
    return None if made is None else int(made[0])


BY_ID = select(*COLUMNS).where(t.c.id == bindparam("p_id"), IS_JOB)
BY_KEY = select(*COLUMNS).where(t.c.name == bindparam("p_name"), t.c.key == bindparam("p_key"))

BY_KEY_AS_IT_IS = BY_KEY.with_for_update(read=True)
MYSQLS = ("mariadb", "mysql")


def _to_job(row: Row[*tuple[Any, ...]] | None) -> JobRow | None:
    return None if row is None else JobRow(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name


def by_id(connection: Connection, job_id: int) -> JobRow | None:
    """Read a job by its id."""
    return _to_job(connection.execute(BY_ID, {"p_id": job_id}).one_or_none())


def by_key(connection: Connection, name: str, key: str, *, as_it_is: bool = False) -> JobRow | None:
    """Read the job that holds a key.

    `as_it_is` reads past the snapshot of a transaction, which on MariaDB and MySQL may be older
    than the row that its INSERT has just collided with.
    """
    query = BY_KEY_AS_IT_IS if as_it_is and connection.dialect.name in MYSQLS else BY_KEY
    return _to_job(connection.execute(query, {"p_name": name, "p_key": key}).one_or_none())


# A running job keeps its lease; its record finds the arguments changed and runs it again. Whether
# it runs must be as it was seen: the arguments say under which claim they were replaced.
REPLACE = (
    update(t)
    .where(
        t.c.id == bindparam("p_id"),
        t.c.key == bindparam("p_key"),
        func.coalesce(t.c.lock_token, "") == bindparam("p_token"),
        t.c.scheduled_for == bindparam("p_seen", type_=UTCDateTime),
    )
    .ordered_values(
        (t.c.arguments, bindparam("p_arguments")),
        (
            t.c.scheduled_for,
            case(
                (t.c.lock_token.is_(null()), bindparam("p_scheduled_for", type_=UTCDateTime)),
                else_=t.c.scheduled_for,
            ),
        ),
        (
            t.c.next_run_at,
            case(
                (t.c.lock_token.is_(null()), bindparam("p_due", type_=UTCDateTime)),
                else_=t.c.next_run_at,
            ),
        ),
        (t.c.attempts, case((t.c.lock_token.is_(null()), 0), else_=t.c.attempts)),
        (t.c.failures, case((t.c.lock_token.is_(null()), 0), else_=t.c.failures)),
        (t.c.losses, case((t.c.lock_token.is_(null()), 0), else_=t.c.losses)),
        # How far the old arguments had come means nothing to the new ones.
        (t.c.progress, null()),
        (t.c.progress_done, null()),
        (t.c.progress_total, null()),
    )
)


def replace_arguments(
    connection: Connection,
    job_id: int,
    key: str,
    *,
    token: str | None,
    seen: datetime,
    arguments: str,
    due: datetime,
) -> bool:
    """Give a job other arguments; False if it has changed since `seen`, its `scheduled_for`.

    They are for a later nominal time than any before, whenever they are due: its idempotency key
    is another one.
    """
    values = {
        "p_seen": seen,
        "p_scheduled_for": max(due, seen + MICROSECOND),
        "p_id": job_id,
        "p_key": key,
        "p_token": token or "",
        "p_arguments": arguments,
        "p_due": due,
    }
    return connection.execute(REPLACE, values).rowcount == 1


WAITING = and_(t.c.state == State.ACTIVE, t.c.lock_token.is_(null()))
RUNNING = and_(t.c.state == State.ACTIVE, t.c.lock_token.is_not(null()))
DEAD = t.c.state == State.DEAD
STATES = {"waiting": WAITING, "running": RUNNING, "dead": DEAD}


def listed(connection: Connection, status: str | None, limit: int) -> list[JobRow]:
    """Read jobs of one status or of all, the first due first."""
    query = select(*COLUMNS).where(IS_JOB).order_by(t.c.next_run_at, t.c.id).limit(limit)
    if status is not None:
        query = query.where(STATES[status])
    rows = connection.execute(query)
    return [job for job in map(_to_job, rows) if job is not None]


RETRY = (
    update(t)
    .where(t.c.id == bindparam("p_id"), DEAD, IS_JOB)
    .values(
        state=State.ACTIVE,
        enabled=true(),
        key=bindparam("p_key"),
        next_run_at=bindparam("p_now", type_=UTCDateTime),
        attempts=0,
        failures=0,
        losses=0,
    )
)


def retry(connection: Connection, job_id: int, key: str | None, now: datetime) -> bool:
    """Start a dead job anew; False if it is not dead; IntegrityError if its key is taken."""
    return connection.execute(RETRY, {"p_id": job_id, "p_key": key, "p_now": now}).rowcount == 1


DISCARD = delete(t).where(
    t.c.id == bindparam("p_id"),
    IS_JOB,
    or_(t.c.lock_token.is_(null()), t.c.next_run_at <= bindparam("p_now", type_=UTCDateTime)),
)


def discard(connection: Connection, job_id: int, now: datetime) -> bool:
    """Delete a job's row unless it is running; False where nothing was deleted."""
    return connection.execute(DISCARD, {"p_id": job_id, "p_now": now}).rowcount == 1


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


def any_due(connection: Connection, names: Sequence[str], now: datetime, floor: datetime) -> bool:
    """Tell whether any known task has a job that is due."""
    found = connection.execute(select_any_due(names), {"p_now": now, "p_floor": floor})
    return bool(found.scalar())


IS_RUNNING = case((t.c.lock_token.is_not(null()), 1), else_=0)
COUNTS = (
    select(t.c.name, t.c.state, IS_RUNNING, func.count(), func.min(t.c.next_run_at))
    .where(IS_JOB)
    .group_by(t.c.name, t.c.state, IS_RUNNING)
)
# The row that is running, else the oldest, of each task whose jobs have come anywhere.
FURTHEST = (
    select(t.c.name, t.c.progress, t.c.progress_done, t.c.progress_total)
    .where(IS_JOB, t.c.state == State.ACTIVE, t.c.progress.is_not(null()))
    .order_by(t.c.name, IS_RUNNING.desc(), t.c.id)
)


@dataclass(slots=True, kw_only=True)
class JobCounts:
    """How many of a task's jobs wait, run and are dead, and when the first of those waiting is due.

    `progress`, a JSON text, is that of a running job, else of the oldest that has any.
    """

    waiting: int = 0
    running: int = 0
    dead: int = 0
    next: datetime | None = None
    progress: str | None = None
    progress_done: int | None = None
    progress_total: int | None = None


def counts(connection: Connection) -> dict[str, JobCounts]:
    """Count each task's jobs, of those tasks that have any."""
    found: dict[str, JobCounts] = {}
    for name, state, running, number, first in connection.execute(COUNTS):
        counted = found.setdefault(name, JobCounts())
        if state == State.DEAD:
            counted.dead += number
        elif running:
            counted.running += number
        else:
            counted.waiting += number
            counted.next = first
    for name, progress, done, total in connection.execute(FURTHEST):
        counted = found.setdefault(name, JobCounts())
        if counted.progress is None:
            counted.progress = progress
            counted.progress_done, counted.progress_total = done, total
    return found
