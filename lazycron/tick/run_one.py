"""One run, from its claim to its record, with its lease renewed all the time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lazycron.clock import Reference
from lazycron.errors import BusyError
from lazycron.executors.base import Execution, Executor
from lazycron.model.lateness import with_waits
from lazycron.model.registry import Registry
from lazycron.model.report import to_result
from lazycron.model.run import Callbacks, MakeAsyncOnce, MakeOnce, Run
from lazycron.model.settle import RECURRING, Claim
from lazycron.model.task import Task
from lazycron.process import Activity, Facts
from lazycron.store import DatabaseError, Fault, Stamp, Store, fault_of
from lazycron.tick.leases import Lease, Leases
from lazycron.tick.recorder import Recorder
from lazycron.tick.tick import EARLIEST, Tick

BUSY = (
    "the checkpoint could not be stored: another connection holds the database's lock, perhaps "
    "this task's own transaction; end that first"
)


@dataclass(kw_only=True, eq=False)
class Running:
    """Executes claims and records their outcomes."""

    store: Store
    registry: Registry
    facts: Facts
    reference: Reference
    activity: Activity
    lease_of: Callable[[Task], timedelta]
    leases: Leases
    executor: Executor
    recorder: Recorder
    once: MakeOnce
    aonce: MakeAsyncOnce
    _installation: str | None = None

    def work_off(
        self, claim: Claim, tick: Tick, *, then: Callable[[], Stamp | None]
    ) -> Claim | None:
        """Execute, settle and record one claim.

        `then` is called once the run is over and returns the stamps with which the next row is
        claimed in the same commit. Returns that claim.
        """
        claim = replace(claim, counters=with_waits(claim, tick.due, tick.refused_since))
        task = self.registry[claim.name]
        length = self.lease_of(task)
        self.recorder.begin(claim)
        # The lease is released last, so that it is renewed while the record is tried again.
        with (
            self.activity.in_a_run(),
            self.leases.hold(claim, length, task.timeout, self._now_of(tick)) as lease,
        ):
            execution = self._execution(task, claim, lease, tick)
            inside = EARLIEST.set(tick.earliest)
            try:
                outcome = self.executor.execute(task, execution, claim.arguments)
            finally:
                EARLIEST.reset(inside)
            tick.interrupted = outcome.interrupted
            tick.executed += 1
            recorded = self.recorder.record(
                claim,
                outcome,
                earliest=tick.earliest,
                give_up_at=self.reference.monotonic() + length.total_seconds(),
                then=then(),
            )
        if claim.key == RECURRING:
            tick.recurring.append(claim.name)
        else:
            self.facts.jobs_seen = True
        if recorded is None:
            return None
        tick.runs.append(to_result(claim, outcome))
        return recorded.next

    def flush(self) -> None:
        """Write all lines to the log file: the tick ends."""
        self.recorder.flush()

    def begin_anew(self) -> None:
        """Forget what was read from a database that has been replaced."""
        self._installation = None

    def _now_of(self, tick: Tick) -> Callable[[], datetime]:
        """Return the clock of a run's lease."""
        given = tick.door.now
        if given is None:
            # Not the start plus the time since: a clock that was corrected meanwhile is right.
            return self.reference.now
        begun = self.reference.monotonic()
        return lambda: given + timedelta(seconds=self.reference.monotonic() - begun)

    def _execution(self, task: Task, claim: Claim, lease: Lease, tick: Tick) -> Execution:
        def save(text: str, done: int | None, total: int | None) -> bool:
            # Renewals end with a task's time-out, whether it goes on or not.
            until = None if timed_out() else lease.now() + lease.length
            try:
                kept = self.store.checkpoint(claim, text, done, total, until)
            except DatabaseError as error:
                if fault_of(error) is Fault.BUSY:
                    raise BusyError(BUSY) from error
                raise
            lease.lost = lease.lost or not kept
            if kept:
                tick.door.progressed(claim.name, done, total)
            return kept

        def timed_out() -> bool:
            end = lease.last_renewal
            return end is not None and self.reference.monotonic() >= end

        def stopping() -> bool:
            return timed_out() or lease.lost or self.activity.stopping.is_set()

        def pause() -> bool:
            spent = timedelta(seconds=self.reference.monotonic() - tick.begun)
            return spent >= tick.door.budget.length or self.activity.stopping.is_set()

        callbacks = Callbacks(
            save=save,
            stopping=stopping,
            identify=self._identify,
            once=self.once,
            aonce=self.aonce,
        )
        deadline = None if task.timeout is None else claim.started_at + task.timeout
        return Execution(
            run=Run(claim, callbacks, deadline),
            started_at=claim.started_at,
            monotonic=self.reference.monotonic,
            bridge=tick.door.bridge,
            interrupted=tick.door.interrupted,
            pause=pause,
            inside=self.activity.in_a_task,
        )

    def _identify(self) -> str:
        if self._installation is None:
            self._installation = self.store.shared.installation_id(self.reference.now())
        return self._installation
