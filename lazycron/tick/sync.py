"""The rows of tasks: made, brought up to date with the code, and deleted after it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from lazycron.errors import ScheduleError
from lazycron.model.registry import Registry
from lazycron.model.task import Task
from lazycron.process import Facts
from lazycron.schedules.shaped import Every, Schedule, parse, with_rhythm
from lazycron.store import Store, TaskRow
from lazycron.tick.rescheduling import Standing, after_change, after_setback
from lazycron.tick.strangers import strangers, warn

SEEN_LIFE = timedelta(days=1)
UNSEEN_LIFE = timedelta(days=14)
AGAIN_AFTER = 60.0
FORGET_AFTER = 3600.0
MOST_TRIES = 10


class Sync:
    """Compares rows with tasks at a process's first look, after registrations, and each minute.

    Each process stores a changed schedule only once, at its first look. So two versions of the code
    that run side by side do not fight over the row.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        facts: Facts,
        monotonic: Callable[[], float],
        default_lease: timedelta,
    ) -> None:
        self._store = store
        self._registry = registry
        self._facts = facts
        self._monotonic = monotonic
        self._default_lease = default_lease
        self._brought_in: set[str] = set()
        self._identified = False
        self._told_strangers = False
        self._version: int | None = None
        self._again_at = 0.0
        self._forget_at: float | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether the rows must be looked at even if no task is due."""
        return self._version != self._registry.version

    @property
    def is_due(self) -> bool:
        """Whether tasks were registered since the last comparison, or a minute has passed."""
        return self.is_wanted or self._monotonic() >= self._again_at

    def look_again(self) -> None:
        """Compare rows and tasks at the next look: the earlier rows are gone."""
        self._version = None

    def begin_anew(self) -> None:
        """Treat the next look as the process's first one: this is another database."""
        self._brought_in.clear()
        self._identified = False
        self.look_again()

    def lease_of(self, task: Task) -> timedelta:
        """Return how long a claim of a task holds."""
        return task.lease or self._default_lease

    def lease_of_name(self, name: str) -> timedelta:
        """Return how long a claim of the task of this name holds; without code, the default."""
        task = self._registry.get(name)
        return self._default_lease if task is None else self.lease_of(task)

    def bring_in_when_due(self, now: datetime, *, by_clock: bool = True) -> frozenset[str]:
        """Do `bring_in` if tasks were registered since the last time, or a minute has passed."""
        if not self.is_due:
            return frozenset()
        return self.bring_in(now, by_clock=by_clock)

    def bring_in(self, now: datetime, *, by_clock: bool = True) -> frozenset[str]:
        """Make missing rows, store changed schedules; return the names whose rows were made.

        `by_clock` is False where `now` is not the clock's own moment.
        """
        version = self._registry.version
        tasks = list(self._registry)
        self._store.know({task.name: self.lease_of(task) for task in tasks})
        self._identify(now)
        rows = {row.name: row for row in self._store.known_rows()}
        if by_clock:  # a caller's own moment says nothing about the clock
            for row in rows.values():
                if self._set_back(row, now):
                    self._facts.set_back_at = now
        made = [task.name for task in tasks if self._bring_in_one(task, rows.get(task.name), now)]
        self._keep_seen(rows, now)
        self._facts.unknown_rows = self._store.recurring.any_beside(self._store.names)
        self._tell_strangers(now)
        floor = self._facts.floor_at(self._monotonic())
        self._facts.jobs_seen = self._store.jobs.any_due(self._store.names, now, floor)
        self._version = version
        self._again_at = self._monotonic() + AGAIN_AFTER
        return frozenset(made)

    def _tell_strangers(self, now: datetime) -> None:
        """Warn once a process about tasks of another app or another version in this database."""
        if self._facts.unknown_rows and not self._told_strangers:
            found = strangers(self._store.recurring.all(), self._registry, now)
            if found:
                warn(found)
                self._told_strangers = True

    def _identify(self, now: datetime) -> None:
        """Make jitter depend on this installation."""
        if not self._identified and self._registry.is_jittered:
            self._registry.installation = self._store.shared.installation_id(now)
            self._identified = True

    def _set_back(self, row: TaskRow, now: datetime) -> bool:
        """Move a row back that a clock ahead has put too far; tell whether it was moved."""
        task, standing = self._registry[row.name], standing_of(self._registry, row)
        policy = replace(task.policy, schedule=standing.schedule)
        place = after_setback(standing, policy, now, self.lease_of(task))
        if place is None:
            return False
        if row.running:
            return self._store.recurring.shorten_lease(row, place.next_run_at)
        return self._store.recurring.set_back(row, place, now)

    def _bring_in_one(self, task: Task, row: TaskRow | None, now: datetime) -> bool:
        made = self._compare(task, row, now, first=task.name not in self._brought_in)
        # Noted last: what the database refused is stored at a later look.
        self._brought_in.add(task.name)
        return made

    def _compare(self, task: Task, row: TaskRow | None, now: datetime, *, first: bool) -> bool:
        if task.schedule is None:
            # The task has lost its schedule and is now only enqueued: its recurring row is useless.
            if row is not None and first:
                self._store.recurring.forget(task.name, now)
            return False
        if row is None:
            return self._make(task, now)
        if first and row.schedule != task.schedule.text:
            self._store_schedule(row, task.schedule, now)
        return False

    def _make(self, task: Task, now: datetime) -> bool:
        if task.schedule is None:
            return False
        schedule = self._registry.seeded(task.name, task.schedule)
        if task.first_run is None:
            nominal = schedule.nominal_after(now)
            due = schedule.due_for(nominal)
        else:
            nominal = due = schedule.admitted(now + task.first_run)
        return self._store.recurring.make(
            task.name,
            task.schedule.text,
            enabled=task.enabled,
            next_run_at=due,
            scheduled_for=nominal,
            now=now,
        )

    def _store_schedule(self, row: TaskRow, schedule: Schedule, now: datetime) -> None:
        old = row.schedule
        for _ in range(MOST_TRIES):
            override = _overridden(row, schedule)
            standing = standing_of(self._registry, row)
            place = standing.place
            if row.schedule_override is None or override != row.schedule_override:
                counts = schedule if override is None else parse(override)
                place = after_change(standing, self._registry.seeded(row.name, counts), now)
            if self._store.recurring.bring_in(row, schedule.text, override, place):
                return
            fresh = self._store.recurring.of(row.name)
            if fresh is None or fresh.schedule != old:
                return  # another process was first
            row = fresh

    def _keep_seen(self, rows: dict[str, TaskRow], now: datetime) -> None:
        before = now - SEEN_LIFE
        if any(row.seen_at is None or row.seen_at < before for row in rows.values()):
            self._store.recurring.see(self._store.names, now, before)
        if self._forget_at is None or self._monotonic() >= self._forget_at:
            self._store.recurring.forget_unseen(self._store.names, now - UNSEEN_LIFE, now)
            self._forget_at = self._monotonic() + FORGET_AFTER


def standing_of(registry: Registry, row: TaskRow) -> Standing:
    """Read a row by its own schedule."""
    task = registry.get(row.name)
    try:
        schedule = registry.schedule_of(row.name, row.schedule_now)
    except ScheduleError:
        schedule = None
    return Standing(row, schedule, task.first_run if task else None)


def _overridden(row: TaskRow, schedule: Schedule) -> str | None:
    """Return the operator's override in the window and jitter of the code's schedule.

    Under an override the code's rhythm is stored, but applies only after a reset.
    """
    if row.schedule_override is None:
        return None
    try:
        rhythm = parse(row.schedule_override).rhythm
        return (
            with_rhythm(rhythm, schedule).text
            if isinstance(rhythm, Every)
            else row.schedule_override
        )
    except ScheduleError:
        return row.schedule_override
