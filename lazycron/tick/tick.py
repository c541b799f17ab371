"""One tick as a value: what triggered it, and what it has done so far."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime

from lazycron.clock import Moments
from lazycron.durations import MICROSECOND
from lazycron.executors.bridge import Bridge, in_a_new_loop
from lazycron.model.report import Budget, RunResult, StoppedBy, Trigger

# The first moment at which a row is due that this tick's run makes; set by the tick.
EARLIEST: ContextVar[datetime | None] = ContextVar("lazycron_earliest", default=None)


def never() -> bool:
    """Say that no signal has asked this process to stop."""
    return False


def tell_nobody(name: str, done: int | None, total: int | None) -> None:
    """Ignore a task's progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """How a tick was started: its trigger, its budget, its moments and its bridge.

    `interrupted` tells whether a signal handler has fired; `progressed` is called with each stored
    checkpoint, in the thread in which the task stored it.
    """

    trigger: Trigger
    budget: Budget
    now: datetime | None = None
    bridge: Bridge = in_a_new_loop
    interrupted: Callable[[], bool] = never
    progressed: Callable[[str, int | None, int | None], None] = tell_nobody


@dataclass(slots=True, kw_only=True)
class Tick:
    """One tick under way: what it was given and what it has done so far."""

    door: Door
    moments: Moments
    due: datetime
    begun: float
    refused_since: datetime | None = None
    made: frozenset[str] = frozenset()
    runs: list[RunResult] = field(default_factory=list)
    executed: int = 0
    recurring_first: bool = False
    recurring: list[str] = field(default_factory=list)
    stopped_by: StoppedBy = "done"
    interrupted: BaseException | None = None

    @property
    def earliest(self) -> datetime:
        """The first moment at which a row settled in this tick may be due again."""
        return self.due + MICROSECOND
