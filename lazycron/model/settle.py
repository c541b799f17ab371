"""Compute a row's next state from a claim and its run's outcome: values in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from lazycron.durations import MICROSECOND
from lazycron.model.retry import Retry
from lazycron.schedules.shaped import Schedule

RECURRING = ""
LATE_AFTER = timedelta(minutes=1)
JOB_BASE = timedelta(seconds=30)
# A job that has stored a checkpoint before each loss dies after so many times its limit of them.
MOST_LOSSES = 10
OnLost = Literal["rerun", "skip"]


class Status(StrEnum):
    """How a run ended."""

    OK = "ok"
    FAILED = "failed"
    POSTPONED = "postponed"
    PAUSED = "paused"
    LOST = "lost"


class State(StrEnum):
    """Whether a row may run, or is a job that has given up."""

    ACTIVE = "active"
    DEAD = "dead"


# What becomes of a row: it stays, is deleted (a job that is done), or is kept as dead.
Ending = Literal["stays", "goes", "dies"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The exclusive right to run one row, until its lease ends; every later write carries `token`.

    `schedule` is the text the row was claimed with, `attempt` counts from 1, and `progress` and
    `arguments` are JSON texts. `scheduled_for` is the run's nominal due time; it is also
    `goes_on_for` if it was begun before and only paused or postponed since. `asked_again` is when
    a job is due that was given other arguments while it was claimed. `has_advanced` is set when a
    claim is taken off its row: its run has stored a checkpoint.
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
    goes_on_for: datetime | None = None
    slices_ms: int | None = None
    slices_began: datetime | None = None
    asked_again: datetime | None = None
    has_advanced: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether this due time was begun before, and only paused or postponed since."""
        return self.goes_on_for == self.scheduled_for

    @property
    def began_at(self) -> datetime:
        """When the run's first slice started."""
        return (self.slices_began if self.goes_on else None) or self.started_at

    @property
    def earlier_ms(self) -> int:
        """How long the run's earlier slices took; they share its history row."""
        return (self.slices_ms if self.goes_on else None) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended, in texts that every database can store.

    `again_at` is set for a postponed run. `interrupted` says that a real signal or cancellation
    asks the process to stop, which is obeyed once the outcome is recorded. `ms` is None where it is
    unknown: the run was lost.
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

    def admitted(self, moment: datetime) -> datetime:
        """Return the first moment, from this one on, at which the task's window is open."""
        return moment if self.schedule is None else self.schedule.admitted(moment)


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
    def replaced(self) -> bool:
        """Whether a job was given other arguments while it ran."""
        return self.claim.asked_again is not None

    @property
    def goes_on_for(self) -> datetime | None:
        """The due time that goes on after a pause or a postponement."""
        waits = self.outcome.status in (Status.PAUSED, Status.POSTPONED)
        return self.scheduled_for if waits and not self.replaced else None

    @property
    def slices_ms(self) -> int | None:
        """How long the slices of a paused run took until now."""
        return None if self.is_over else self.claim.earlier_ms + (self.outcome.ms or 0)

    @property
    def slices_began(self) -> datetime | None:
        """When the first slice of a paused run started."""
        return None if self.is_over else self.claim.began_at

    @property
    def is_over(self) -> bool:
        """Whether the run has ended: slices of one run share one history row."""
        return self.replaced or self.outcome.status is not Status.PAUSED

    @property
    def clears_progress(self) -> bool:
        """Whether the next run has no progress: after a success, or with other arguments."""
        return self.replaced or self.outcome.status is Status.OK


def settle(
    claim: Claim,
    outcome: Outcome,
    policy: Policy,
    *,
    now: datetime,
    earliest: datetime,
    rescheduled: bool = False,
) -> Settlement:
    """Decide what happens next to a row.

    `now` is when the run ended or was buried. Nothing becomes due before `earliest`, just after the
    tick's start, so that a row runs at most once in a tick. A job that was asked for again while it
    ran is due at the time asked for, however its run ended, as if it had just been enqueued.
    `rescheduled` says that the schedule changed during the run: past times of the new one were
    never due.
    """
    if claim.asked_again is not None:
        # It needs another due time than the old arguments, and so another idempotency key.
        due = max(now, claim.asked_again, claim.scheduled_for + MICROSECOND)
        step = _Step(due, due, attempts=0, failures=0)
    else:
        step = _STEPS[outcome.status](claim, outcome, policy, now)
        if rescheduled and step.scheduled_for != claim.scheduled_for:
            step = _not_passed(step, policy, now)
    return Settlement(
        claim=claim,
        outcome=outcome,
        finished_at=now,
        next_run_at=max(step.next_run_at, earliest),
        scheduled_for=step.scheduled_for,
        attempts=step.attempts,
        failures=step.failures,
        losses=step.losses,
        # They are deleted with the row; the history counts its run.
        counters={} if step.ending == "goes" else _count(claim, outcome),
        ending=step.ending,
    )


