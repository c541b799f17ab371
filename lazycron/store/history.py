"""The history: one row a run, read newest first, counted, and pruned in slices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
)

from lazycron.model.settle import LATE_AFTER, RECURRING, Settlement, Status
from lazycron.model.values import readable_value
from lazycron.schema import UTCDateTime
from lazycron.schema import task_run as r
from lazycron.store.driver.database import Database
from lazycron.store.driver.prepared import AnyRow
from lazycron.store.driver.transaction import Transactions

SLICE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run in the history; `ms` is None where it is unknown (a lost run)."""

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
    result: Any


@dataclass(slots=True, kw_only=True)
class Counted:
    """A task's counters as its own row would hold them, and its newest run."""

    counters: dict[str, int] = field(default_factory=dict)
    last: RunRecord | None = None


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
# A range from a name to the same name, in the index's own order: where most of the history is one
# task's, SQLite (once analysed) takes a scan of all of it to be cheaper than `name = ?`.
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
# In the order of ids, which is the order in which runs ended: age needs no index.
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
# At worst it reads all runs of the name: answers are lost once a year. Status and pid tell a run
# from its burial.
STORED = select(r.c.id).where(
    r.c.name == bindparam("p_name"),
    r.c.started_at == bindparam("p_started_at", type_=UTCDateTime),
    r.c.status == bindparam("p_status"),
    r.c.pid == bindparam("p_pid"),
)
# How long after its due time a run began, in seconds.
LATENESS: Mapping[str, ColumnElement[float]] = {
    dialect: literal_column(text, Float)
    for dialect, text in {
        "sqlite": (
            "(julianday(task_run.started_at) - julianday(task_run.scheduled_for)) * 86400.0"
        ),
        "postgresql": "EXTRACT(EPOCH FROM task_run.started_at - task_run.scheduled_for)",
        "mariadb": "TIMESTAMPDIFF(MICROSECOND, task_run.scheduled_for, task_run.started_at) / 1e6",
        "mysql": "TIMESTAMPDIFF(MICROSECOND, task_run.scheduled_for, task_run.started_at) / 1e6",
    }.items()
}
OF_THESE = r.c.name.in_(bindparam("p_names", expanding=True))
COUNTS = (
    select(r.c.name, r.c.status, func.count(), func.sum(case((r.c.attempt > 1, 1), else_=0)))
    .where(OF_THESE)
    .group_by(r.c.name, r.c.status)
)
NEWEST_OF_EACH = select(r).where(
    r.c.id.in_(select(func.max(r.c.id)).where(OF_THESE).group_by(r.c.name))
)
# Only a job's first run says how late it was: a postponed one was asked to wait.
FIRSTS = (
    select(func.min(r.c.id).label("id"))
    .where(OF_THESE, r.c.job_id.is_not(None))
    .group_by(r.c.job_id)
    .subquery()
)
COUNTERS = {Status.OK: "ok", Status.FAILED: "failures", Status.POSTPONED: "postponed"}


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


def is_stored(connection: Connection, settlement: Settlement, by: str) -> bool:
    """Tell whether the history has this run, as this process would have written it."""
    values = run_values(settlement, by)
    asked = {f"p_{name}": values[f"h_{name}"] for name in ("name", "started_at", "status", "pid")}
    return connection.execute(STORED, asked).first() is not None


def to_record(row: AnyRow) -> RunRecord:
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
        result=readable_value(row.result),
    )


class History:
    """The history outside of a run; each method is a transaction."""

    def __init__(self, database: Database, begin: Transactions) -> None:
        self._database = database
        self._begin = begin
        self._first_beyond = begin.prepare(FIRST_BEYOND)

    def newest(self, name: str | None, limit: int) -> list[RunRecord]:
        """Read the newest runs, of one task or of all."""
        if name is None:
            rows = self._database.rows(NEWEST, {"p_limit": limit})
        else:
            rows = self._database.rows(NEWEST_OF, {"p_limit": limit, "p_name": name})
        return [to_record(row) for row in rows]

    def newest_of_job(self, job_id: int) -> RunRecord | None:
        """Read the newest run of a job, whose row may be gone."""
        row = self._database.row(NEWEST_OF_JOB, {"p_id": job_id})
        return None if row is None else to_record(row)

    def prune_beyond(self, name: str, keep: int) -> int:
        """Delete what a recurring task has beyond its newest `keep` runs."""
        with self._begin.reading() as begun:
            found = begun.one(self._first_beyond, {"p_name": name, "p_keep": keep})
        if found is None:
            return 0
        return self._database.write(DELETE_UP_TO, {"p_name": name, "p_id": found.id})

    def prune_older(self, before: datetime, after: int = 0) -> tuple[int, int | None]:
        """Look at the thousand runs after an id, and delete those that started before a moment.

        Returns how many were deleted, and the last id looked at; None where no more runs follow.
        """
        values = {"p_before": before, "p_after": after}
        looked_at, old, last = self._database.rows(LOOK, values)[0]
        gone = self._database.write(DELETE_OLD, values | {"p_last": last}) if old else 0
        return gone, last if looked_at == SLICE else None

    def counted(self, names: Sequence[str]) -> dict[str, Counted]:
        """Count the runs of tasks that have no row of their own, and read the newest."""
        found = {name: Counted() for name in names}
        if not found:
            return found
        database, values = self._database, {"p_names": list(names)}
        for name, status, number, retries in database.rows(COUNTS, values):
            counters = found[name].counters
            counters[COUNTERS.get(status, status)] = number
            counters["runs"] = counters.get("runs", 0) + number
            counters["retries"] = counters.get("retries", 0) + int(retries)
        for row in database.rows(NEWEST_OF_EACH, values):
            found[row.name].last = to_record(row)
        lateness = LATENESS.get(database.dialect, literal(0.0))
        late = case((lateness > LATE_AFTER.total_seconds(), 1), else_=0)
        firsts = (
            select(r.c.name, func.max(lateness), func.sum(late), func.max(r.c.id))
            .where(r.c.attempt == 1, r.c.id == FIRSTS.c.id)
            .group_by(r.c.name)
        )
        newest = {}
        for name, most, number, last in database.rows(firsts, values):
            found[name].counters |= {"most_lateness": _whole(most), "late": int(number)}
            newest[last] = name
        for last, seconds in database.rows(select(r.c.id, lateness).where(r.c.id.in_(newest))):
            found[newest[last]].counters["lateness"] = _whole(seconds)
        return found


def _whole(seconds: float) -> int:
    return max(0, round(float(seconds)))
