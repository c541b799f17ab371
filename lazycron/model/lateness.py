"""When a row or a job is late, and whether a claim's lease is still renewed."""

from datetime import datetime, timedelta

from lazycron.model.settle import Claim
from lazycron.schedules.shaped import Schedule

# A task is late once it has waited or run for more than this many of its intervals.
INTERVALS = 2
# A job has no interval.
JOB_LATE_AFTER = timedelta(hours=1)


def interval_at(nominal: datetime, schedule: Schedule) -> timedelta:
    """Return how long after a due time the next regular one is."""
    due = schedule.due_for(nominal)
    return schedule.due_for(schedule.after_run(nominal, due)) - due


def late_after(nominal: datetime, schedule: Schedule) -> timedelta:
    """Return how long a task may be due, or run, before it is late."""
    return INTERVALS * interval_at(nominal, schedule)


def renewed_at(lease_until: datetime, lease: timedelta) -> datetime:
    """Return when a claim was made or last renewed."""
    return lease_until - lease


def is_renewed(lease_until: datetime, lease: timedelta, now: datetime) -> bool:
    """Tell whether a lease was renewed lately: a live run renews it after each third of it."""
    return now - renewed_at(lease_until, lease) < lease / 2


def is_job_late(since: datetime | None, now: datetime) -> bool:
    """Tell whether a job has been due, or running, since so long ago that it is late."""
    return since is not None and now - since > JOB_LATE_AFTER


def with_waits(claim: Claim, tick: datetime, refused_since: datetime | None) -> dict[str, int]:
    """Return a claim's counters with how long its row was due before, in seconds, by the cause.

    Until the tick's start it waited for a beat, or for the database's lock since a tick of this
    process was refused it; after that for the runs before it, which is for the budget. Retries and
    what goes on have waited for another reason.
    """
    counters = dict(claim.counters)
    if claim.attempt != 1 or claim.goes_on or claim.losses:
        return counters
    due, locked = claim.scheduled_for, min(refused_since or tick, tick)
    waits = {
        "waited_beat": locked - due,
        "waited_lock": tick - max(due, locked),
        "waited_budget": claim.started_at - max(due, tick),
    }
    for name, wait in waits.items():
        seconds = round(wait.total_seconds())
        if seconds > 0:
            counters[name] = counters.get(name, 0) + seconds
    return counters
