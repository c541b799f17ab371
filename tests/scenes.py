"""Rows brought into a state by hand: claimed, expired, buried and renewed meanwhile."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from lazycron import LazyCron
from lazycron.clock import EPOCH
from lazycron.model.settle import Claim, Outcome, Settlement, Status, settle
from lazycron.store import Stamp, TaskRow, new_token


def seconds(number: float) -> timedelta:
    """Say a number of seconds."""
    return timedelta(seconds=number)


def stamp_at(at: datetime, by: str = "host:1") -> Stamp:
    """Return what a claim at that moment writes, as another process would."""
    return Stamp(due=at, start=at, token=new_token(), by=by, trigger="manual", floor=EPOCH)


def claim(cron: LazyCron, at: datetime, by: str = "host:1") -> Claim:
    """Claim the oldest due row as a process would that dies at once."""
    found = cron._parts.store.claim(stamp_at(at, by))
    assert found is not None
    return found


def claim_by_name(cron: LazyCron, name: str, at: datetime) -> Claim:
    """Claim a task's row, due or not."""
    found = cron._parts.store.claim_by_name(name, stamp_at(at))
    assert found is not None
    return found


def settled(
    cron: LazyCron, claim: Claim, status: Status = Status.OK, now: datetime | None = None
) -> Settlement:
    """Settle a claim as a run of 1,500 ms would."""
    ended = now or claim.started_at + seconds(1.5)
    outcome = Outcome(status=status, ms=None if status is Status.LOST else 1500)
    policy = cron.registry.policy_of(claim)
    return settle(claim, outcome, policy, now=ended, earliest=claim.started_at)


def row_of(cron: LazyCron, name: str) -> TaskRow:
    """Read a task's row, which must be there."""
    found = cron._parts.store.recurring.of(name)
    assert found is not None
    return found


def statuses(cron: LazyCron, name: str | None = None) -> list[str]:
    """Read the history's statuses, oldest first."""
    return [run.status for run in reversed(cron._parts.store.history.newest(name, 1000))]


@dataclass(frozen=True)
class Seen:
    """What a row looks like afterwards, in seconds after the scene's beginning."""

    next: float
    due_for: float
    claimed: bool = False
    losses: int = 0
    history: tuple[str, ...] = ()


def seen(cron: LazyCron, name: str, base: datetime) -> Seen | None:
    """Look at a row and its history; None where the row is gone."""
    row = cron._parts.store.recurring.of(name)
    if row is None:
        return None
    return Seen(
        next=(row.next_run_at - base).total_seconds(),
        due_for=(row.scheduled_for - base).total_seconds(),
        claimed=row.running,
        losses=row.losses,
        history=tuple(statuses(cron, name)),
    )
