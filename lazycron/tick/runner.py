"""The tick: bury what is lost; claim, execute, settle and record while the budget lasts."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lazycron.clock import EPOCH, Moments, Reference
from lazycron.errors import BusyError, ConfigurationError, NotInstalledError
from lazycron.model.registry import Registry
from lazycron.model.report import Decisions, RunResult, TickReport, to_result
from lazycron.model.settle import RECURRING, Claim, Outcome, Status
from lazycron.process import Activity, Facts
from lazycron.store import DatabaseError, Fault, Stamp, Store, fault_of, new_token, said_by
from lazycron.tick.burial import BETWEEN_LOOKS, Burial
from lazycron.tick.decisions import Deciding
from lazycron.tick.missed import Missed
from lazycron.tick.next_due import Refresh
from lazycron.tick.pruning import Pruning
from lazycron.tick.run_one import Running
from lazycron.tick.sync import Sync
from lazycron.tick.tick import Door, Tick

logger = logging.getLogger("lazycron")

# Whose turn the next tick's first run is: a setting that all hosts share.
TURN = "turn"
OLDEST = "oldest"

BUSY = "the database is busy; the next tick looks again"
BUSY_NOW = "the database is busy: another connection holds its lock; try again"


@dataclass(kw_only=True, eq=False)
class Runner:
    """Runs due rows, one after the other, in the thread that asks for it."""

    store: Store
    registry: Registry
    facts: Facts
    reference: Reference
    activity: Activity
    sync: Sync
    burial: Burial
    running: Running
    refresh: Refresh
    pruning: Pruning
    deciding: Deciding
    missed: Missed
    make_tables: Callable[..., bool]

    def run_due(self, door: Door) -> TickReport:
        """Run due rows while the budget lasts, and report.

        Lets the database's errors out if it could not be asked at all; once a run was recorded the
        report is worth more than the error. A database that is busy before any run is no error.
        """
        tick = self._begin(door)
        with self._in_a_tick():
            try:
                if not self.install():
                    return self._report(tick, decisions=self.deciding.not_installed(tick))
                self._look_at_clock(tick)
                by_clock = door.now is None
                tick.made = self.sync.bring_in_when_due(tick.due, by_clock=by_clock)
                self._bury(tick, lambda now: self.burial.look(now, self._floor()))
                self._run_all(tick)
                self.facts.outage = None
                report = self._close(tick)
            except DatabaseError as error:
                self._note(error, tick)
                busy = fault_of(error) is Fault.BUSY and not tick.executed
                if not tick.runs and not busy and fault_of(error) is not Fault.MISSING:
                    raise
                decisions = None
                if busy:
                    self._refused(tick)
                    logger.debug("no tick: %s", BUSY, extra={"action": "tick_busy"})
                    decisions = self.deciding.all_skipped(tick, BUSY)
                elif not self.facts.installed:
                    decisions = self.deciding.not_installed(tick)
                report = self._report(tick, decisions=decisions)
        self._obey(tick)
        return report

    def run_now(self, name: str, door: Door) -> RunResult | None:
        """Run one task now, due or not; None where it is running already.

        A task without a schedule runs its oldest waiting job. Raises UnknownTaskError,
        NotInstalledError, BusyError where the database is busy, and ConfigurationError where such a
        task has no job to run.
        """
        task = self.registry[name]
        tick = self._begin(door)
        with self._in_a_tick():
            try:
                if not self.install():
                    raise NotInstalledError
                self._look_at_clock(tick)
                self.sync.bring_in_when_due(tick.due, by_clock=door.now is None)
                claim = self._claim_by_name(name, tick) if task.schedule else None
                if task.schedule is None:
                    claim = self.store.claim_job(name, self._stamp(tick))
            except DatabaseError as error:
                self._note(error, tick)
                if fault_of(error) is Fault.MISSING:
                    raise NotInstalledError from error
                if fault_of(error) is Fault.BUSY:
                    raise BusyError(BUSY_NOW) from error
                raise
            if claim is None and task.schedule is None:
                message = (
                    f"{name} has no schedule and no job of it waits: enqueue one, in the shell "
                    f"with `lazycron enqueue {name}`"
                )
                raise ConfigurationError(message)
            if claim is None:
                return None
            self._work_off(claim, tick, more=False)
            try:
                self._close(tick)
            except DatabaseError as error:
                self._note(error, tick)
        self._obey(tick)
        return tick.runs[0] if tick.runs else _not_recorded(claim)

    def install(self, joined: object = None) -> bool:
        """Tell whether the tables are there, making them where that is wanted; one warning.

        On SQLite a caller's own connection makes them: it may hold the file's write lock. What it
        makes is gone if it rolls back, so nothing is remembered.
        """
        self.look_at_file()
        if self.facts.installed:
            return True
        if joined is not None and self.store.is_sqlite:
            return self.make_tables(joined)
        self.facts.installed = self.make_tables()
        if not self.facts.installed and not self.facts.told_missing:
            logger.warning(
                "lazycron's tables are missing: run `lazycron migrate`",
                extra={"action": "not_installed"},
            )
        self.facts.told_missing = not self.facts.installed
        return self.facts.installed

    def look_at_file(self) -> None:
        """Begin anew where SQLite's file was replaced or deleted while this process had it open."""
        if not self.store.reopen_if_replaced():
            return
        self.facts.installed = False
        self.facts.lower_floor(EPOCH)
        self.facts.replaced_at = self.reference.now()
        self.running.begin_anew()
        self.sync.begin_anew()
        self.refresh.begin_anew()
        logger.warning(
            "the database file was replaced or deleted; what is there now is opened",
            extra={"action": "database_replaced"},
        )

    def is_missing(self, error: DatabaseError) -> bool:
        """Tell whether tables were missing, and remember it: they are looked for again."""
        if fault_of(error) is not Fault.MISSING:
            return False
        self.facts.installed = False
        self.sync.look_again()
        return True

    # the steps

    @contextmanager
    def _in_a_tick(self) -> Iterator[None]:
        with self.activity.in_a_tick():
            try:
                yield
            finally:
                self.running.flush()

    def _begin(self, door: Door) -> Tick:
        moments = Moments(self.reference, door.now)
        return Tick(door=door, moments=moments, due=moments.now(), begun=self.reference.monotonic())

    def _look_at_clock(self, tick: Tick) -> None:
        """Let the tick start by the reference: ask the server's clock where it was not yet."""
        if tick.door.now is None:
            self.look_at_clock()
            tick.due = tick.moments.now()

    def look_at_clock(self) -> None:
        """Ask the server's clock if need be, and notice steps of the host's."""
        if self.reference.wants_sample:
            before = self.reference.monotonic()
            server_now = self.store.server_now()
            if server_now is not None:
                self.reference.sample(server_now, before, self.reference.monotonic())
        self.reference.look_at_host()

    def _bury(self, tick: Tick, look: Callable[[datetime], int]) -> None:
        """Bury what is lost, and take the second look that SQLite needs in this very tick.

        Nobody knows whether this process sees another tick. What was buried is due in this one,
        which then counts from the burial: it has run nothing yet.
        """
        look(tick.due)
        if self.burial.waits_for_second_look and self.reference.waits_count:
            self.activity.stopping.wait(BETWEEN_LOOKS)
            now = tick.moments.now()
            if look(now):
                tick.due = now

    def _run_all(self, tick: Tick) -> None:
        try:
            self.missed.look(tick.due)
            stamp = self._stamp_if_any_left(tick)
            claim = None if stamp is None else self._first_claim(stamp, tick)
        except DatabaseError as error:
            # A lost race or a held lock: not claimed. The next tick looks again.
            if fault_of(error) is not Fault.BUSY:
                raise
            self._refused(tick)
            return
        tick.refused_since, self.facts.refused_since = self.facts.refused_since, None
        while claim is not None:
            claim = self._work_off(claim, tick, more=True)
        if tick.recurring_first and tick.executed == 1 and tick.stopped_by != "done":
            self.store.shared.put_setting(TURN, OLDEST, tick.moments.now())

    def _refused(self, tick: Tick) -> None:
        """Remember since when ticks of this process find the database locked."""
        self.facts.refused_since = self.facts.refused_since or tick.due

    def _first_claim(self, stamp: Stamp, tick: Tick) -> Claim | None:
        """Claim the oldest due recurring row before any job, so that no flood can starve it.

        Where such a run has used up a whole tick, the next tick's first run is the oldest due row
        of all: no slow regular task can starve the jobs. The database says so, since the next tick
        may be another process's. Where this process knows of no jobs, nothing is asked.
        """
        if not self.facts.jobs_seen:
            return self.store.claim(stamp)
        if self.store.setting(TURN) == OLDEST:
            # Before the run, which may kill this process.
            self.store.shared.put_setting(TURN, RECURRING, stamp.start)
            return self.store.claim(stamp)
        claim = self.store.claim(replace(stamp, recurring=True))
        tick.recurring_first = claim is not None
        return claim or self.store.claim(stamp)

    def _claim_by_name(self, name: str, tick: Tick) -> Claim | None:
        claim = self.store.claim_by_name(name, self._stamp(tick))
        if claim is not None:
            return claim
        held = self.store.claim_of(name)
        if held is None:
            # The row is gone, or was let go just now.
            self.sync.bring_in(tick.due, by_clock=tick.door.now is None)
            return self.store.claim_by_name(name, self._stamp(tick))
        if held.claim.lease_until > tick.due:
            return None
        # A dead run holds the row: it is buried first, so that the history has it.
        self._bury(tick, lambda now: self.burial.look_at(held, now))
        return self.store.claim_by_name(name, self._stamp(tick))

    def _stamp_if_any_left(self, tick: Tick) -> Stamp | None:
        """Check shutdown and budget before asking for the next claim."""
        budget = tick.door.budget
        spent = timedelta(seconds=self.reference.monotonic() - tick.begun)
        if self.activity.stopping.is_set() or tick.interrupted is not None:
            tick.stopped_by = "shutdown"
        elif budget.tasks is not None and tick.executed >= budget.tasks:
            tick.stopped_by = "tasks"
        elif tick.executed and spent >= budget.length:
            # Between runs: a slow look at the rows must not use up every tick's time for ever.
            tick.stopped_by = "seconds"
        else:
            return self._stamp(tick)
        return None

    def _stamp(self, tick: Tick) -> Stamp:
        barred = self.registry.barred_from(tick.door.trigger)
        return Stamp(
            due=tick.due,
            start=tick.moments.now(),
            token=new_token(),
            by=self.store.by,
            trigger=tick.door.trigger,
            floor=self._floor(barred),
            without=tick.made | barred,
        )

    def _floor(self, barred: frozenset[str] = frozenset()) -> datetime:
        return self.facts.floor_at(self.reference.monotonic(), barred)

    def _work_off(self, claim: Claim, tick: Tick, *, more: bool) -> Claim | None:
        """Run one claim; return the next one, claimed in the commit of its record."""
        if not tick.executed:
            self._tell_lease_end(tick)
        return self.running.work_off(
            claim, tick, then=lambda: self._stamp_if_any_left(tick) if more else None
        )

    def _tell_lease_end(self, tick: Tick) -> None:
        """Let the state file name the lease's end, so that others do not look while this runs."""
        try:
            self.refresh.refresh(tick.moments)
        except DatabaseError as error:
            # The claim is ours all the same; the run goes on and its record is tried again.
            self._note(error, tick)

    def _obey(self, tick: Tick) -> None:
        """Obey a real interruption, now that it is recorded.

        A coroutine that was cancelled from outside ends its tick; it was not this thread's caller
        who was cancelled.
        """
        if isinstance(tick.interrupted, KeyboardInterrupt | SystemExit):
            raise tick.interrupted.with_traceback(None)

    # the end of a tick

    def _close(self, tick: Tick) -> TickReport:
        self.pruning.prune(tick)
        next_due = self.refresh.look(tick.moments, tick.door.trigger)[1]
        if tick.stopped_by in ("tasks", "seconds") and (next_due is None or next_due > tick.due):
            tick.stopped_by = "done"
        self.facts.last_tick_at = tick.due
        self.facts.last_stop = tick.stopped_by
        self.facts.last_ran = tuple(run.task for run in tick.runs)
        return self._report(tick, next_due, self.deciding.about_all(tick))

    def _report(
        self,
        tick: Tick,
        next_due: datetime | None = None,
        decisions: Decisions | None = None,
    ) -> TickReport:
        return TickReport(
            runs=tick.runs,
            decisions=self.deciding.about_runs(tick) if decisions is None else decisions,
            next_due=next_due,
            stopped_by=tick.stopped_by,
            seconds=self.reference.monotonic() - tick.begun,
        )

    def _note(self, error: DatabaseError, tick: Tick) -> None:
        """Remember what a database error means for the next looks of this process."""
        if not self.is_missing(error) and fault_of(error) is not Fault.BUSY:
            self.facts.out_of_order(said_by(error), tick.moments.now(), self.reference.monotonic())


def _not_recorded(claim: Claim) -> RunResult:
    """Say of a run whose row was somebody else's at its end what the history says of it."""
    message = "Lost: its lease ended before it did; the log file says what it came to."
    return to_result(claim, Outcome(status=Status.LOST, message=message, ms=None))
