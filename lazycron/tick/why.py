"""Why a task did not run: a sentence from the facts in row, file and process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lazycron.durations import in_words, roughly
from lazycron.errors import ScheduleError
from lazycron.model.lateness import interval_at, late_after
from lazycron.model.settle import Status
from lazycron.model.task import Task
from lazycron.process import MOST_HANGING, Activity, Facts
from lazycron.schedules.shaped import Schedule, Shaped
from lazycron.statefile import State
from lazycron.store import MISSED, Action, JobCounts, TaskRow
from lazycron.texts import at
from lazycron.tick.claimed import Claimed
from lazycron.tick.missed import grace_of
from lazycron.tick.reasons import Explanation, Reason, unlooked

__all__ = ["Explanation", "Reason", "Surroundings", "Why", "with_jobs"]

DOORS = {
    "traffic": "requests",
    "admin": "requests below admin_paths",
    "url": "the cron URL",
    "cli": "`lazycron run`",
    "loop": "`lazycron run --loop`",
    "manual": "cron.run_due()",
}
# What the switches would keep from running once it is due is told before that, too.
WAITING = (Reason.NOT_DUE, Reason.FAILED, Reason.POSTPONED, Reason.MISSED, Reason.WINDOW)
LONGEST_PROGRESS = 60
SLACK = timedelta(seconds=1)
ASKED = "the cron URL and `lazycron run` still run it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a row knows nothing of: the switches, whether anybody looks, and the state file.

    `looked_at` is when a process of this host last wrote the state file, `unwritable` says why this
    process cannot, and `unlooked_at` is when one ended before its look.
    """

    state: State
    looked_at: datetime | None
    unwritable: str | None
    unlooked_at: datetime | None = None


