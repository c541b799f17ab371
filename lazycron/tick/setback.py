"""After the clock was set back: rows stamped in the future must not sleep until then."""

from datetime import datetime, timedelta

from lazycron.model.settle import Policy, Status
from lazycron.schedules.shaped import Crontab
from lazycron.store import MISSED, Store, TaskRow

GRACE = timedelta(seconds=1)


def mend(store: Store, row: TaskRow, now: datetime, lease: timedelta, policy: Policy) -> bool:
    """Bring a row back that was stamped later than now; return whether it was moved.

    A free row is due as long after now as it was after its stamp, a crontab's at its next regular
    time. A claim ends a lease after now, unless its live holder renews it, which he does sooner.
    A run that was lost has no stamp of its burial: it waits no longer than if it were buried now.
    The policy's schedule is the row's, None where that cannot be read.
    """
    stamp = row.last_run_at or row.created_at
    if row.last_status == Status.LOST and not row.running and stamp <= now:
        due = _after_loss(row, policy, now)
        return due + GRACE < row.next_run_at and store.recurring.move(row, due)
    if stamp <= now + GRACE or row.next_run_at < stamp:
        return False
    if row.running:
        until = now + lease
        return until < row.next_run_at and store.recurring.shorten_lease(row, until)
    due = policy.admitted(min(now + (row.next_run_at - stamp), _regular(row, policy, now)))
    return due < row.next_run_at and store.recurring.move(row, due)


def _after_loss(row: TaskRow, policy: Policy, now: datetime) -> datetime:
    if policy.schedule is None:
        return row.next_run_at
    if policy.on_lost == "skip":
        return policy.schedule.next_after(now)
    return policy.admitted(now + policy.retry.after_loss(row.losses, policy.base))


def _regular(row: TaskRow, policy: Policy, now: datetime) -> datetime:
    schedule = policy.schedule
    is_regular = row.last_status in (None, Status.OK, MISSED)
    if schedule is not None and isinstance(schedule.rhythm, Crontab) and is_regular:
        return schedule.next_after(now)
    return row.next_run_at
