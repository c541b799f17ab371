"""Due times that are not run: too late for `missed="skip"`, or while their window is closed."""

from datetime import datetime, timedelta

from lazycron.durations import in_words, roughly
from lazycron.errors import ScheduleError
from lazycron.logfile import LogFile
from lazycron.model.registry import Registry
from lazycron.model.settle import Status
from lazycron.model.task import Task
from lazycron.schedules.shaped import Schedule
from lazycron.store import MISSED, Place, Store, TaskRow
from lazycron.texts import at

LEAST_GRACE = timedelta(minutes=1)
# A due time that was begun is not missed, however long it was postponed.
BEGUN = (Status.POSTPONED, Status.PAUSED)


class Missed:
    """Looks at due rows before any is claimed, by the tick's start, which also decides what is due.

    It costs one statement a tick where a task has a window or `missed="skip"`, else none. Each row
    takes one UPDATE, however many due times were missed.
    """

    def __init__(self, store: Store, registry: Registry, logfile: LogFile) -> None:
        self._store = store
        self._registry = registry
        self._logfile = logfile

    def look(self, now: datetime) -> None:
        """Pass over what is too late, and put off what is due outside its window."""
        names = [task.name for task in self._registry if _is_choosy(task)]
        if not names:
            return
        for row in self._store.recurring.due(names, now):
            try:
                schedule = self._registry.schedule_of(row.name, row.schedule_now)
            except ScheduleError:
                continue
            grace = grace_of(self._registry[row.name], row, schedule)
            if grace is not None and now - schedule.due_for(row.scheduled_for) > grace:
                self._pass_over(row, schedule, grace, now)
            elif (opening := schedule.admitted(now)) > now:
                self._store.recurring.put_off(row, opening)

    def _pass_over(self, row: TaskRow, schedule: Schedule, grace: timedelta, now: datetime) -> None:
        due = schedule.due_for(row.scheduled_for)
        nominal = schedule.after_missed(row.scheduled_for, now)
        message = (
            f"Missed: due at {at(due)}, found {roughly(now - due)} later; "
            f"more than {in_words(grace)} is too late."
        )
        passed = self._store.recurring.pass_over(
            row,
            Place(schedule.due_for(nominal), nominal, 0),
            message=message,
            counters=row.counters | {MISSED: row.counters.get(MISSED, 0) + 1},
        )
        if passed:
            self._logfile.note(now, row.name, MISSED, None, message)


def grace_of(task: Task, row: TaskRow, schedule: Schedule) -> timedelta | None:
    """Return how late a row may be run; None for any time, as for retries and lost runs."""
    if task.missed != "skip" or row.attempts > 0 or row.last_status in BEGUN:
        return None
    if task.grace is not None:
        return task.grace
    due = schedule.due_for(row.scheduled_for)
    following = schedule.due_for(schedule.after_missed(row.scheduled_for, due))
    return max(LEAST_GRACE, (following - due) / 10)


def _is_choosy(task: Task) -> bool:
    schedule = task.schedule
    return schedule is not None and (task.missed == "skip" or schedule.is_windowed)
