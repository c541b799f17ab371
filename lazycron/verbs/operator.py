"""The managing verbs: look at tasks and change their rows, by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from lazycron.clock import Moments, to_moment
from lazycron.durations import MICROSECOND, Duration, to_duration
from lazycron.errors import (
    BusyError,
    ConfigurationError,
    NotInstalledError,
    ScheduleError,
    UnknownTaskError,
)
from lazycron.migrate import migrate
from lazycron.model.arguments import asked_again
from lazycron.model.settle import Outcome, Status, settle
from lazycron.model.task import Task
from lazycron.schedules.shaped import Every, Schedule, parse, to_zone, with_rhythm
from lazycron.statefile import State
from lazycron.store import (
    Abandoned,
    DatabaseError,
    Fault,
    RunRecord,
    TaskRow,
    fault_of,
    said_by,
)
from lazycron.texts import shown, storable
from lazycron.tick.next_due import OFF, ON
from lazycron.tick.runner import BUSY_NOW
from lazycron.tick.sync import moved_to
from lazycron.tick.why import Explanation, Surroundings, with_jobs
from lazycron.verbs.check import check
from lazycron.verbs.overview import Problem, TaskStatus, about_refusals, status_of
from lazycron.wiring import Parts

SHORTEST_OVERRIDE = timedelta(seconds=60)
LONGEST_OVERRIDE = timedelta(days=30)
MOST_TRIES = 10
MOST_ROWS = 1_000_000
M = TypeVar("M", bound="Managing")
P = ParamSpec("P")
R = TypeVar("R")

Moment = datetime | float | None
Name = str | Task


def on_tables(
    verb: Callable[Concatenate[M, P], R],
) -> Callable[Concatenate[M, P], R]:
    """Let a verb raise NotInstalledError where its tables were dropped under this process.

    And BusyError where somebody else holds the database's lock for too long.
    """

    @wraps(verb)
    def checked(self: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return verb(self, *args, **kwargs)
        except DatabaseError as error:
            if self._parts.runner.is_missing(error):
                raise NotInstalledError from error
            if fault_of(error) is Fault.BUSY:
                raise BusyError(BUSY_NOW) from error
            raise

    return checked


class Managing(ABC):
    """What an operator does; a verb that takes a task's name acts on its recurring row."""

    @property
    @abstractmethod
    def _parts(self) -> Parts:
        """The parts of this process, wired at the first use."""

    def sync(self, now: Moment = None) -> bool:
        """Make rows for new tasks and store changed schedules; False: not installed yet."""
        parts = self._parts
        try:
            if not parts.runner.install():
                return False
            parts.runner.look_at_clock()
            parts.sync.bring_in(self._moment(now), by_clock=now is None)
            self._refresh()
        except DatabaseError as error:
            if parts.runner.is_missing(error):
                return False
            if fault_of(error) is Fault.BUSY:
                raise BusyError(BUSY_NOW) from error
            raise
        return True

    @on_tables
    def overview(self, now: Moment = None) -> list[TaskStatus]:
        """Return every task at a glance, by name; rows and jobs without code included."""
        parts, moment = self._managing(), self._moment(now)
        store = parts.store
        rows = {row.name: row for row in store.recurring.all()}
        jobs, refused = store.jobs.counts(), store.once.refused()
        names = sorted(rows.keys() | jobs.keys() | {task.name for task in self._parts.registry})
        counted = store.history.counted([name for name in names if name not in rows])
        return [
            status_of(
                name,
                self._parts.registry.get(name),
                rows.get(name),
                parts.why,
                moment,
                jobs=jobs.get(name),
                counted=counted.get(name),
                refused=refused.get(name, 0),
            )
            for name in names
        ]

    @on_tables
    def upcoming(self, name: Name, count: int = 10, now: Moment = None) -> list[datetime]:
        """Return when a task will be due next, in UTC, if each of its runs begins on time.

        Of one that is overdue or disabled: if it were run at `now`. Raises UnknownTaskError for a
        task without a row, and ScheduleError for a row whose schedule cannot be read.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            message = f"count={count!r}: pass a whole number from 1 up"
            raise ValueError(message)
        parts, moment = self._managing(), self._moment(now)
        row = self._row(to_name(name))
        schedule = parts.registry.schedule_of(row.name, row.schedule_now)
        nominal, due = row.scheduled_for, row.next_run_at
        found: list[datetime] = []
        if row.running:
            start = row.last_run_at or moment
            nominal = schedule.after_run(nominal, start)
            due = schedule.due_for(nominal, start)
        while len(found) < count:
            start = schedule.admitted(max(due, moment))
            found.append(start)
            nominal = schedule.after_run(nominal, start)
            due = schedule.due_for(nominal, start)
        return found

    def zone_of(self, name: Name) -> tzinfo:
        """Return the zone whose clocks a task goes by; LazyCron's where they do not matter."""
        parts, row = self._parts, self._row(to_name(name))
        zone = parts.registry.schedule_of(row.name, row.schedule_now).zone
        return zone or to_zone(parts.settings.tz)

    @on_tables
    def enable(self, name: Name) -> None:
        """Let a task run; its row stays due as it was. Raises UnknownTaskError."""
        self._switch(to_name(name), enabled=True)

    @on_tables
    def disable(self, name: Name) -> None:
        """Keep a task from running; a run under way is finished. Raises UnknownTaskError."""
        self._switch(to_name(name), enabled=False)

    def _switch(self, name: str, *, enabled: bool) -> None:
        # Of a row that stands as it is wanted, a driver may say that none was changed.
        if not self._managing().store.recurring.enable(name, enabled=enabled):
            self._row(name)
        self._refresh()

    @on_tables
    def set_interval(self, name: Name, duration: Duration) -> None:
        """Override a task's schedule by an interval, until `reset_schedule`.

        Its window and jitter stay. Takes 60 seconds to 30 days; raises ScheduleError, a ValueError,
        for anything else, and UnknownTaskError. The row moves to the new interval after its last
        run, if that is sooner.
        """
        length = to_duration(
            duration, what="interval", least=SHORTEST_OVERRIDE, most=LONGEST_OVERRIDE
        )
        self._override(to_name(name), Every(length))

    @on_tables
    def reset_schedule(self, name: Name) -> None:
        """Take an operator's interval back: the code's schedule counts again."""
        self._override(to_name(name), None)

    def _override(self, name: str, rhythm: Every | None) -> None:
        parts = self._managing()
        for _ in range(MOST_TRIES):
            row = self._row(name)
            counts = self._code_schedule(row) if rhythm is None else self._shaped(rhythm, row)
            text = None if rhythm is None else counts.text
            counts = parts.registry.seeded(name, counts)
            due, nominal = moved_to(row, counts, self._moment(None))
            if parts.store.recurring.override(row, text, next_run_at=due, scheduled_for=nominal):
                self._refresh()
                return
        message = f"the row of {name} changed each of {MOST_TRIES} times it was looked at"
        raise BusyError(message)

    def _shaped(self, rhythm: Every, row: TaskRow) -> Schedule:
        try:
            return with_rhythm(rhythm, self._code_schedule(row))
        except ScheduleError:
            return rhythm

    def _code_schedule(self, row: TaskRow) -> Schedule:
        """Read the code's schedule from the row, or from the code where a hand has garbled it."""
        try:
            return parse(row.schedule or "")
        except ScheduleError:
            task = self._parts.registry.get(row.name)
            if task is None or task.schedule is None:
                raise
            return task.schedule

    @on_tables
    def release(self, name: Name, *, force: bool = False) -> bool:
        """End a claim and record its run as lost; False where nobody holds the row.

        A claim renewed within half its lease is very likely alive: raises BusyError unless
        `force`. Its run, if it still goes on, then changes nothing any more.
        """
        name, parts = to_name(name), self._managing()
        self._row(name)
        return self._release(lambda: parts.store.claim_of(name), name, force=force)

    def _release(self, look: Callable[[], Abandoned | None], what: str, *, force: bool) -> bool:
        for _ in range(MOST_TRIES):
            held = look()
            if held is None:
                return False
            if self._release_one(held, what, force=force):
                return True
        message = f"{what} changed at each of {MOST_TRIES} looks"
        raise BusyError(message)

    def _release_one(self, held: Abandoned, what: str, *, force: bool) -> bool:
        """Take a claim off its row; False where either has changed since it was seen."""
        parts, name, now = self._parts, held.claim.name, self._moment(None)
        task = parts.registry.get(name)
        lease = (task.lease if task else None) or parts.settings.lease
        renewed = held.claim.lease_until - lease
        if not force and now - renewed < lease / 2:
            message = (
                f"{what} is running in {held.by}, which renewed its lease lately; "
                "force=True (--force) releases it all the same"
            )
            raise BusyError(message)
        outcome = Outcome(status=Status.LOST, message="Lost: released by hand.", ms=None)
        policy = parts.registry.policy_of(held.claim)
        # Not now: a tick under way that began at this very moment must not run the row again.
        settlement = settle(
            held.claim,
            outcome,
            policy,
            now=now,
            earliest=now + MICROSECOND,
            asked_again=asked_again(held.claim.arguments, held.claim.token),
        )
        released = parts.store.release(settlement, held.by)
        if released:
            rest = f"{held.claim.trigger}  {outcome.message}"
            parts.logfile.note(now, name, Status.LOST, None, rest)
            self._refresh()
        return released

    @on_tables
    def forget(self, name: Name) -> None:
        """Delete the row of a task whose code is gone.

        Raises UnknownTaskError where there is no row, ConfigurationError for a task this process
        knows (its row would come back at once) and BusyError for one that is running.
        """
        name, parts = to_name(name), self._managing()
        if name in self._parts.registry:
            message = f"{name} is registered, so its row would come back; disable it instead"
            raise ConfigurationError(message)
        self._row(name)
        if not parts.store.recurring.forget(name):
            message = f"{name} is running; release it first"
            raise BusyError(message)
        self._refresh()

    def why(self, name: Name, now: Moment = None) -> Explanation:
        """Say why a task is not running now and what would make it run; never raises for that."""
        parts, name, moment = self._parts, to_name(name), self._moment(now)
        try:
            if not parts.runner.install():
                return parts.why.not_installed()
            row = parts.store.recurring.of(name)
            refused = parts.store.once.refused().get(name, 0)
            jobs = parts.store.jobs.counts().get(name)
            runs = self._runs_of(name, row) if refused else 0
            around = self._surroundings()
            found = parts.why.about(parts.registry.get(name), row, moment, around=around)
        except DatabaseError as error:
            if parts.runner.is_missing(error):
                return parts.why.not_installed()
            return parts.why.unreachable(said_by(error))
        found = with_jobs(found, name, jobs)
        also = about_refusals(name, refused, runs)
        return found if also is None else replace(found, text=f"{found.text}. {also}")

    def _runs_of(self, name: str, row: TaskRow | None) -> int:
        """Count a task's runs: by its row, else what the history still holds of its jobs."""
        if row is not None:
            return row.counters.get("runs", 0)
        return self._parts.store.history.counted([name])[name].counters.get("runs", 0)

    def _surroundings(self) -> Surroundings:
        parts = self._parts
        seen = parts.statefile.peek()
        state = parts.statefile.read(parts.settings.clock.now())
        return Surroundings(
            state=state or parts.refresh.unwritten(Moments(parts.reference)),
            looked_at=None if seen is None else seen.written_at,
            unwritable=parts.statefile.trouble,
        )

    @on_tables
    def history(self, name: Name | None = None, limit: int = 40) -> list[RunRecord]:
        """Return the newest runs, newest first, of one task or of all."""
        check_limit("limit", limit)
        wanted = None if name is None else to_name(name)
        found = self._managing().store.history.newest(wanted, limit)
        if not found and wanted is not None and wanted not in self._parts.registry:
            self._row(wanted)
        return found

    def log_tail(self, lines: int = 40) -> list[str]:
        """Return the newest lines of this host's log file, newest first."""
        check_limit("lines", lines)
        return self._parts.logfile.tail(lines)

    @on_tables
    def state(self) -> State:
        """Return what the state file says, asking the database where it says nothing."""
        parts = self._parts
        found = parts.statefile.read(parts.settings.clock.now())
        if found is not None:
            return found
        self._managing()
        return self._refresh()

    @on_tables
    def set_triggers(self, *, traffic: bool | None = None, admin: bool | None = None) -> None:
        """Switch requests on or off as a trigger, for all hosts within a minute.

        `traffic` is any request, `admin` one on the app's own admin paths. The cron URL, the CLI
        and direct calls run regardless.
        """
        parts = self._managing()
        for name, value in (("traffic", traffic), ("admin", admin)):
            if value is None:
                continue
            if not isinstance(value, bool):
                message = f"{name}={value!r}: pass True or False"
                raise ConfigurationError(message)
            parts.store.shared.put_setting(name, ON if value else OFF, self._moment(None))
        self._refresh(settings=True)

    @on_tables
    def prune(self) -> int:
        """Delete history beyond `keep_runs` and `keep_age` at once, and expired once keys.

        Returns how many runs went.
        """
        parts = self._managing()
        gone = sum(
            parts.store.history.prune_beyond(name, self._parts.settings.keep_runs)
            for name in (row.name for row in parts.store.recurring.all())
        )
        before = self._moment(None) - self._parts.settings.keep_age
        after: int | None = 0
        while after is not None:
            deleted, after = parts.store.history.prune_older(before, after)
            gone += deleted
        while parts.store.once.prune(self._moment(None)):
            pass
        return gone

    def migrate(self) -> None:
        """Bring the database's tables to this version's shape."""
        parts = self._parts
        parts.runner.look_at_file()
        migrate(parts.store.engine)
        parts.facts.installed = True

    def acted(self, who: str, verb: str, name: str | None = None, detail: str = "") -> None:
        """Note in the database who did what."""
        at = self._moment(None)
        self._parts.store.shared.act(who=who, verb=verb, name=name, detail=detail, at=at)

    def check(self) -> list[Problem]:
        """Return what is wrong or advisable, each with what to do; empty if nothing is."""
        return check(self._parts)

    def _managing(self) -> Parts:
        parts = self._parts
        if not parts.runner.install():
            raise NotInstalledError
        parts.runner.look_at_clock()
        parts.sync.bring_in_when_due(self._moment(None))
        return parts

    def _row(self, name: str) -> TaskRow:
        row = self._parts.store.recurring.of(name)
        if row is None:
            raise _unknown(name)
        return row

    def _moment(self, now: Moment) -> datetime:
        return self._parts.reference.now() if now is None else to_moment(now)

    def _refresh(self, *, settings: bool = False) -> State:
        return self._parts.refresh_state(settings=settings)


def check_limit(name: str, value: object) -> None:
    """Check how many of something are asked for; raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_ROWS:
        return
    message = f"{name}={shown(value)}: pass a whole number from 1 up to {MOST_ROWS}"
    raise ValueError(message)


def to_name(name: Name) -> str:
    """Return a task's name, of a name or a task; raises UnknownTaskError for anything else."""
    if isinstance(name, Task):
        return name.name
    if isinstance(name, str) and name == storable(name):
        return name
    message = f"{shown(name)} is no task; pass a task's name or the task"
    raise UnknownTaskError(message)


def _unknown(name: str) -> UnknownTaskError:
    return UnknownTaskError(f"no row is named {name!r}; `lazycron list` shows what there is")
