"""The history: one row a run, read newest first, pruned in slices."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, delete, func, insert, select

from lazycron.model.settle import RECURRING, Settlement
from lazycron.schema import UTCDateTime
from lazycron.schema import task_run as r
from lazycron.store.driver.transaction import Transaction
from lazycron.texts import Json, readable_json

SLICE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run in the history; `ms` is None where nobody could measure it (a lost run)."""

    id: int
    task: str
    job_id: int | None
    key: str | None
    scheduled_for: datetime
    started_at: datetime
    finished_at: datetime | None
    ms: int | None
    status: str
    trigger: str
    attempt: int
    host: str | None
    pid: int | None
    message: str | None
    error: str | None
    result: Json


# Each column, and the parameter it is written from.
RUN_PARAMETERS = {
    "name": "name",
    "job_id": "job_id",
    "key": "key",
    "scheduled_for": "scheduled_for",
    "started_at": "started_at",
    "finished_at": "finished_at",
    "duration_ms": "ms",
    "status": "status",
    "trigger": "trigger",
    "attempt": "attempt",
    "host": "host",
    "pid": "pid",
    "message": "message",
    "error": "error",
    "result": "result",
}
INSERT = insert(r).values(
    {
        column: bindparam(f"h_{name}", type_=r.c[column].type)
        for column, name in RUN_PARAMETERS.items()
    }
)
NEWEST = select(r).order_by(r.c.id.desc()).limit(bindparam("p_limit"))
# From a name to the same name, in the index's own order: where a history is mostly one task's,
# SQLite (once analysed) believes a scan of all of it to be cheaper than `name = ?`.
OF_NAME = r.c.name.between(bindparam("p_name"), bindparam("p_name"))
BY_NAME = (r.c.name.desc(), r.c.id.desc())
NEWEST_OF = select(r).where(OF_NAME).order_by(*BY_NAME).limit(bindparam("p_limit"))
# Runs of jobs of the same task do not count towards a recurring task's share.
NEWEST_OF_JOB = select(r).where(r.c.job_id == bindparam("p_id")).order_by(r.c.id.desc()).limit(1)
FIRST_BEYOND = (
    select(r.c.id)
    .where(OF_NAME, r.c.key == RECURRING)
    .order_by(*BY_NAME)
    .offset(bindparam("p_keep"))
    .limit(1)
)
DELETE_UP_TO = delete(r).where(OF_NAME, r.c.key == RECURRING, r.c.id <= bindparam("p_id"))
# In the order of ids, in which runs have ended; age needs no index of its own.
IS_OLD = r.c.started_at < bindparam("p_before", type_=UTCDateTime)
FOLLOWING = (
    select(r.c.id, case((IS_OLD, 1), else_=0).label("is_old"))
    .where(r.c.id > bindparam("p_after"))
    .order_by(r.c.id)
    .limit(SLICE)
    .subquery()
)
LOOK = select(func.count(), func.sum(FOLLOWING.c.is_old), func.max(FOLLOWING.c.id)).select_from(
    FOLLOWING
)
DELETE_OLD = delete(r).where(r.c.id > bindparam("p_after"), r.c.id <= bindparam("p_last"), IS_OLD)


def run_values(settlement: Settlement, by: str) -> dict[str, Any]:
    """Return the parameters of a run's history row."""
    claim, outcome = settlement.claim, settlement.outcome
    host, _, pid = by.rpartition(":")
    return {
        "h_name": claim.name,
        "h_job_id": None if claim.key == RECURRING else claim.id,
        "h_key": claim.key,
        "h_scheduled_for": claim.scheduled_for,
        "h_started_at": claim.began_at,
        "h_finished_at": settlement.finished_at,
        "h_ms": _whole_ms(settlement),
        "h_status": outcome.status.value,
        "h_trigger": claim.trigger,
        "h_attempt": claim.attempt,
        "h_host": host or None,
        "h_pid": int(pid) if pid.isdecimal() else None,
        "h_message": outcome.message,
        "h_error": outcome.error,
        "h_result": outcome.result,
    }


def _whole_ms(settlement: Settlement) -> int | None:
    """Return how long the run took, its paused slices included."""
    if settlement.outcome.ms is None:
        return None
    return settlement.outcome.ms + settlement.claim.earlier_ms


def insert_run(transaction: Transaction, settlement: Settlement, by: str) -> None:
    """Write a run's history row."""
    transaction.count(INSERT, run_values(settlement, by))


def newest(connection: Connection, name: str | None, limit: int) -> list[RunRecord]:
    """Read the newest runs, of one task or of all."""
    if name is None:
        rows = connection.execute(NEWEST, {"p_limit": limit})
    else:
        rows = connection.execute(NEWEST_OF, {"p_limit": limit, "p_name": name})
    return [to_record(row) for row in rows]


def to_record(row: Row[*tuple[Any, ...]]) -> RunRecord:
    """Read a run back."""
    return RunRecord(
        id=row.id,
        task=row.name,
        job_id=row.job_id,
        key=row.key,
        scheduled_for=row.scheduled_for,
        started_at=row.started_at,
        finished_at=row.finished_at,
        ms=row.duration_ms,
        status=row.status,
        trigger=row.trigger,
        attempt=row.attempt,
        host=row.host,
        pid=row.pid,
        message=row.message,
        error=row.error,
        result=readable_json(row.result),
    )


def newest_of_job(connection: Connection, job_id: int) -> RunRecord | None:
    """Read the newest run of a job, whose row may be gone."""
    row = connection.execute(NEWEST_OF_JOB, {"p_id": job_id}).one_or_none()
    return None if row is None else to_record(row)


def delete_up_to(connection: Connection, name: str, last: int) -> int:
    """Delete a recurring task's runs up to an id."""
    return connection.execute(DELETE_UP_TO, {"p_name": name, "p_id": last}).rowcount


def delete_older(connection: Connection, before: datetime, after: int) -> tuple[int, int | None]:
    """Delete those of the thousand runs that follow an id which started before a moment.

    Returns how many went, and the last id that was looked at; None: no more follow.
    """
    values = {"p_before": before, "p_after": after}
    looked_at, old, last = connection.execute(LOOK, values).one()
    gone = connection.execute(DELETE_OLD, values | {"p_last": last}).rowcount if old else 0
    return gone, last if looked_at == SLICE else None
