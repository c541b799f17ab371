"""From a claim and what its run came to, to the row's next state: values in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from lazycron.retry import Retry
from lazycron.schedules import Schedule

RECURRING = ""
LATE_AFTER = timedelta(minutes=1)
JOB_BASE = timedelta(seconds=30)
OnLost = Literal["rerun", "skip"]


class Status(StrEnum):
    """What a run came to."""

    OK = "ok"
    FAILED = "failed"
    POSTPONED = "postponed"
    PAUSED = "paused"
    LOST = "lost"


class State(StrEnum):
    """What a row is: one that may run, or a job that has given up."""

    ACTIVE = "active"
    DEAD = "dead"


# What becomes of a row: it stays, it goes (a job that is done), or it is kept as dead.
Ending = Literal["stays", "goes", "dies"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The exclusive right to run one row, until its lease ends; every later write carries `token`.

    `schedule` is the text the row was claimed with, `attempt` counts from 1, and `progress` and
    `arguments` are JSON texts. `scheduled_for` is the nominal due time being worked off.
    """

    id: int
    name: str
    key: str | None
    token: str
    schedule: str
    scheduled_for: datetime
    started_at: datetime
    lease_until: datetime
    trigger: str
    attempt: int
    failures: int
    losses: int
    arguments: str | None = None
    progress: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to, in texts every database can store.

    `again_at` is set for a postponed run; `interrupted` says that the process was asked to stop
    by a real signal or cancellation, which is obeyed once the outcome is recorded. `ms` is None
    where nobody could measure it: the run was lost.
    """

    status: Status
    message: str = "Done."
    ms: int | None = 0
    error: str | None = None
    result: str | None = None
    progress: str | None = None
    again_at: datetime | None = None
    interrupted: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a task's registration says about its next run."""

    schedule: Schedule | None
    retry: Retry
    on_lost: OnLost = "rerun"

    @property
    def base(self) -> timedelta:
        """The backoff's base where `Retry.base` names none."""
        return JOB_BASE if self.schedule is None else self.schedule.retry_base


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A row's next state, to be written under the claim's token with the run's history row."""

    claim: Claim
    outcome: Outcome
    finished_at: datetime
    next_run_at: datetime
    scheduled_for: datetime
    attempts: int
    failures: int
    losses: int
    counters: Mapping[str, int]
    ending: Ending = "stays"

    @property
    def is_over(self) -> bool:
        """Whether the run has ended: slices of one run share one history row."""
        return self.outcome.status is not Status.PAUSED


def settle(
    claim: Claim,
    outcome: Outcome,
    policy: Policy,
    *,
    now: datetime,
    earliest: datetime,
    replaced: bool = False,
) -> Settlement:
    """Decide what happens next to a row.

    `now` is when the run ended or was buried. Nothing becomes due before `earliest`, which is
    just after the tick's start, so that a row runs at most once in a tick. `replaced` says that a
    job's arguments were replaced while it ran: it is due at once, as if it had just been enqueued.
    """
    if replaced:
        step = _Step(now, now, attempts=0, failures=0)
    else:
        step = _STEPS[outcome.status](claim, outcome, policy, now)
    return Settlement(
        claim=claim,
        outcome=outcome,
        finished_at=now,
        next_run_at=max(step.next_run_at, earliest),
        scheduled_for=step.scheduled_for,
        attempts=step.attempts,
        failures=step.failures,
        losses=step.losses,
        counters=_count(claim, outcome),
        ending=step.ending,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    next_run_at: datetime
    scheduled_for: datetime
    attempts: int
    failures: int
    losses: int = 0
    ending: Ending = "stays"


def _after_ok(claim: Claim, outcome: Outcome, policy: Policy, now: datetime) -> _Step:
    del outcome
    if policy.schedule is None:
        ending: Ending = "stays" if claim.key == RECURRING else "goes"
        return _Step(now, claim.scheduled_for, attempts=0, failures=0, ending=ending)
    regular = policy.schedule.after_run(claim.scheduled_for, claim.started_at)
    return _Step(regular, regular, attempts=0, failures=0)


def _after_failure(claim: Claim, outcome: Outcome, policy: Policy, now: datetime) -> _Step:
    del outcome, now
    failures = claim.failures + 1
    again = claim.started_at + policy.retry.after_failure(failures, policy.base)
    regular = policy.schedule.latest_retry(claim.started_at) if policy.schedule else None
    if regular is not None and regular <= again:
        return _Step(regular, regular, attempts=0, failures=failures)
    ending = _ending(claim, policy)
    return _Step(again, claim.scheduled_for, claim.attempt, failures, ending=ending)


def _after_postponing(claim: Claim, outcome: Outcome, policy: Policy, now: datetime) -> _Step:
    del policy
    # Not an attempt: a job that waits for its precondition must not use up its limit.
    return _Step(outcome.again_at or now, claim.scheduled_for, claim.attempt - 1, claim.failures)


def _after_pause(claim: Claim, outcome: Outcome, policy: Policy, now: datetime) -> _Step:
    del outcome, policy
    return _Step(now, claim.scheduled_for, claim.attempt - 1, claim.failures)


def _after_loss(claim: Claim, outcome: Outcome, policy: Policy, now: datetime) -> _Step:
    del outcome
    losses = claim.losses + 1
    if policy.on_lost == "skip" and policy.schedule is not None:
        regular = policy.schedule.next_after(now)
        return _Step(regular, regular, attempts=0, failures=claim.failures, losses=losses)
    again = now + policy.retry.after_loss(losses, policy.base)
    ending: Ending = "stays"
    if claim.key != RECURRING:
        ending = "dies" if policy.on_lost == "skip" else _ending(claim, policy)
    return _Step(again, claim.scheduled_for, claim.attempt, claim.failures, losses, ending)


def _ending(claim: Claim, policy: Policy) -> Ending:
    """Let a job give up after as many attempts as its limit; a recurring task never does."""
    if claim.key != RECURRING and claim.attempt >= policy.retry.limit:
        return "dies"
    return "stays"


_STEPS = {
    Status.OK: _after_ok,
    Status.FAILED: _after_failure,
    Status.POSTPONED: _after_postponing,
    Status.PAUSED: _after_pause,
    Status.LOST: _after_loss,
}

_COUNTED = {
    Status.OK: "ok",
    Status.FAILED: "failures",
    Status.POSTPONED: "postponed",
    Status.PAUSED: "paused",
    Status.LOST: "lost",
}


def _count(claim: Claim, outcome: Outcome) -> dict[str, int]:
    counters = dict(claim.counters)
    if outcome.status is Status.PAUSED:
        # Its run is counted, and timed as a whole, when its last slice ends.
        counters["slices"] = counters.get("slices", 0) + 1
        counters["slices_ms"] = counters.get("slices_ms", 0) + (outcome.ms or 0)
        return counters
    later_slice = counters.pop("slices", 0) > 0
    counters.pop("slices_ms", None)
    for step in (_COUNTED[outcome.status], "runs", *(["retries"] if claim.attempt > 1 else [])):
        counters[step] = counters.get(step, 0) + 1
    if claim.attempt == 1 and not later_slice:
        _count_lateness(counters, claim.started_at - claim.scheduled_for)
    return counters


def _count_lateness(counters: dict[str, int], lateness: timedelta) -> None:
    """Note how long after its due time a first attempt began, in whole seconds."""
    seconds = max(0, round(lateness.total_seconds()))
    counters["lateness"] = seconds
    counters["most_lateness"] = max(seconds, counters.get("most_lateness", 0))
    if lateness > LATE_AFTER:
        counters["late"] = counters.get("late", 0) + 1
