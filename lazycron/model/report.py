"""What a tick may use, and what it reports: plain values."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from lazycron.durations import Duration, to_duration
from lazycron.errors import ConfigurationError
from lazycron.model.settle import RECURRING, Claim, Outcome
from lazycron.texts import shown

Trigger = Literal["traffic", "admin", "url", "cli", "loop", "manual"]
Verdict = Literal["ran", "deferred", "skipped", "unbound"]
StoppedBy = Literal["done", "tasks", "seconds", "shutdown"]

TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)


def to_trigger(value: str) -> Trigger:
    """Check the name of a trigger; raises ConfigurationError, which lists the names."""
    for trigger in TRIGGERS:
        if value == trigger:
            return trigger
    message = f"trigger {shown(value)} is none of {', '.join(TRIGGERS)}"
    raise ConfigurationError(message)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one tick may use: a number of runs and a number of seconds, None for no limit.

    Both are checked between runs: a run that has begun is finished. Raises ConfigurationError for
    a number of runs below 1, ScheduleError for seconds that are not a duration.
    """

    tasks: int | None = 3
    seconds: Duration | None = 20

    def __post_init__(self) -> None:
        """Refuse a number of runs or seconds that has no meaning."""
        whole = isinstance(self.tasks, int) and not isinstance(self.tasks, bool)
        if self.tasks is not None and (not whole or self.tasks < 1):
            message = f"Budget(tasks={shown(self.tasks)}): pass a whole number from 1 up, or None"
            raise ConfigurationError(message)
        if self.seconds is not None:
            to_duration(self.seconds, what="Budget(seconds)")

    @property
    def length(self) -> timedelta:
        """The seconds as a timedelta; the longest possible one for no limit."""
        if self.seconds is None:
            return timedelta.max
        return to_duration(self.seconds, what="Budget(seconds)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run of a tick; `job_id` is None for a recurring task's run."""

    task: str
    job_id: int | None
    status: str
    message: str
    ms: int | None
    attempt: int
    scheduled_for: datetime
    trigger: str


def to_result(claim: Claim, outcome: Outcome) -> RunResult:
    """Report a run."""
    return RunResult(
        task=claim.name,
        job_id=None if claim.key == RECURRING else claim.id,
        status=outcome.status.value,
        message=outcome.message,
        ms=outcome.ms,
        attempt=claim.attempt,
        scheduled_for=claim.scheduled_for,
        trigger=claim.trigger,
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """What a tick did about one task, and why."""

    verdict: Verdict
    reason: str


class Decisions(dict[str, Decision]):
    """A mapping from a task's name to the decision; an unknown name reads "unbound".

    `registered` are the names this process knows: one that a tick has not touched reads "skipped".
    """

    def __init__(
        self, decided: Mapping[str, Decision] | None = None, registered: Container[str] = ()
    ) -> None:
        super().__init__(decided or {})
        self._registered = registered

    def __missing__(self, name: str) -> Decision:
        if name in self._registered:
            return Decision("skipped", "not looked at: a visitor's tick tells what it touched")
        return Decision("unbound", f"no task is registered as {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TickReport:
    """What one tick did: its runs, its decisions, when anything is next due, what stopped it.

    `next_due` includes lease ends and is None where nothing will ever be due; `seconds` is how long
    the tick took.
    """

    runs: list[RunResult] = field(default_factory=list)
    decisions: Mapping[str, Decision] = field(default_factory=Decisions)
    next_due: datetime | None = None
    stopped_by: StoppedBy = "done"
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the report in JSON's terms; moments are ISO texts in UTC."""
        return {
            "runs": [
                {
                    "task": run.task,
                    "job_id": run.job_id,
                    "status": run.status,
                    "message": run.message,
                    "ms": run.ms,
                    "attempt": run.attempt,
                    "scheduled_for": run.scheduled_for.isoformat(),
                    "trigger": run.trigger,
                }
                for run in self.runs
            ],
            "decisions": {
                name: {"verdict": decision.verdict, "reason": decision.reason}
                for name, decision in self.decisions.items()
            },
            "next_due": None if self.next_due is None else self.next_due.isoformat(),
            "stopped_by": self.stopped_by,
            "seconds": round(self.seconds, 3),
        }
