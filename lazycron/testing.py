"""For tests of apps that use lazycron: a manual clock, ticks, and repeated runs."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from lazycron.app import LazyCron, parts_of
from lazycron.clock import to_moment
from lazycron.durations import MICROSECOND, Duration, to_duration
from lazycron.errors import ConfigurationError, LazyCronError
from lazycron.model.report import TickReport
from lazycron.model.settle import Claim, Outcome, Settlement, Status, settle
from lazycron.store import Probe
from lazycron.verbs.base import Name, to_name

MOST_TICKS = 10_000

T = TypeVar("T")


class ManualClock:
    """A clock that stands still until a test moves it; pass it as `LazyCron(clock=…)`.

    Takes an aware datetime or epoch seconds. The monotonic clock moves too when time passes
    (`tick`, or `set` to a later moment), and stands still when the wall clock is put back.
    """

    def __init__(self, moment: datetime | float) -> None:
        self._lock = threading.Lock()
        self._now = to_moment(moment)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        """Return the moment this clock shows."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._monotonic

    def set(self, moment: datetime | float) -> None:
        """Show another moment: time passes if it is later, the clock is put back if earlier."""
        with self._lock:
            moment = to_moment(moment)
            self._monotonic += max(0.0, (moment - self._now).total_seconds())
            self._now = moment

    def tick(self, duration: Duration = 1) -> None:
        """Let time pass, a second by default."""
        length = to_duration(duration, what="tick")
        with self._lock:
            self._now += length
            self._monotonic += length.total_seconds()

    def jump(self, duration: timedelta) -> None:
        """Move the wall clock only, forward or back, as a time server's correction does."""
        with self._lock:
            self._now += duration


def tick_through(
    cron: LazyCron, start: datetime | float, stop: datetime | float, step: Duration
) -> list[TickReport]:
    """Tick at `start`, then every `step`, up to and including `stop`; return the reports.

    A ManualClock is set to each moment; with any other clock each tick is given its moment.
    """
    moment, end = to_moment(start), to_moment(stop)
    length = to_duration(step, what="step", least=timedelta(microseconds=1))
    clock = cron.settings.clock
    reports = []
    while moment <= end:
        if isinstance(clock, ManualClock):
            clock.set(moment)
            reports.append(cron.run_due())
        else:
            reports.append(cron.run_due(now=moment))
        moment += length
    return reports


def drain(cron: LazyCron, *, most: int = MOST_TICKS) -> list[TickReport]:
    """Tick until nothing is due any more; return the reports.

    Jobs that are enqueued meanwhile run too, and a ManualClock moves by a microsecond for them. A
    row that is due but held by another process is left after two ticks that ran nothing. Raises
    LazyCronError if something is still due after `most` ticks.
    """
    reports: list[TickReport] = []
    idle = 0
    for _ in range(most):
        report = cron.run_due()
        reports.append(report)
        idle = 0 if report.runs else idle + 1
        now = parts_of(cron).reference.now()
        if report.next_due is None or report.next_due > now + MICROSECOND or idle > 1:
            return reports
        _pass(cron, report.next_due)
    message = f"something is still due after {most} ticks: does a task enqueue itself again?"
    raise LazyCronError(message)


def repeat(
    cron: LazyCron, name: Name, observe: Callable[[], T], *args: Any, **kwargs: Any
) -> list[T]:
    """Run a task again and again for one due time, and return what was observed after each time.

    It observes four times: after a run; after a second run for the same due time; after a run that
    crashed before its record and was repeated; and after a run that crashed after its first
    checkpoint and was repeated. If repeating a task does no harm, all four are the same. A task
    without a schedule runs its oldest waiting job, or a new one with these arguments. A crash is a
    BaseException in the task's thread. Raises LazyCronError if a run fails.
    """
    name = to_name(name)
    if cron.registry[name].schedule is None:
        if not any(job.task == name for job in cron.jobs("waiting", limit=MOST_TICKS)):
            cron.enqueue(name, *args, **kwargs)
    elif args or kwargs:
        message = f"task {name} has a schedule, so it takes no arguments"
        raise ConfigurationError(message)
    else:
        cron.sync()
    stage = _Stage(cron, name)
    steps = (
        stage.run_and_keep,
        stage.run_and_keep,
        stage.crash_before_record,
        stage.crash_after_checkpoint,
    )
    seen = []
    for step in steps:
        step()
        seen.append(observe())
    return seen


class Crash(BaseException):
    """Stands for a crash of the process in `repeat`."""


class _Keeping(Probe):
    """Keeps the row of a finished run due as it was."""

    def recording(self, settlement: Settlement) -> Settlement:
        return _kept(settlement) if settlement.is_over else settlement


class _Crashing(Probe):
    """Ends the process after the first checkpoint, or before the record."""

    def __init__(self, *, after_checkpoint: bool) -> None:
        self.lost: list[Claim] = []
        self._after_checkpoint = after_checkpoint

    def recording(self, settlement: Settlement) -> Settlement:
        self.lost.append(settlement.claim)
        self.is_alive = False
        raise Crash

    def checkpointed(self) -> None:
        if self._after_checkpoint:
            self.is_alive = False
            raise Crash


class _Stage:
    """Repeats runs of one due time: all but the last leave the row due as it was."""

    def __init__(self, cron: LazyCron, name: str) -> None:
        self._cron = cron
        self._name = name
        self._store = parts_of(cron).store

    def run_and_keep(self) -> None:
        """Run it without a crash; its row stays due for the same time."""
        with self._store.probed(_Keeping()):
            self._run()

    def crash_before_record(self) -> None:
        """Crash before the record, bury the run, and run it again."""
        self._crash(after_checkpoint=False)
        self.run_and_keep()

    def crash_after_checkpoint(self) -> None:
        """Crash after the first checkpoint, else before the record; bury it, and run it again."""
        self._crash(after_checkpoint=True)
        self._run()

    def _run(self) -> None:
        result = self._cron.run_now(self._name)
        while result is not None and result.status == Status.PAUSED:
            _pass(self._cron, parts_of(self._cron).reference.now() + MICROSECOND)
            result = self._cron.run_now(self._name)
        if result is None or result.status != Status.OK:
            came_to = "is running" if result is None else f"{result.status}: {result.message}"
            message = f"{self._name} was to be run, but {came_to}"
            raise LazyCronError(message)

    def _crash(self, *, after_checkpoint: bool) -> None:
        probe = _Crashing(after_checkpoint=after_checkpoint)
        with self._store.probed(probe), suppress(Crash):
            self._cron.run_now(self._name)
        for claim in probe.lost:
            lost = Outcome(status=Status.LOST, message="Lost: the test let it crash.", ms=None)
            policy = self._cron.registry.policy_of(claim)
            now = parts_of(self._cron).reference.now()
            buried = settle(claim, lost, policy, now=now, earliest=now)
            self._store.release(_kept(buried), self._store.by)


def _kept(settlement: Settlement) -> Settlement:
    """Leave a row due as it was, however its run ended."""
    claim = settlement.claim
    return replace(
        settlement,
        ending="stays",
        next_run_at=claim.started_at,
        scheduled_for=claim.scheduled_for,
    )


def _pass(cron: LazyCron, until: datetime) -> None:
    """Set a ManualClock to a moment, if it does not show it yet."""
    clock = cron.settings.clock
    if isinstance(clock, ManualClock) and clock.now() < until:
        clock.set(until)
