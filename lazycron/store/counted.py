"""What the history still holds of tasks that have no row of their own: counts, and the last run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    bindparam,
    case,
    func,
    literal,
    literal_column,
    select,
)

from lazycron.model.settle import LATE_AFTER, Status
from lazycron.schema import task_run as r
from lazycron.store.history import RunRecord, to_record

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
RUNS = (
    select(r.c.name, r.c.status, func.count(), func.sum(case((r.c.attempt > 1, 1), else_=0)))
    .where(OF_THESE)
    .group_by(r.c.name, r.c.status)
)
LAST = select(r).where(r.c.id.in_(select(func.max(r.c.id)).where(OF_THESE).group_by(r.c.name)))
# A job's first run alone says how late it was: a postponed one was asked to wait.
FIRSTS = (
    select(func.min(r.c.id).label("id"))
    .where(OF_THESE, r.c.job_id.is_not(None))
    .group_by(r.c.job_id)
    .subquery()
)
NAMES = {Status.OK: "ok", Status.FAILED: "failures", Status.POSTPONED: "postponed"}


@dataclass(slots=True, kw_only=True)
class Counted:
    """A task's counters as its row would have them, and its newest run."""

    counters: dict[str, int] = field(default_factory=dict)
    last: RunRecord | None = None


def counted(connection: Connection, names: Sequence[str]) -> dict[str, Counted]:
    """Count the runs of these tasks, and read the newest of each."""
    found = {name: Counted() for name in names}
    if not found:
        return found
    values = {"p_names": list(names)}
    for name, status, number, retries in connection.execute(RUNS, values):
        counters = found[name].counters
        counters[NAMES.get(status, status)] = number
        counters["runs"] = counters.get("runs", 0) + number
        counters["retries"] = counters.get("retries", 0) + int(retries)
    for row in connection.execute(LAST, values):
        found[row.name].last = to_record(row)
    lateness = LATENESS.get(connection.dialect.name, literal(0.0))
    late = case((lateness > LATE_AFTER.total_seconds(), 1), else_=0)
    firsts = (r.c.attempt == 1, r.c.id == FIRSTS.c.id)
    query = select(r.c.name, func.max(lateness), func.sum(late), func.max(r.c.id))
    newest = {}
    for name, most, number, last in connection.execute(
        query.where(*firsts).group_by(r.c.name), values
    ):
        found[name].counters |= {"most_lateness": _whole(most), "late": int(number)}
        newest[last] = name
    latest = select(r.c.id, lateness).where(r.c.id.in_(newest))
    for last, seconds in connection.execute(latest):
        found[newest[last]].counters["lateness"] = _whole(seconds)
    return found


def _whole(seconds: float) -> int:
    return max(0, round(float(seconds)))