class Why:
    """Explains rows; `claimed` explains those that somebody holds."""

    def __init__(
        self,
        facts: Facts,
        schedule_of: Callable[[str, str], Schedule],
        switched_by: Callable[[str], Action | None],
        activity: Activity,
        claimed: Claimed,
        *,
        switched_on: bool,
    ) -> None:
        self._facts = facts
        self._schedule_of = schedule_of
        self._switched_by = switched_by
        self._activity = activity
        self.claimed = claimed
        self._switched_on = switched_on

    def about(
        self,
        task: Task | None,
        row: TaskRow | None,
        now: datetime,
        *,
        trigger: str = "traffic",
        around: Surroundings | None = None,
    ) -> Explanation:
        """Explain one task's row as it stands, to a tick of this trigger.

        `around` is None in a tick, which needs no one else to run what is due.
        """
        if row is None:
            return _without_row(task)
        if task is None:
            since = f"since {at(row.seen_at)}" if row.seen_at else "yet"
            return Explanation(
                Reason.UNKNOWN_CODE,
                f"no code of this process has known {row.name} {since}; "
                "it runs again when its code is back",
            )
        if row.running:
            return self.claimed.about(row, now, f"lazycron release {row.name}")
        if not row.enabled:
            return self._disabled(task, row)
        if row.next_run_at > now:
            return self._with_switches(self._waiting(row, now), around, now)
        return self._due(task, row, now, trigger, around)

    def is_late(self, row: TaskRow, now: datetime) -> bool:
        """Tell whether a row has been due, or running, for more than twice its interval."""
        schedule = self._schedule(row)
        if not row.enabled or schedule is None:
            return False
        since = row.last_run_at if row.running else row.next_run_at
        return since is not None and now - since > late_after(row.scheduled_for, schedule)

    def not_installed(self) -> Explanation:
        """Explain that there are no tables."""
        text = "the database has no lazycron tables; `lazycron migrate` makes them"
        return Explanation(Reason.NOT_INSTALLED, text)

    def unreachable(self, error: str) -> Explanation:
        """Explain that the database cannot be asked."""
        since = f" since {at(self._facts.outage.since)}" if self._facts.outage else ""
        text = (
            f"the database is unreachable{since} ({error}); it is tried again every 30 seconds, "
            "and what is due runs when it is back"
        )
        return Explanation(Reason.UNREACHABLE, text)

    # rows that are not due

    def _disabled(self, task: Task, row: TaskRow) -> Explanation:
        last = self._switched_by(row.name)
        if last is None and not task.enabled:
            how = "disabled since its row was made, as its code says"
            return self.held(row.name, how)
        return self.held(row.name)

    def held(self, name: str, how: str = "disabled") -> Explanation:
        """Explain that a task is disabled, or that the jobs of one without a row are held back."""
        last = self._switched_by(name)
        if last is not None and last.verb == "disable":
            how = f"disabled by {last.who} at {at(last.at)}"
        return Explanation(Reason.DISABLED, f"{how}; `lazycron enable {name}` lets it run again")

    def _waiting(self, row: TaskRow, now: datetime) -> Explanation:
        until, ends = f"not due until {at(row.next_run_at)}", "the first tick after that runs it"
        window = self._window_waited_for(row, now)
        if row.last_status == Status.FAILED:
            times = "once" if row.failures == 1 else f"{row.failures} times in a row"
            how = f"failed {times}, last with {row.last_message}"
            reason, ends = Reason.FAILED, "the first tick after that tries again"
        elif row.last_status == Status.POSTPONED:
            reason, how = Reason.POSTPONED, f"postponed, {row.last_message}"
        elif row.last_status == Status.PAUSED:
            reason, how = Reason.PAUSED, _paused(row)
            ends = "the first tick after that goes on with it"
        elif row.last_status == Status.LOST:
            reason, how = Reason.LOST, "its last run was lost"
        elif row.last_status == MISSED:
            reason, how = Reason.MISSED, f"{(row.last_message or MISSED).rstrip('.')}"
        elif window is not None:
            reason, how, window = Reason.WINDOW, f"waiting for its window {window}", None
        else:
            return Explanation(Reason.NOT_DUE, f"{until}; {ends}")
        if window is not None:
            how += f", and waiting for its window {window}"
        return Explanation(reason, f"{until}: {how}; {ends}")

    def _window_waited_for(self, row: TaskRow, now: datetime) -> str | None:
        """Return the window, in words, if the row is due when it opens next, jitter apart."""
        schedule = self._schedule(row)
        if not isinstance(schedule, Shaped) or schedule.window is None:
            return None
        opening = schedule.admitted(now)
        if opening <= now or not opening <= row.next_run_at <= opening + schedule.jitter:
            return None
        return f"({schedule.window.text} in {schedule.window.tz})"

    def _with_switches(
        self, found: Explanation, around: Surroundings | None, now: datetime
    ) -> Explanation:
        """Add what will keep visitors from running it once it is due."""
        if around is None or found.reason not in WAITING:
            return found
        obstacle = self._switch(around, now)
        if obstacle is None or obstacle.reason is Reason.LOOP:
            return found
        return Explanation(found.reason, f"{found.text}. But {obstacle.text}")

    # rows that are due

    def _due(
        self, task: Task, row: TaskRow, now: datetime, trigger: str, around: Surroundings | None
    ) -> Explanation:
        due = f"due since {at(row.next_run_at)}"
        reason, ends = Reason.DUE, "it runs in the next tick whose budget reaches it"
        if row.last_status == Status.PAUSED:
            due, reason = f"{_paused(row)}, and {due}", Reason.PAUSED
            ends = "the next tick goes on with it"
        found = (
            self._outage()
            or self._too_late(task, row, now)
            or self._closed(row, now)
            or _barred(task, trigger)
            or (around and self._switch(around, now))
            or (around and self._hung_up(row))
            or self._budget(row)
            or (around and _unlooked(around))
            or (around and self._beats(row, around))
            or (around and _unwritable(around))
        )
        if not found:
            return Explanation(reason, f"{due}; {ends}")
        return Explanation(found.reason, f"{due}, but {found.text}")

    def _outage(self) -> Explanation | None:
        """Tell of a database that this process could read just now, but not tick on."""
        outage = self._facts.outage
        if outage is None:
            return None
        text = (
            f"the last tick could not work with the database, since {at(outage.since)} "
            f"({outage.error}): is it read-only? It is tried again every 30 seconds, and what is "
            "due runs when that works"
        )
        return Explanation(Reason.UNREACHABLE, text)

    def _too_late(self, task: Task, row: TaskRow, now: datetime) -> Explanation | None:
        schedule = self._schedule(row)
        grace = None if schedule is None else grace_of(task, row, schedule)
        if schedule is None or grace is None:
            return None
        if now - schedule.due_for(row.scheduled_for) <= grace:
            return None
        following = schedule.due_for(schedule.after_missed(row.scheduled_for, now))
        text = (
            f"its grace of {in_words(grace)} is over: the next tick passes it over, and it runs at "
            f"{at(following)}, or now by `lazycron run {row.name}`"
        )
        return Explanation(Reason.MISSED, text)

    def _closed(self, row: TaskRow, now: datetime) -> Explanation | None:
        schedule = self._schedule(row)
        if not isinstance(schedule, Shaped) or schedule.window is None:
            return None
        opening = schedule.admitted(now)
        if opening <= now:
            return None
        window = f"({schedule.window.text} in {schedule.window.tz})"
        text = (
            f"waiting for its window {window}; it runs when that opens, at {at(opening)}, or by "
            f"`lazycron run {row.name}`"
        )
        return Explanation(Reason.WINDOW, text)

    def _switch(self, around: Surroundings, now: datetime) -> Explanation | None:
        """Tell what keeps requests of this process from running anything."""
        state = around.state
        if not self._switched_on:
            off = "LAZYCRON=off (or enabled=False) keeps requests and the loop from running tasks"
            return Explanation(Reason.OFF, f"{off}; {ASKED}")
        if state.loop_is_alive(now) and state.loop_at is not None:
            text = (
                f"requests stand back for the `lazycron run --loop` last heard of at "
                f"{at(state.loop_at)}; that loop runs it, and requests if it falls silent"
            )
            return Explanation(Reason.LOOP, text)
        if not state.traffic:
            off = "visitors' requests are switched off as a trigger"
            on = "`lazycron triggers --traffic on` lets them run it"
            return Explanation(Reason.SWITCHED_OFF, f"{off}; {ASKED}, and {on} again")
        return None

    def _hung_up(self, row: TaskRow) -> Explanation | None:
        if self._activity.hanging(self.claimed.budget) < MOST_HANGING:
            return None
        text = (
            f"{MOST_HANGING} ticks of this process hang in a task each, which is as many as it has;"
            f" it runs when one of them ends, in another process, or by `lazycron run {row.name}`"
        )
        return Explanation(Reason.HANGING_TICKS, text)

    def _budget(self, row: TaskRow) -> Explanation | None:
        facts = self._facts
        used_up = facts.last_stop in ("tasks", "seconds")
        if not used_up or facts.last_tick_at is None or facts.last_tick_at < row.next_run_at:
            return None
        of = "runs" if facts.last_stop == "tasks" else "seconds"
        by = f" by {', '.join(facts.last_ran)}" if facts.last_ran else ""
        text = (
            f"the budget's {of} of the tick at {at(facts.last_tick_at)} were used up{by}; what "
            "has been due longest goes first, so it runs in one of the next ticks"
        )
        return Explanation(Reason.BUDGET, text)

    def _beats(self, row: TaskRow, around: Surroundings) -> Explanation | None:
        facts, schedule = self._facts, self._schedule(row)
        monitor = "an uptime monitor that visits the cron URL would keep it on time"
        if schedule is not None and facts.gaps:
            interval = interval_at(row.scheduled_for, schedule)
            longest, count = max(facts.gaps), len(facts.gaps)
            if longest > interval:
                gaps = f"the longest of the last {count} gaps" if count > 1 else "the last gap"
                text = (
                    f"requests come more rarely than its {roughly(interval)} ({gaps} was "
                    f"{roughly(longest)}); it runs at the next one, and {monitor}"
                )
                return Explanation(Reason.RARE_BEATS, text)
        signs = (facts.last_request_at, facts.last_tick_at, around.looked_at)
        last = max((sign for sign in signs if sign is not None), default=None)
        # What a tick has paused is due just after its start.
        if last is not None and last >= row.next_run_at - SLACK:
            return None
        since = "yet" if last is None else f"since {at(last)}"
        text = f"no request has come {since}; it runs at the next one, and {monitor}"
        return Explanation(Reason.NO_REQUEST, text)

    def _schedule(self, row: TaskRow) -> Schedule | None:
        try:
            return self._schedule_of(row.name, row.schedule_now)
        except ScheduleError:
            return None


