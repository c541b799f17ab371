"""What `overview` shows of a task, and what `check` complains of."""

from dataclasses import dataclass
from datetime import datetime

from lazycron.errors import ScheduleError
from lazycron.messages import Json
from lazycron.schedules import parse
from lazycron.store import TaskRow
from lazycron.tasks import Task
from lazycron.why import Why


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task at a glance; moments are UTC.

    `next` is None while the task runs, and for a task without a schedule. `late`: it hangs, or
    its next regular time has passed as well. `known`: this process has its code.
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
    progress: Json
    counters: dict[str, int]
    progress_done: int | None = None
    progress_total: int | None = None
    overridden: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Something `check` found: a short name, and a sentence that says what to do."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.text


def status_of(
    name: str, task: Task | None, row: TaskRow | None, why: Why, now: datetime
) -> TaskStatus:
    """Put a task's code and row together."""
    return TaskStatus(
        name=name,
        label=task.label if task else name,
        explanation=task.explanation if task else "",
        schedule=_words(task, row),
        enabled=row.enabled if row else bool(task and task.enabled),
        next=None if row is None or row.running else row.next_run_at,
        last=row.last_run_at if row else None,
        status=row.last_status if row else None,
        message=row.last_message if row else None,
        ms=row.last_duration_ms if row else None,
        trigger=row.last_trigger if row else None,
        failures=row.failures if row else 0,
        running=bool(row and row.running),
        due=bool(row and row.enabled and not row.running and row.next_run_at <= now),
        late=bool(row and why.is_late(row, now)),
        known=task is not None,
        progress=row.progress if row else None,
        counters=row.counters if row else {},
        progress_done=row.progress_done if row else None,
        progress_total=row.progress_total if row else None,
        overridden=bool(row and row.schedule_override),
    )


def _words(task: Task | None, row: TaskRow | None) -> str:
    if row is not None:
        try:
            return str(parse(row.schedule_now))
        except ScheduleError:
            return row.schedule_now
    return str(task.schedule) if task and task.schedule else ""
