"""Why a task did not run: a sentence from the facts in row, file and process."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from lazycron.durations import roughly
from lazycron.errors import ScheduleError
from lazycron.facts import Facts
from lazycron.schedules import Schedule
from lazycron.statefile import State
from lazycron.store import TaskRow
from lazycron.tasks import Task


class Reason(StrEnum):
    """What keeps a task from running."""

    UNKNOWN_NAME = "unknown_name"
    UNKNOWN_CODE = "unknown_code"
    NO_SCHEDULE = "no_schedule"
    NO_ROW = "no_row"
    NOT_INSTALLED = "not_installed"
    UNREACHABLE = "unreachable"
    DISABLED = "disabled"
    RUNNING = "running"
    HANGING = "hanging"
    LOST = "lost"
    FAILED = "failed"
    POSTPONED = "postponed"
    NOT_DUE = "not_due"
    DUE = "due"
    SWITCHED_OFF = "switched_off"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task is not running now; `str()` is a sentence or a few."""

    reason: Reason
    text: str

    def __str__(self) -> str:
        return self.text


class Why:
    """Explains rows; `hanging_after` is the budget's seconds, beyond which a run is called that."""

    def __init__(
        self,
        facts: Facts,
        schedule_of: Callable[[str, str], Schedule],
        hanging_after: timedelta,
        *,
        switched_on: bool,
    ) -> None:
        self._facts = facts
        self._schedule_of = schedule_of
        self._hanging_after = hanging_after
        self._switched_on = switched_on

    def about(self, task: Task | None, row: TaskRow | None, now: datetime) -> Explanation:
        """Explain one task's row as it stands."""
        if row is None:
            return _without_row(task)
        if task is None:
            since = f"since {_at(row.seen_at)}" if row.seen_at else "yet"
            return Explanation(
                Reason.UNKNOWN_CODE,
                f"no code of this process has known {row.name} {since}; "
                "it runs again when its code is back",
            )
        if row.running:
            return self._claimed(row, now)
        if not row.enabled:
            return Explanation(
                Reason.DISABLED, f"disabled; `lazycron enable {row.name}` lets it run again"
            )
        if row.next_run_at > now:
            return _waiting(row)
        return Explanation(
            Reason.DUE,
            f"due since {_at(row.next_run_at)}; it runs in the next tick whose budget reaches it",
        )

    def is_hanging(self, row: TaskRow, now: datetime) -> bool:
        """Tell whether a claimed row has been running longer than a tick's budget."""
        started = row.last_run_at
        return row.running and started is not None and now - started > self._hanging_after

    def is_late(self, row: TaskRow, now: datetime) -> bool:
        """Tell whether a row is late: it hangs, or its next regular time has passed as well."""
        if self.is_hanging(row, now):
            return True
        if not row.enabled:
            return False
        try:
            schedule = self._schedule_of(row.name, row.schedule_now)
        except ScheduleError:
            return False
        following = schedule.after_run(row.scheduled_for, schedule.due_for(row.scheduled_for))
        return schedule.due_for(following) <= now

    def not_installed(self) -> Explanation:
        """Explain that there are no tables."""
        text = "the database has no lazycron tables; `lazycron migrate` makes them"
        return Explanation(Reason.NOT_INSTALLED, text)

    def unreachable(self, error: str) -> Explanation:
        """Explain that the database cannot be asked."""
        since = f" since {_at(self._facts.outage.since)}" if self._facts.outage else ""
        text = f"the database is unreachable{since} ({error}); it is tried again every 30 seconds"
        return Explanation(Reason.UNREACHABLE, text)

    def with_switches(self, found: Explanation, state: State) -> Explanation:
        """Add what keeps visitors from running it, where that matters to a waiting task."""
        if found.reason not in (Reason.DUE, Reason.NOT_DUE, Reason.FAILED, Reason.POSTPONED):
            return found
        if not self._switched_on:
            also = "LAZYCRON=off (or enabled=False) keeps requests and the loop from running tasks"
        elif not state.traffic:
            also = "visitors' requests are switched off as a trigger (`lazycron triggers`)"
        else:
            return found
        reason = Reason.SWITCHED_OFF if found.reason is Reason.DUE else found.reason
        return Explanation(reason, f"{found.text}. {also}; the cron URL and the CLI still run it")

    def _claimed(self, row: TaskRow, now: datetime) -> Explanation:
        started = row.last_run_at or now
        since = f"since {_at(started)} ({roughly(now - started)}) in {row.locked_by}"
        if row.next_run_at <= now:
            return Explanation(
                Reason.LOST,
                f"was running {since}, whose lease ended at {_at(row.next_run_at)}; "
                "the next tick records it as lost and runs it again",
            )
        lease = f"lease until {_at(row.next_run_at)}"
        if self.is_hanging(row, now):
            return Explanation(
                Reason.HANGING,
                f"hanging: running {since}, {lease}; "
                f"`lazycron release {row.name} --force` frees it",
            )
        return Explanation(Reason.RUNNING, f"running {since}, {lease}; it runs again after that")


def _without_row(task: Task | None) -> Explanation:
    if task is None:
        return Explanation(Reason.UNKNOWN_NAME, "no task and no row has this name")
    if task.schedule is None:
        return Explanation(Reason.NO_SCHEDULE, "it has no schedule: it runs when it is enqueued")
    return Explanation(Reason.NO_ROW, "it has no row yet; the next tick makes it")


def _waiting(row: TaskRow) -> Explanation:
    until = f"not due until {_at(row.next_run_at)}"
    if row.last_status == "failed":
        times = "once" if row.failures == 1 else f"{row.failures} times in a row"
        text = f"{until}: failed {times}, last with {row.last_message}"
        return Explanation(Reason.FAILED, text)
    if row.last_status == "postponed":
        return Explanation(Reason.POSTPONED, f"{until}: postponed, {row.last_message}")
    if row.last_status == "lost":
        return Explanation(Reason.LOST, f"{until}: its last run was lost")
    return Explanation(Reason.NOT_DUE, until)


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
