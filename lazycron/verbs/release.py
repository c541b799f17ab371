"""End a claim whose run hangs or has died, a task's or a job's; the run is recorded as lost."""

from collections.abc import Callable

from lazycron.durations import MICROSECOND
from lazycron.errors import BusyError
from lazycron.model.lateness import is_renewed
from lazycron.model.settle import Outcome, Status, settle
from lazycron.store import Abandoned
from lazycron.tick.claimed import PRICE
from lazycron.verbs.base import MOST_TRIES, Name, manage, on_tables, row_of, to_name
from lazycron.verbs.jobs import job_row
from lazycron.wiring import Parts


@on_tables
def release(parts: Parts, name: Name, *, force: bool) -> bool:
    """End the claim of a task's recurring row; False where the row is free."""
    name = to_name(name)
    manage(parts)
    row_of(parts, name)
    return _release(parts, lambda: parts.store.claim_of(name), name, force=force)


@on_tables
def release_job(parts: Parts, job_id: int, *, force: bool) -> bool:
    """End a job's claim; False where the job is not running."""
    manage(parts)
    what = f"job {job_id} of {job_row(parts, job_id).name}"
    return _release(parts, lambda: parts.store.jobs.claim_of(job_id), what, force=force)


def _release(parts: Parts, look: Callable[[], Abandoned | None], what: str, *, force: bool) -> bool:
    for _ in range(MOST_TRIES):
        held = look()
        if held is None:
            return False
        if _release_one(parts, held, what, force=force):
            return True
    message = f"{what} changed at each of {MOST_TRIES} looks"
    raise BusyError(message)


def _release_one(parts: Parts, held: Abandoned, what: str, *, force: bool) -> bool:
    """Take a claim off its row; False where either has changed since it was seen."""
    claim, now = held.claim, parts.reference.now()
    if not force and is_renewed(claim.lease_until, parts.sync.lease_of_name(claim.name), now):
        message = (
            f"{what} is running in {held.by}, which renewed its lease lately; "
            f"force=True (--force) releases it anyway, and {PRICE}"
        )
        raise BusyError(message)
    outcome = Outcome(status=Status.LOST, message="Lost: released by hand.", ms=None)
    settlement = settle(
        claim,
        outcome,
        parts.registry.policy_of(claim),
        now=now,
        # Not now: a tick under way that began at this very moment must not run the row again.
        earliest=now + MICROSECOND,
    )
    released = parts.store.release(settlement, held.by)
    if released:
        rest = f"{claim.trigger}  {outcome.message}"
        parts.logfile.note(now, claim.name, Status.LOST, None, rest)
        parts.refresh_state()
    return released
