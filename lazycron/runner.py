"""The tick: bury what is lost; claim, execute, settle and record while the budget lasts."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lazycron.burial import BETWEEN_LOOKS, Burial
from lazycron.clock import Clock
from lazycron.durations import MICROSECOND
from lazycron.errors import ConfigurationError, NotInstalledError, ScheduleError
from lazycron.execute import Bridge, Execution, execute, in_a_new_loop
from lazycron.facts import Facts
from lazycron.leases import Lease, Leases
from lazycron.logfile import LogFile
from lazycron.moments import Moments
from lazycron.outcomes import RECURRING, Claim, Outcome, Policy, settle
from lazycron.refresh import Refresh
from lazycron.registry import Registry
from lazycron.reports import (
    Budget,
    Decision,
    Decisions,
    RunResult,
    StoppedBy,
    TickReport,
    Trigger,
    to_result,
)
from lazycron.run import Hands, Run
from lazycron.schedules import Schedule, parse
from lazycron.store import (
    Changed,
    DatabaseError,
    Fault,
    Recorded,
    Stamp,
    Store,
    fault_of,
    new_token,
)
from lazycron.sync import Sync
from lazycron.tasks import Task
from lazycron.why import Why

logger = logging.getLogger("lazycron")

PRUNE_BY_AGE_AFTER = 60.0
FIRST_RETRY = 0.05
LONGEST_RETRY = 1.0


def never() -> bool:
    """Say that no signal has asked this process to stop."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Through which door a tick came: its trigger, its budget, its moments and its bridge.

    `interrupted` tells whether a signal handler has fired; `stays` is False for a process that
    ends after this tick and therefore looks twice itself before it leaves a lost run behind.
    """

    trigger: Trigger
    budget: Budget
    now: datetime | None = None
    bridge: Bridge = in_a_new_loop
    interrupted: Callable[[], bool] = never
    stays: bool = True


@dataclass(slots=True, kw_only=True)
class Tick:
    """One tick on its way: what it was given and what it has done so far."""

    door: Door
    moments: Moments
    due: datetime
    begun: float
    made: frozenset[str] = frozenset()
    runs: list[RunResult] = field(default_factory=list)
    recurring: list[str] = field(default_factory=list)
    stopped_by: StoppedBy = "done"
    interrupted: BaseException | None = None

    @property
    def earliest(self) -> datetime:
        """The first moment at which a row settled in this tick may be due again."""
        return self.due + MICROSECOND


class Runner:
    """Runs due rows, one after the other, in the thread that asks for it."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        facts: Facts,
        clock: Clock,
        sync: Sync,
        refresh: Refresh,
        leases: Leases,
        logfile: LogFile,
        why: Why,
        install: Callable[[], bool],
        retention: tuple[int, timedelta],
    ) -> None:
        self.stopping = threading.Event()
        self._store = store
        self._registry = registry
        self._facts = facts
        self._clock = clock
        self._sync = sync
        self._refresh = refresh
        self._leases = leases
        self._logfile = logfile
        self._why = why
        self._install = install
        self._keep_runs, self._keep_age = retention
        self._burial = Burial(store, self._policy_of, logfile, clock.monotonic)
        self._prune_at = 0.0
        self._active = 0
        # By thread: when the run it is in began, on the monotonic clock.
        self._run_began: dict[int, float] = {}
        self._idle = threading.Condition()
        self._installation: str | None = None

    # two verbs

    def run_due(self, door: Door) -> TickReport:
        """Run due rows while the budget lasts, and report.

        Lets the database's errors out if it could not be asked at all; once a run was recorded the
        report is worth more than the error.
        """
        tick = self._begin(door)
        with self._counted():
            try:
                if not self.install():
                    return self._report(tick, None, Decisions())
                tick.made = self._sync.bring_in_when_due(tick.due)
                self._bury(tick)
                self._run_all(tick)
            except DatabaseError as error:
                self._note(error, tick)
                if fault_of(error) is Fault.MISSING:
                    return self._report(tick, None, Decisions())
                if not tick.runs:
                    raise
                return self._report(tick, None, self._ran(tick))
            self._facts.outage = None
            report = self._close(tick)
        if tick.interrupted is not None and not isinstance(tick.interrupted, Exception):
            self._obey(tick.interrupted)
        return report

    def run_now(self, name: str, door: Door) -> RunResult | None:
        """Run one task now, due or not; None where it is running already.

        Raises UnknownTaskError, NotInstalledError, and ConfigurationError for a task without a
        schedule, which is run by enqueueing it.
        """
        task = self._registry[name]
        if task.schedule is None:
            message = f"task {name!r} has no schedule, so it has no row to run; enqueue it"
            raise ConfigurationError(message)
        tick = self._begin(door)
        with self._counted():
            if not self.install():
                raise NotInstalledError
            tick.made = self._sync.bring_in_when_due(tick.due)
            claim = self._claim_by_name(name, tick)
            if claim is None:
                return None
            self._work_off(claim, tick, more=False)
            self._close(tick)
        if tick.interrupted is not None:
            self._obey(tick.interrupted)
        return tick.runs[0] if tick.runs else None

    def install(self) -> bool:
        """Tell whether the tables are there, making them where that is wanted."""
        if self._facts.installed:
            return True
        if not self._install():
            if not self._facts.told_missing:
                self._facts.told_missing = True
                logger.warning(
                    "lazycron's tables are missing: run `lazycron migrate`",
                    extra={"action": "not_installed"},
                )
            return False
        self._facts.installed = True
        self._facts.told_missing = False
        return True

    # stopping

    @property
    def is_busy(self) -> bool:
        """Whether a tick is under way in this process."""
        return self._active > 0

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no tick is under way, at most `timeout` seconds; return whether none is."""
        with self._idle:
            return self._idle.wait_for(lambda: self._active == 0, timeout)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._idle:
            self._active += 1
        try:
            yield
        finally:
            with self._idle:
                self._active -= 1
                self._idle.notify_all()

    @contextmanager
    def _in_a_run(self, begun: float) -> Iterator[None]:
        thread = threading.get_ident()
        self._run_began[thread] = begun
        try:
            yield
        finally:
            del self._run_began[thread]

    def is_hanging(self, thread: int | None, longer_than: timedelta) -> bool:
        """Tell whether a thread has been in one run for longer than that."""
        began = self._run_began.get(thread or 0)
        if began is None:
            return False
        return self._clock.monotonic() - began > longer_than.total_seconds()

    def _obey(self, interruption: BaseException) -> None:
        raise interruption.with_traceback(None)

    # the steps

    def _begin(self, door: Door) -> Tick:
        moments = Moments(self._clock, door.now)
        return Tick(door=door, moments=moments, due=moments.now(), begun=self._clock.monotonic())

    def _bury(self, tick: Tick) -> None:
        self._burial.look(tick.due, self._floor(), tick.earliest)
        if self._burial.waits_for_second_look and not tick.door.stays:
            self.stopping.wait(BETWEEN_LOOKS)
            self._burial.look(tick.moments.now(), self._floor(), tick.earliest)

    def _run_all(self, tick: Tick) -> None:
        stamp = self._stamp_if_any_left(tick)
        claim = None
        if stamp is not None:
            try:
                claim = self._store.claim(stamp)
            except DatabaseError as error:
                # A lost race or a held lock: not claimed. The next tick looks again.
                if fault_of(error) is not Fault.BUSY:
                    raise
        while claim is not None:
            claim = self._work_off(claim, tick, more=True)

    def _claim_by_name(self, name: str, tick: Tick) -> Claim | None:
        claim = self._store.claim_by_name(name, self._stamp(tick))
        if claim is not None:
            return claim
        held = self._store.claim_of(name)
        if held is None or held.claim.lease_until > tick.due:
            return None
        # A dead run holds the row: it is buried first, so that the history has it.
        self._bury(replace(tick, door=replace(tick.door, stays=False)))
        return self._store.claim_by_name(name, self._stamp(tick))

    def _stamp_if_any_left(self, tick: Tick) -> Stamp | None:
        """Check budget and shutdown before asking for the next claim."""
        budget = tick.door.budget
        spent = timedelta(seconds=self._clock.monotonic() - tick.begun)
        if self.stopping.is_set() or tick.interrupted is not None:
            tick.stopped_by = "shutdown"
        elif budget.tasks is not None and len(tick.runs) >= budget.tasks:
            tick.stopped_by = "tasks"
        elif spent >= budget.length:
            tick.stopped_by = "seconds"
        else:
            return self._stamp(tick)
        return None

    def _stamp(self, tick: Tick) -> Stamp:
        return Stamp(
            due=tick.due,
            start=tick.moments.now(),
            token=new_token(),
            by=self._store.by,
            trigger=tick.door.trigger,
            floor=self._floor(),
            without=tick.made,
        )

    def _floor(self) -> datetime:
        return self._facts.floor_at(self._clock.monotonic())

    def _work_off(self, claim: Claim, tick: Tick, *, more: bool) -> Claim | None:
        """Execute, settle and record one claim; return the next one, claimed in the same commit."""
        task = self._registry[claim.name]
        begun = self._clock.monotonic()
        length = self._sync.lease_of(task)

        def now() -> datetime:
            return claim.started_at + timedelta(seconds=self._clock.monotonic() - begun)

        with self._in_a_run(begun), self._leases.hold(claim, length, task.timeout, now) as lease:
            outcome = execute(task, self._execution(task, claim, lease, tick), ([], {}))
            tick.interrupted = outcome.interrupted
            # Until now the lease was renewed; the retries of the record may last as long again.
            give_up_at = self._clock.monotonic() + length.total_seconds()
            recorded, following = self._record(claim, outcome, tick, give_up_at, more=more)
        self._log(claim, outcome, recorded=recorded)
        if recorded:
            tick.runs.append(to_result(claim, outcome))
        if claim.key == RECURRING:
            tick.recurring.append(claim.name)
        self._facts.last_run_took = self._clock.monotonic() - begun
        return following

    def _execution(self, task: Task, claim: Claim, lease: Lease, tick: Tick) -> Execution:
        deadline = None if task.timeout is None else claim.started_at + task.timeout

        def save(text: str, done: int | None, total: int | None) -> bool:
            until = lease.now() + lease.length
            kept = self._store.checkpoint(claim, text, done, total, until)
            lease.lost = lease.lost or not kept
            return kept

        def stopping() -> bool:
            late = lease.last_renewal is not None and self._clock.monotonic() >= lease.last_renewal
            return late or lease.lost or self.stopping.is_set()

        return Execution(
            run=Run(claim, Hands(save=save, stopping=stopping, identify=self._identify), deadline),
            started_at=claim.started_at,
            monotonic=self._clock.monotonic,
            bridge=tick.door.bridge,
            interrupted=tick.door.interrupted,
        )

    def _identify(self) -> str:
        if self._installation is None:
            self._installation = self._store.installation_id(self._clock.now())
        return self._installation

    def _policy_of(self, claim: Claim) -> Policy:
        """Return a claim's policy: its task's, with the schedule the row was claimed with."""
        policy = self._registry[claim.name].policy
        if claim.key != RECURRING:
            return replace(policy, schedule=None)
        return replace(policy, schedule=_schedule_of(claim, policy.schedule))

    def _record(
        self, claim: Claim, outcome: Outcome, tick: Tick, give_up_at: float, *, more: bool
    ) -> tuple[bool, Claim | None]:
        """Store a run's outcome, trying again until `give_up_at` where the database fails.

        Returns whether it was stored, and the next claim. A run whose row is no longer ours is
        stored nowhere: its loss is in the history already.
        """
        finished_at = claim.started_at + timedelta(milliseconds=outcome.ms or 0)
        pause = FIRST_RETRY
        tick_now = replace(tick, runs=[*tick.runs, to_result(claim, outcome)])
        while True:
            settlement = settle(
                claim, outcome, self._policy_of(claim), now=finished_at, earliest=tick.earliest
            )
            then = self._stamp_if_any_left(tick_now) if more else None
            tick.stopped_by = tick_now.stopped_by
            try:
                result = self._store.record(settlement, then)
            except DatabaseError as error:
                if fault_of(error) is Fault.OTHER and outcome.error is not None:
                    outcome = replace(outcome, error=None)
                    continue
                if self._clock.monotonic() >= give_up_at or fault_of(error) is Fault.OTHER:
                    logger.exception(
                        "the outcome of %s could not be recorded; it is in the log file",
                        claim.name,
                        extra={"action": "record_failed", "task": claim.name},
                    )
                    return False, None
                # Recorded alone from now on: a failing record must not take a claim with it.
                more = False
                self.stopping.wait(pause)
                pause = min(pause * 2, LONGEST_RETRY)
                continue
            if isinstance(result, Changed):
                claim = replace(claim, schedule=result.schedule)
                continue
            return isinstance(result, Recorded), (
                result.next if isinstance(result, Recorded) else None
            )

    def _log(self, claim: Claim, outcome: Outcome, *, recorded: bool) -> None:
        what = outcome.status.value if recorded else f"{outcome.status.value} (not recorded)"
        rest = f"{claim.trigger}  {outcome.message}"
        self._logfile.note(claim.started_at, claim.name, what, outcome.ms, rest)
        level = logging.WARNING if outcome.error else logging.DEBUG
        logger.log(
            level,
            "%s %s after %s ms: %s",
            claim.name,
            what,
            outcome.ms,
            outcome.message,
            extra={"action": f"run_{outcome.status.value}", "task": claim.name},
        )

    # the end of a tick

    def _close(self, tick: Tick) -> TickReport:
        try:
            self._prune(tick)
            decisions = self._decide(tick)
            next_due = self._refresh.refresh(tick.moments).next
        except DatabaseError as error:
            self._note(error, tick)
            return self._report(tick, None, self._ran(tick))
        self._facts.last_tick_at = tick.due
        self._facts.last_stop = tick.stopped_by
        if tick.stopped_by in ("tasks", "seconds") and (next_due is None or next_due > tick.due):
            tick.stopped_by = "done"
        return self._report(tick, next_due, decisions)

    def _prune(self, tick: Tick) -> None:
        for name in dict.fromkeys(tick.recurring):
            self._store.prune_beyond(name, self._keep_runs)
        if self._clock.monotonic() >= self._prune_at:
            self._prune_at = self._clock.monotonic() + PRUNE_BY_AGE_AFTER
            self._store.prune_older(tick.due - self._keep_age)

    def _decide(self, tick: Tick) -> Decisions:
        """Say what was decided about every task; in a visitor's tick, about those it touched."""
        decisions = self._ran(tick)
        for name in tick.made:
            decisions[name] = Decision(
                "deferred", "its row was made in this tick; it runs in a later one"
            )
        if tick.door.trigger in ("traffic", "admin"):
            return decisions
        rows = {row.name: row for row in self._store.known_rows()}
        for task in self._registry:
            if task.name not in decisions:
                reason = self._why.about(task, rows.get(task.name), tick.moments.now())
                decisions[task.name] = Decision("skipped", str(reason))
        return decisions

    def _ran(self, tick: Tick) -> Decisions:
        ran = {run.task: Decision("ran", f"{run.status}: {run.message}") for run in tick.runs}
        return Decisions(ran)

    def _report(self, tick: Tick, next_due: datetime | None, decisions: Decisions) -> TickReport:
        return TickReport(
            runs=tick.runs,
            decisions=decisions,
            next_due=next_due,
            stopped_by=tick.stopped_by,
            seconds=self._clock.monotonic() - tick.begun,
        )

    def _note(self, error: DatabaseError, tick: Tick) -> None:
        fault = fault_of(error)
        if fault is Fault.MISSING:
            self._facts.installed = False
            self.install()
        elif fault is not Fault.BUSY:
            text = type(error).__name__
            self._facts.out_of_order(text, tick.moments.now(), self._clock.monotonic())


def _schedule_of(claim: Claim, own: Schedule | None) -> Schedule | None:
    """Read the schedule a row was claimed with; the code's where the row's cannot be read."""
    if own is not None and own.text == claim.schedule:
        return own
    try:
        return parse(claim.schedule)
    except ScheduleError:
        return own
