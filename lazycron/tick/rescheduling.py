"""When a row is due after its schedule changed or the clock was set back: values in, values out.

A claimed row stays as it is; the end of its run settles it by the schedule of that moment.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lazycron.model.settle import Policy, Status
from lazycron.schedules.shaped import Every, Schedule
from lazycron.store import Place, TaskRow

GRACE = timedelta(seconds=1)
# The clocks of hosts that share an SQLite file or a table may differ by this much.
SKEW = timedelta(minutes=1)
NONE = timedelta(0)
ASKED_TO_WAIT = (Status.POSTPONED, Status.PAUSED)


@dataclass(frozen=True, slots=True)
class Standing:
    """A free row: its own schedule, None where unreadable, and its task's first run.

    Most methods tell which of its moments are past.
    """

    row: TaskRow
    schedule: Schedule | None
    first_run: timedelta | None = None

    @property
    def place(self) -> Place:
        """The row's place."""
        return Place(self.row.next_run_at, self.row.scheduled_for, self.row.attempts)

    @property
    def stamp(self) -> datetime:
        """When the row last began a run, else when it was made."""
        return self.row.last_run_at or self.row.created_at

    @property
    def asks_to_wait(self) -> bool:
        """Whether its run has begun and goes on at a moment that it asked for."""
        return self.row.last_status in ASKED_TO_WAIT

    @property
    def is_tried_again(self) -> bool:
        """Whether a due time that failed or was lost waits for another try."""
        return self.row.attempts > 0 and not self.asks_to_wait

    @property
    def is_first(self) -> bool:
        """Whether the row waits for the moment that `first_run` names."""
        row = self.row
        if self.first_run is None or row.last_run_at is not None or row.last_status is not None:
            return False
        first = row.created_at + self.first_run
        return row.scheduled_for == (self.schedule.admitted(first) if self.schedule else first)

    def due_by_schedule(self) -> datetime:
        """Return when the row is due for its nominal time by its own schedule."""
        row = self.row
        if self.schedule is None:
            return row.next_run_at
        return self.schedule.due_for(row.scheduled_for, row.last_run_at)

    def is_owed(self, now: datetime) -> bool:
        """Tell whether a past due time still has to run: it waits for a retry or a window.

        A disabled row is not due, so nothing is owed.
        """
        row = self.row
        if not row.enabled or row.scheduled_for > now:
            return False
        return row.next_run_at <= now or self.is_tried_again or self.due_by_schedule() <= now


def after_change(standing: Standing, schedule: Schedule, now: datetime) -> Place:
    """Return a row's place under a new schedule: code, override, reset, window, jitter, zone.

    A time of the new schedule before `now` was never due, so a change alone makes no row run. What
    is owed under the old schedule is still run once, at the latest at the new one's next time.
    """
    row = standing.row
    if row.running:
        return standing.place
    regular = _regular(standing, schedule, now)
    if standing.asks_to_wait:
        at = now if row.last_status == Status.PAUSED else row.next_run_at
        return replace(standing.place, next_run_at=_open(schedule, min(at, row.next_run_at), now))
    keeps = standing.is_owed(now) or standing.is_first or _waits_for_jitter(standing, schedule, now)
    if keeps and row.next_run_at <= max(now, regular.next_run_at):
        return replace(standing.place, next_run_at=_open(schedule, row.next_run_at, now))
    return regular


def _regular(standing: Standing, schedule: Schedule, now: datetime) -> Place:
    """Return the new schedule's first time, as if nothing were owed."""
    row, last = standing.row, min(standing.stamp, now + SKEW)
    if not isinstance(schedule.rhythm, Every):
        nominal = schedule.following(max(now, last))
        return Place(schedule.due_for(nominal), nominal, 0)
    nominal = schedule.nominal_after(min(last, now))
    old = standing.schedule
    if old is not None and old.rhythm == schedule.rhythm and row.scheduled_for > last:
        # Only window or jitter are new: the phase stays.
        nominal = schedule.admitted(min(nominal, row.scheduled_for))
    due = schedule.due_for(nominal)
    if due <= now:
        due = nominal = schedule.admitted(now)
    return Place(due, nominal, 0)


def _waits_for_jitter(standing: Standing, schedule: Schedule, now: datetime) -> bool:
    """Tell whether both schedules have this nominal time, and jitter only puts it off."""
    nominal = standing.row.scheduled_for
    return (
        standing.row.enabled
        and not isinstance(schedule.rhythm, Every)
        and nominal <= now < standing.row.next_run_at
        and schedule.following(nominal - GRACE) == nominal
    )


def _open(schedule: Schedule, moment: datetime, now: datetime) -> datetime:
    """Return a moment itself if the window is open then, else its next opening."""
    opening = schedule.admitted(max(moment, now))
    return moment if opening <= max(moment, now) else opening


def after_setback(
    standing: Standing, policy: Policy, now: datetime, lease: timedelta
) -> Place | None:
    """Return the new place of a row that a clock ahead has put too far; None if it has not.

    The rules say how far ahead a row can be, so a second look finds nothing to do. The rules leave
    a first run and a moment that a run asked for open: these move back by as much as the row's
    stamp lies in the future, and the stamp is corrected too.
    """
    row = standing.row
    ahead = standing.stamp - now
    if row.running:
        until = now + lease
        is_ahead = ahead > GRACE and until < row.next_run_at
        return replace(standing.place, next_run_at=until) if is_ahead else None
    if row.next_run_at <= now or policy.schedule is None:
        return None
    place = _within_rules(standing, policy, policy.schedule, now)
    moved = place.next_run_at + GRACE < row.next_run_at
    return place if moved or ahead > GRACE else None


def _within_rules(standing: Standing, policy: Policy, schedule: Schedule, now: datetime) -> Place:
    row, place = standing.row, standing.place
    ahead = max(NONE, standing.stamp - now)
    if standing.asks_to_wait or standing.is_first:
        due = schedule.admitted(max(now, row.next_run_at - ahead)) if ahead > GRACE else None
        nominal = due if due is not None and standing.is_first else row.scheduled_for
        return place if due is None else Place(due, nominal, row.attempts)
    last = _last_regular(standing, schedule, now)
    if standing.is_tried_again:
        due = min(row.next_run_at, schedule.admitted(now + _wait(row, policy)))
        is_crontab = not isinstance(schedule.rhythm, Every)
        # A crontab's nominal time that is still to come does not make the retry earlier.
        if is_crontab and (row.scheduled_for > now + SKEW or last.next_run_at < due):
            return last
        return replace(place, next_run_at=due)
    if row.scheduled_for > last.scheduled_for + GRACE:
        return last
    if standing.is_owed(now):  # it was put off to a window
        return replace(place, next_run_at=min(row.next_run_at, schedule.admitted(now)))
    return place


def _last_regular(standing: Standing, schedule: Schedule, now: datetime) -> Place:
    """Return the latest place that the schedule gives a row that is settled by `now`."""
    if isinstance(schedule.rhythm, Every):
        nominal = schedule.admitted(schedule.rhythm.next_after(now))
    else:
        # A host whose clock is a little ahead may already have run the next time.
        is_skewed = now < standing.stamp <= now + SKEW
        nominal = schedule.following(standing.stamp if is_skewed else now)
    return Place(schedule.due_for(nominal), nominal, 0)


def _wait(row: TaskRow, policy: Policy) -> timedelta:
    if row.last_status == Status.LOST:
        return policy.retry.after_loss(row.losses, policy.base)
    return policy.retry.after_failure(row.failures, policy.base)