def _not_passed(step: "_Step", policy: Policy, now: datetime) -> "_Step":
    """Move a crontab's past time to one after `now`; an interval counts from the run."""
    if policy.schedule is None or step.next_run_at > now:
        return step
    nominal = policy.schedule.latest_retry(now)
    if nominal is None:
        return step
    return replace(step, next_run_at=policy.schedule.due_for(nominal), scheduled_for=nominal)


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
    nominal = policy.schedule.after_run(claim.scheduled_for, claim.started_at)
    due = policy.schedule.due_for(nominal, claim.started_at)
    return _Step(due, nominal, attempts=0, failures=0)


def _after_failure(claim: Claim, outcome: Outcome, policy: Policy, now: datetime) -> _Step:
    del outcome, now
    failures = claim.failures + 1
    again = claim.started_at + policy.retry.after_failure(failures, policy.base)
    if policy.schedule is not None:
        again = policy.schedule.admitted(again)
        nominal = policy.schedule.latest_retry(claim.started_at)
        if nominal is not None and (regular := policy.schedule.due_for(nominal)) <= again:
            return _Step(regular, nominal, attempts=0, failures=failures)
    ending = _ending(claim, policy)
    return _Step(again, claim.scheduled_for, claim.attempt, failures, ending=ending)


def _after_postponing(claim: Claim, outcome: Outcome, policy: Policy, now: datetime) -> _Step:
    # Not an attempt: a job that waits for a precondition must not use up its limit.
    again = policy.admitted(outcome.again_at or now)
    return _Step(again, claim.scheduled_for, claim.attempt - 1, claim.failures)


def _after_pause(claim: Claim, outcome: Outcome, policy: Policy, now: datetime) -> _Step:
    del outcome
    again = policy.admitted(now)
    return _Step(again, claim.scheduled_for, claim.attempt - 1, claim.failures)


def _after_loss(claim: Claim, outcome: Outcome, policy: Policy, now: datetime) -> _Step:
    del outcome
    losses = claim.losses + 1
    if policy.on_lost == "skip" and policy.schedule is not None:
        nominal = policy.schedule.nominal_after(now)
        regular = policy.schedule.due_for(nominal)
        return _Step(regular, nominal, attempts=0, failures=claim.failures, losses=losses)
    again = policy.admitted(now + policy.retry.after_loss(losses, policy.base))
    if claim.key != RECURRING and policy.on_lost == "skip":
        return _Step(again, claim.scheduled_for, claim.attempt, claim.failures, losses, "dies")
    if _is_no_attempt(claim, policy):
        return _Step(again, claim.scheduled_for, claim.attempt - 1, claim.failures, losses)
    ending = _ending(claim, policy)
    return _Step(again, claim.scheduled_for, claim.attempt, claim.failures, losses, ending)


def _is_no_attempt(claim: Claim, policy: Policy) -> bool:
    """Tell whether a job came further before it was lost, and was not lost too often in all.

    A checkpoint says so; one that stores the same each time must not kill processes for ever.
    """
    lost = claim.counters.get(_COUNTED[Status.LOST], 0) + 1
    may_go_on = lost < MOST_LOSSES * policy.retry.limit
    return claim.key != RECURRING and claim.has_advanced and may_go_on


def _ending(claim: Claim, policy: Policy) -> Ending:
    """Let a job give up when its attempts reach the limit; a recurring task never gives up."""
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
    # A run that was asked to wait, or goes on after a pause or a loss, does not start late.
    if claim.attempt == 1 and not claim.goes_on and not claim.losses:
        _count_lateness(counters, claim.started_at - claim.scheduled_for)
    if outcome.status is Status.PAUSED and claim.asked_again is None:
        return counters  # the run is counted when its last slice ends
    for step in (_COUNTED[outcome.status], "runs", *(["retries"] if claim.attempt > 1 else [])):
        counters[step] = counters.get(step, 0) + 1
    return counters


def _count_lateness(counters: dict[str, int], lateness: timedelta) -> None:
    """Note how long after its due time a first attempt began, in whole seconds."""
    seconds = max(0, round(lateness.total_seconds()))
    counters["lateness"] = seconds
    counters["most_lateness"] = max(seconds, counters.get("most_lateness", 0))
    if lateness > LATE_AFTER:
        counters["late"] = counters.get("late", 0) + 1