def with_jobs(
    found: Explanation,
    name: str,
    jobs: JobCounts | None,
    running: Sequence[Explanation] = (),
) -> Explanation:
    """Add what is known of a task's jobs, which may be all that there is of it."""
    if jobs is None:
        return found
    dead = f"{jobs.dead} dead (`lazycron retry ID` starts one again)"
    counted = ((jobs.waiting, f"{jobs.waiting} waiting"), (jobs.running, f"{jobs.running} running"))
    parts = [words for number, words in (*counted, (jobs.dead, dead)) if number]
    held = f"it has jobs: {', '.join(parts)}"
    if jobs.next is not None:
        held += f", the first due at {at(jobs.next)}"
    held = "; ".join([held, *map(str, running)])
    if found.reason is Reason.UNKNOWN_NAME:
        text = f"no code of this process knows {name}; {held}; they run when its code is back"
        return Explanation(Reason.UNKNOWN_CODE, text)
    return Explanation(found.reason, f"{found.text}; {held}")


def _without_row(task: Task | None) -> Explanation:
    if task is None:
        return Explanation(Reason.UNKNOWN_NAME, "no task and no row has this name")
    if task.schedule is None:
        return Explanation(Reason.NO_SCHEDULE, "it has no schedule: it runs when it is enqueued")
    return Explanation(Reason.NO_ROW, "it has no row yet; the next tick makes it")


def _paused(row: TaskRow) -> str:
    done, total = row.progress_done, row.progress_total
    if done is None:
        short = isinstance(row.progress, int | str) and len(str(row.progress)) <= LONGEST_PROGRESS
        return f"paused at {row.progress}" if short else "paused"
    return f"paused at {done}" + ("" if total is None else f" of {total}")


def _barred(task: Task, trigger: str) -> Explanation | None:
    if task.only_on is None or task.runs_on(trigger):
        return None
    doors = [DOORS[one] for one in task.only_on]
    text = f"only on {', '.join(task.only_on)}; it runs by {' or '.join(doors)}"
    return Explanation(Reason.ONLY_ON, text)


def _unlooked(around: Surroundings) -> Explanation | None:
    """Tell that processes of this host end before they have looked."""
    if around.unlooked_at is None:
        return None
    return Explanation(Reason.NO_LOOK, unlooked(around.unlooked_at))


def _unwritable(around: Surroundings) -> Explanation | None:
    if around.unwritable is None:
        return None
    text = (
        f"the state file cannot be written ({around.unwritable}), so that each process has to ask "
        "the database itself; it runs within a minute of requests, and sooner once that is mended"
    )
    return Explanation(Reason.STATE_FILE, text)
