"""`run --loop`: tick whenever something is due, until a signal."""

from collections.abc import Callable

from lazycron.app import LazyCron, parts_of
from lazycron.cli.failures import of_database
from lazycron.cli.heartbeat import Heartbeat
from lazycron.cli.output import at, say
from lazycron.model.report import TickReport
from lazycron.process import OUTAGE_PAUSE
from lazycron.statefile import State
from lazycron.store import DatabaseError, Fault, fault_of, said_by
from lazycron.tick.burial import BETWEEN_LOOKS
from lazycron.tick.tick import Door

LOOK_EVERY = 1.0
ASK_EVERY = 2.0
LOOP = "loop"
MISSING = "the database has no lazycron tables: run `lazycron migrate`; the loop waits for it"

Show = Callable[[TickReport, str], None]


class Loop:
    """Looks at the state file each second, at the database every two, and ticks in between.

    The file may say that nothing is due after another host, or a process that could not write the
    file, has made something due; hence the second look. Between two ticks there is a heartbeat, so
    that requests stand back for a loop that is alive, and take over from one that hangs or has
    died.
    """

    def __init__(self, cron: LazyCron, door: Door, show: Show) -> None:
        self._parts = parts_of(cron)
        self._clock = cron.settings.clock
        self._stopping = parts_of(cron).runner.activity.stopping
        self._door = door
        self._show = show
        self._heartbeat = Heartbeat(parts_of(cron), self._clock)
        self._ask_at = 0.0
        self._told: Fault | None = None

    def run(self) -> None:
        """Go on until the process is told to stop; then let requests take over at once."""
        try:
            while not self._stopping.is_set():
                wait = self._pass()
                if wait > 0:
                    self._stopping.wait(wait)
        finally:
            if self._parts.facts.may_ask(self._clock.monotonic()):
                self._heartbeat.end()

    def _pass(self) -> float:
        """Look once, tick if anything is due; return how many seconds to wait."""
        facts, begun = self._parts.facts, self._clock.monotonic()
        if facts.outage is not None:
            if not facts.may_ask(begun):
                return facts.outage.again_at - begun
            self._ask_at = begun  # only the database itself can say that it is back
        try:
            wait = self._look()
        except DatabaseError as error:
            return self._fail(error)
        if not facts.installed:
            return self._tell(Fault.MISSING, MISSING, ASK_EVERY)
        if facts.outage is None or facts.may_ask(self._clock.monotonic()):
            facts.outage = None
            self._recover()
            return wait
        # The tick had runs to report, so it let its error go no further.
        return self._tell_outage(facts.outage.error)

    def _look(self) -> float:
        if not self._parts.runner.install():
            return ASK_EVERY
        self._heartbeat.beat()
        state = self._state()
        now = self._clock.now()
        if not state.is_due(now, LOOP):
            return self._until_next_look(state)
        report = self._parts.runner.run_due(self._door)
        self._show(report, at(self._clock.now()))
        # A row may be due and not free yet (its lease is watched, or it was just made): look later.
        return 0.0 if report.runs else BETWEEN_LOOKS

    def _state(self) -> State:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        found = self._parts.statefile.read(now)
        asks = monotonic >= self._ask_at or self._parts.sync.is_wanted
        if found is not None and (found.is_due(now, LOOP) or not asks):
            return found
        self._parts.sync.bring_in_when_due(now)
        found = self._parts.refresh_state()
        self._ask_at = self._clock.monotonic() + ASK_EVERY
        return found

    def _until_next_look(self, state: State) -> float:
        now = self._clock.now()
        following = state.next_for(LOOP)
        until = LOOK_EVERY if following is None else (following - now).total_seconds()
        return max(0.0, min(LOOK_EVERY, until, self._ask_at - self._clock.monotonic()))

    # outages: said once, like their end

    def _fail(self, error: DatabaseError) -> float:
        facts, fault = self._parts.facts, fault_of(error)
        if fault is Fault.BUSY:
            return LOOK_EVERY
        if fault is Fault.MISSING:
            facts.installed = False
            return self._tell(Fault.MISSING, MISSING, ASK_EVERY)
        facts.out_of_order(said_by(error), self._clock.now(), self._clock.monotonic())
        return self._tell_outage(of_database(error))

    def _tell_outage(self, words: str) -> float:
        words = f"{words}; trying again every {OUTAGE_PAUSE:.0f} s"
        return self._tell(Fault.GONE, words, OUTAGE_PAUSE)

    def _tell(self, fault: Fault, words: str, wait: float) -> float:
        if self._told is not fault:
            say(f"lazycron: {words}", err=True)
        self._told = fault
        return wait

    def _recover(self) -> None:
        if self._told is not None:
            back = "the tables are there" if self._told is Fault.MISSING else "the database is back"
            say(f"lazycron: {back}", err=True)
        self._told = None
