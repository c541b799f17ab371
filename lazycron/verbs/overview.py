"""Every task at a glance."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from lazycron.errors import ScheduleError
from lazycron.model.lateness import is_job_late
from lazycron.model.task import Task
from lazycron.model.values import readable_value
from lazycron.schedules.shaped import parse
from lazycron.store import Counted, JobCounts, RunRecord, TaskRow
from lazycron.tick.why import Why
from lazycron.verbs.base import Moment, held_names, manage, moment_of, on_tables
from lazycron.wiring import Parts

COUNTERS = (
    "runs",
    "ok",
    "failures",
    "retries",
    "lost",
    "missed",
    "postponed",
    "late",
    "lateness",
    "most_lateness",
    "waited_beat",
    "waited_lock",
    "waited_budget",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task at a glance; moments are UTC.

    `next` is None while the task runs, and for a task without a schedule. `late`: it has been due,
    or running, for more than twice its interval, or one of its jobs for more than an hour.
    `hanging`: it runs, or one of its jobs does, and its lease is renewed no more. `known`: this
    process has its code. `counters` has runs, ok, failures, retries, lost, missed (skips),
    postponed, refused (once keys), late (starts), lateness and most_lateness (in seconds),
    waited_beat, waited_lock and waited_budget (seconds that first attempts were due before),
    jobs_waiting, jobs_running and jobs_dead; runs of a task that is only enqueued are counted
    from what the history still holds.
    """

    name: str
    label: str
    explanation: str
    schedule: str
    enabled: bool
    next: datetime | None
    last: datetime | None
    status: str | None
    message: str | None
    ms: int | None
    trigger: str | None
    failures: int
    running: bool
    due: bool
    late: bool
    known: bool
    progress: Any
    counters: dict[str, int]
    progress_done: int | None = None
    progress_total: int | None = None
    overridden: bool = False
    hanging: bool = False


@on_tables
def overview(parts: Parts, now: Moment) -> list[TaskStatus]:
    """Return every task at a glance, by name; rows and jobs without code included."""
    manage(parts)
    moment, store, registry = moment_of(parts, now), parts.store, parts.registry
    rows = {row.name: row for row in store.recurring.all()}
    jobs, refused = store.jobs.counts(), store.once.refused()
    held = held_names(parts)
    names = sorted(rows.keys() | jobs.keys() | {task.name for task in registry})
    counted = store.history.counted([name for name in names if name not in rows])
    return [
        status_of(
            name,
            registry.get(name),
            rows.get(name),
            parts.why,
            moment,
            jobs=jobs.get(name),
            counted=counted.get(name),
            refused=refused.get(name, 0),
            held=name in held,
        )
        for name in names
    ]


def status_of(
    name: str,
    task: Task | None,
    row: TaskRow | None,
    why: Why,
    now: datetime,
    *,
    jobs: JobCounts | None = None,
    counted: Counted | None = None,
    refused: int = 0,
    held: bool = False,
) -> TaskStatus:
    """Put a task's code, its row, its jobs and, where it has no row, its history together."""
    jobs = jobs or JobCounts()
    counters = row.counters if row else counted.counters if counted else {}
    plain = TaskStatus(
        name=name,
        label=task.label if task else name,
        explanation=task.explanation if task else "",
        schedule=_words(task, row),
        enabled=row.enabled if row else bool(task and task.enabled and not held),
        next=jobs.next,
        last=None,
        status=None,
        message=None,
        ms=None,
        trigger=None,
        failures=0,
        running=jobs.running > 0,
        due=jobs.next is not None and jobs.next <= now and not held,
        late=is_job_late(jobs.next, now) or is_job_late(jobs.began, now),
        known=task is not None,
        progress=readable_value(jobs.progress),
        progress_done=jobs.progress_done,
        progress_total=jobs.progress_total,
        counters=_counters(counters, jobs, refused),
        hanging=why.claimed.has_stopped(name, jobs.lease_until, now),
    )
    if row is not None:
        return _by_row(plain, row, why, now)
    return plain if counted is None or counted.last is None else _by_run(plain, counted.last)


def _by_row(plain: TaskStatus, row: TaskRow, why: Why, now: datetime) -> TaskStatus:
    return replace(
        plain,
        next=row.next_run_at if row.readable and not row.running else None,
        last=row.last_run_at,
        status=row.last_status,
        message=row.last_message,
        ms=row.last_duration_ms,
        trigger=row.last_trigger,
        failures=row.failures,
        running=row.running,
        due=row.enabled and not row.running and row.next_run_at <= now,
        late=plain.late or why.is_late(row, now),
        hanging=plain.hanging or why.claimed.is_hanging(row, now),
        progress=row.progress,
        progress_done=row.progress_done,
        progress_total=row.progress_total,
        overridden=bool(row.schedule_override),
    )


def _by_run(plain: TaskStatus, last: RunRecord) -> TaskStatus:
    return replace(
        plain,
        last=last.started_at,
        status=last.status,
        message=last.message,
        ms=last.ms,
        trigger=last.trigger,
    )


def _counters(stored: Mapping[str, int], jobs: JobCounts, refused: int) -> dict[str, int]:
    return (
        dict.fromkeys(COUNTERS, 0)
        | dict(stored)
        | {
            "refused": refused,
            "jobs_waiting": jobs.waiting,
            "jobs_running": jobs.running,
            "jobs_dead": jobs.dead,
        }
    )


def _words(task: Task | None, row: TaskRow | None) -> str:
    if row is not None:
        try:
            return str(parse(row.schedule_now))
        except ScheduleError:
            return row.schedule_now
    return str(task.schedule) if task and task.schedule else ""
