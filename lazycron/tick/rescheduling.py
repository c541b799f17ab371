"""Where a row goes when its schedule was changed, or the clock set back: values in, values out.

A row that is claimed stays where it is; the end of its run settles it by what counts then.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lazycron.model.settle import Policy, Status
from lazycron.schedules.shaped import Every, Schedule
from lazycron.store import Place, TaskRow

GRACE = timedelta(seconds=1)
# Hosts that share an SQLite file or a table may differ by so much without a clock being wrong.
SKEW = timedelta(minutes=1)
NONE = timedelta(0)
ASKED_TO_WAIT = (Status.POSTPONED, Status.PAUSED)


@dataclass(frozen=True, slots=True)
class Standing:
    """A free row as it stands: its own schedule, None where unreadable, and its task's first run.

    Most of what is asked here is which of its moments are past.
    """

    row: TaskRow
    schedule: Schedule | None
    first_run: timedelta | None = None

    @property
    def place(self) -> Place:
        """Where the row is."""
        return Place(self.row.next_run_at, self.row.scheduled_for, self.row.attempts)

    @property
    def stamp(self) -> datetime:
        """When the row last began a run, else when it was made."""
        return self.row.last_run_at or self.row.created_at

    @property
    def asks_to_wait(self) -> bool:
        """Whether its run has begun and goes on at a moment of its own."""
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
        """Return when the row's own schedule has it due for its nominal time."""
        row = self.row
        if self.schedule is None:
            return row.next_run_at
        return self.schedule.due_for(row.scheduled_for, row.last_run_at)

    def is_owed(self, now: datetime) -> bool:
        """Tell whether a due time has come that is still to be run: waiting for a try or a window.

        A disabled row is not due, so nothing is owed.
        """
        row = self.row
        if not row.enabled or row.scheduled_for > now:
            return False
        return row.next_run_at <= now or self.is_tried_again or self.due_by_schedule() <= now


def after_change(standing: Standing, schedule: Schedule, now: datetime) -> Place:
    """Return a row's place once a new schedule counts: code, override, reset, window, jitter, zone.

    A time of the new schedule that lies before `now` was never due, so no change makes a row run.
    What is owed under the old schedule is still run once, at the latest at the new one's next time.
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
        # Only the shape is new: the phase stays.
        nominal = schedule.admitted(min(nominal, row.scheduled_for))
    due = schedule.due_for(nominal)
    if due <= now:
        due = nominal = schedule.admitted(now)
    return Place(due, nominal, 0)


def _waits_for_jitter(standing: Standing, schedule: Schedule, now: datetime) -> bool:
    """Tell whether a nominal time that both schedules have is only put off by jitter."""
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
    """Return the place of a row that a clock put ahead has sent too far; None: it is not.

    It is judged by how far ahead a row can be by the rules, so a second look finds nothing to do.
    Only what the rules leave open, a first run or a moment a run asked for, comes nearer by as much
    as its stamp lies in the future; with it the stamp is put right.
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
        # A crontab's nominal time that has not come is no reason to try again before.
        if is_crontab and (row.scheduled_for > now + SKEW or last.next_run_at < due):
            return last
        return replace(place, next_run_at=due)
    if row.scheduled_for > last.scheduled_for + GRACE:
        return last
    if standing.is_owed(now):  # it was put off to a window
        return replace(place, next_run_at=min(row.next_run_at, schedule.admitted(now)))
    return place


def _last_regular(standing: Standing, schedule: Schedule, now: datetime) -> Place:
    """Return the latest place that the schedule gives a row settled at `now` or before."""
    if isinstance(schedule.rhythm, Every):
        nominal = schedule.admitted(schedule.rhythm.next_after(now))
    else:
        # A host a little ahead has run the next time already.
        is_skewed = now < standing.stamp <= now + SKEW
        nominal = schedule.following(standing.stamp if is_skewed else now)
    return Place(schedule.due_for(nominal), nominal, 0)


def _wait(row: TaskRow, policy: Policy) -> timedelta:
    if row.last_status == Status.LOST:
        return policy.retry.after_loss(row.losses, policy.base)
    return policy.retry.after_failure(row.failures, policy.base)
