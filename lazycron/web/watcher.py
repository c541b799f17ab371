"""When to look: one float on the hot path, and the threads that look and tick."""

import atexit
import logging
import os
import threading
import time
from datetime import datetime
from math import inf
from weakref import WeakValueDictionary, ref

from lazycron.app import LazyCron, attach, parts_of
from lazycron.errors import LazyCronError
from lazycron.executors.bridge import Bridge, in_a_new_loop, on_loop
from lazycron.model.report import TickReport
from lazycron.process import OUTAGE_PAUSE
from lazycron.statefile import State
from lazycron.store import DatabaseError, Fault, fault_of, said_by
from lazycron.tick.tick import Door
from lazycron.web.threads import Loop, Report, Threads, TickThread, Visit, Visitor
from lazycron.wiring import Parts

logger = logging.getLogger("lazycron")

# So that a task's CPU time does not race the tail of the response that woke it (measured: about
# 5 ms later on five of seven servers without it).
HEAD_START = 0.05
LOOK_EVERY = 1.0
LONGEST_STANDING_BACK = 20.0
# A loop beats every ten seconds; other hosts mirror that every thirty.


class Watcher:
    """Decides when this process looks; starts its threads when needed, in each process again.

    `look_again_at` is on the clock's monotonic scale, so that looks go on after a wall clock is set
    back. The edges compare it on every request and call `look` at or after it. `is_woken` says that
    something was enqueued since, perhaps by the request that ends now.
    """

    # Slots are read fastest, on every request.
    __slots__ = ("__weakref__", "_at_exit", "_cron", "_threads_of", "is_woken", "look_again_at")

    def __init__(self, cron: LazyCron) -> None:
        self.look_again_at = -inf
        self.is_woken = False
        self._cron = cron
        # For each process, compared at each use: under uWSGI neither fork hooks nor is_alive() can
        # be trusted.
        self._threads_of: dict[int, Threads] = {}
        self._at_exit: set[int] = set()
        attach(cron, wake=self.wake, let_go=self.let_go)

    # called by the edges

    def look(self, kind: Visitor, loop: Loop) -> None:
        """Send a tick thread to look whether anything is due; never raises, never waits."""
        try:
            threads = self._threads()
            with threads.lock:
                if self._may_look(threads) and threads.would_serve():
                    threads.send(Visit(kind, loop), self._serve)
        except Exception:
            logger.exception("lazycron could not look", extra={"action": "look_failed"})

    def wake(self) -> None:
        """Make this request look at its end, else the next one: something was enqueued here."""
        if self.look_again_at != inf:
            self.look_again_at = -inf
            self.is_woken = True

    def tick(self, loop: Loop) -> Report:
        """Tick for the cron URL in a tick thread; a tick under way that does not hang is shared.

        The report is cancelled if the process is stopping or all its tick threads hang.
        """
        threads = self._threads()
        with threads.lock:
            return threads.tick_once(loop, self._serve).report

    def tick_here(self, bridge: Bridge = in_a_new_loop) -> Report:
        """Do the same in the calling thread, for hosts that freeze a process after the response.

        The report is ready on return, unless another thread's tick is shared.
        """
        threads, own = self._threads(), TickThread(threading.get_ident(), Visit("url"))
        with threads.lock:
            shared = threads.under_way()
            visit = shared or own.visit or Visit("url")
            if threads.is_closed or not (shared or threads.receive(own)):
                visit.report.cancel()
                return visit.report
        if shared is None:
            self._tick_in_request(threads, own, visit, bridge)
        return visit.report

    def look_here(self, kind: Visitor, bridge: Bridge = in_a_new_loop) -> None:
        """Look, and tick if anything is due, in the calling thread; never raises."""
        threads, visit = self._threads(), Visit(kind)
        own = TickThread(threading.get_ident(), visit)
        with threads.lock:
            if not (self._may_look(threads) and threads.receive(own)):
                return
        self._tick_in_request(threads, own, visit, bridge)

    def open(self) -> None:
        """Start again: an app that was shut down in this process is served again."""
        threads = self._threads()
        if threads.is_closed:
            self._threads_of[os.getpid()] = self._new_threads()
            self.look_again_at = -inf

    def drain(self) -> None:
        """Begin no new look, and wait for running tasks, at most the `drain` setting."""
        threads = self._threads()
        with threads.lock:
            threads.close()
            self.look_again_at = inf
            # A process for each request ends so every time, and nothing would ever run.
            ends_unlooked = bool(threads.ours) and not threads.has_looked
        if ends_unlooked:
            self._mark_unlooked()
        self._cron.close()

    def _mark_unlooked(self) -> None:
        try:
            parts_of(self._cron).statefile.mark_unlooked()
        except Exception as error:  # noqa: BLE001 - the process ends all the same
            logger.debug("no mark was left: %s", error, extra={"action": "no_mark"})

    def let_go(self) -> None:
        """End the tick threads, since the LazyCron is closed; its next use starts new ones.

        Otherwise they would keep it alive as long as the process.
        """
        threads = self._threads_of.get(os.getpid())
        if threads is None:
            return
        with threads.lock:
            if threads.is_closed:
                return  # drained: nothing begins before `open`
            del self._threads_of[os.getpid()]
            threads.close()
            self.look_again_at = -inf

    # the threads

    def _threads(self) -> Threads:
        pid = os.getpid()
        threads = self._threads_of.get(pid)
        if threads is not None:
            return threads
        made = self._new_threads()
        threads = self._threads_of.setdefault(pid, made)
        if threads is made and pid not in self._at_exit:
            self._at_exit.add(pid)
            atexit.register(_drain_at_exit, ref(self), pid)
        return threads

    def _new_threads(self) -> Threads:
        cron = self._cron
        return Threads(lambda: cron.settings.hanging_after)

    def _may_look(self, threads: Threads) -> bool:
        """Tell whether a look may begin now, and put the next one off by a second."""
        now = self._cron.settings.clock.monotonic()
        woken, self.is_woken = self.is_woken, False
        if now < self.look_again_at and not woken:
            return False  # another request was first
        if threads.is_closed and self._threads_of.get(os.getpid()) is not threads:
            return False  # closed just now: the next request starts new threads
        if threads.is_closed or not self._cron.settings.is_on:
            self.look_again_at = inf
            return False
        if now < threads.rest_until:
            self.look_again_at = threads.rest_until  # even if more is enqueued meanwhile
            return False
        self.look_again_at = now + LOOK_EVERY
        return True

    def _look_again_in(self, threads: Threads, seconds: float) -> None:
        at = self._cron.settings.clock.monotonic() + seconds
        with threads.lock:
            if not threads.is_closed:
                self.look_again_at = max(at, threads.rest_until)

    # in a tick thread, or a request's

    def _serve(self, threads: Threads, thread: TickThread) -> None:
        while (visit := threads.take(thread)) is not None:
            try:
                time.sleep(HEAD_START)
                self._do(threads, thread, visit, bridge_to(visit.loop))
            except BaseException as error:  # noqa: BLE001 - nothing may end this thread
                self._note(threads, visit, error)
            finally:
                threads.put_down(thread)

    def _tick_in_request(
        self, threads: Threads, own: TickThread, visit: Visit, bridge: Bridge
    ) -> None:
        try:
            self._do(threads, own, visit, bridge)
        except Exception as error:  # noqa: BLE001 - a request goes on whatever happens here
            self._note(threads, visit, error)
        finally:
            visit.report.cancel()
            threads.dismiss(own)

    def _do(self, threads: Threads, thread: TickThread, visit: Visit, bridge: Bridge) -> None:
        # First the parts, then the check: a drain in between stops these parts, so that no run can
        # begin after it.
        parts = parts_of(self._cron)
        if threads.is_closed:
            return
        if not threads.has_looked:
            threads.has_looked = True
            parts.statefile.forget_unlooked()
        parts.facts.beat(self._cron.settings.clock.now())
        with parts.runner.activity.in_use():
            if visit.kind == "url" or self._is_wanted(threads, parts, visit.kind):
                self._tick(threads, parts, thread, visit, bridge)

    def _tick(
        self,
        threads: Threads,
        parts: Parts,
        thread: TickThread,
        visit: Visit,
        bridge: Bridge,
    ) -> None:
        thread.activity = parts.runner.activity
        budget = self._cron.settings.budget
        report = parts.runner.run_due(Door(trigger=visit.kind, budget=budget, bridge=bridge))
        if visit.kind != "url":
            self._stand_back(threads, report, parts.reference.now())
        visit.report.set_result(report)

    def _stand_back(self, threads: Threads, report: TickReport, now: datetime) -> None:
        """After a visitor's tick, start no other one for as long as it took."""
        standing_back = min(report.seconds, LONGEST_STANDING_BACK)
        with threads.lock:
            threads.rest_until = self._cron.settings.clock.monotonic() + standing_back
        self._look_again_in(threads, _until(report.next_due, now))

    def _note(self, threads: Threads, visit: Visit, error: BaseException) -> None:
        """Log that a tick failed and delay the next attempts; its waiter gets the error."""
        if not visit.report.done():
            visit.report.set_exception(error)
        is_busy = isinstance(error, DatabaseError) and fault_of(error) is Fault.BUSY
        # Who knows the cron URL may hit it without a pause: that pushes no visitor's look away.
        if not is_busy and visit.kind != "url":
            self._look_again_in(threads, OUTAGE_PAUSE)
        # Only the kind of a server's error is logged: its text may hold addresses and values. Our
        # own errors say what to do; all others need their traceback.
        ours = isinstance(error, LazyCronError)
        of_database = isinstance(error, DatabaseError)
        said = said_by(error) if of_database else type(error).__name__
        # After a drain that was too short, a tick still under way has lost its connections.
        logger.log(
            logging.DEBUG if threads.is_closed else logging.WARNING,
            "a tick failed: %s",
            f"{said}: {error}" if ours else said,
            exc_info=None if ours or of_database else error,
            extra={"action": "tick_failed"},
        )

    # looking

    def _is_wanted(self, threads: Threads, parts: Parts, kind: Visitor) -> bool:
        """Tell whether a visitor's tick is due; notes an outage found out here."""
        clock = self._cron.settings.clock
        now, monotonic = clock.now(), clock.monotonic()
        if not parts.facts.may_ask(monotonic):
            return False
        state = parts.statefile.read(now)
        # The database is asked only where the file is not reliable, which is once a minute.
        asks = state is None
        try:
            if asks and parts.runner.install():
                state = parts.refresh_state()
        except DatabaseError as error:
            fault = fault_of(error)
            if fault is Fault.MISSING:
                return True  # the tick finds out what is missing, and says so once
            if fault is not Fault.BUSY:
                parts.facts.out_of_order(said_by(error), now, monotonic)
            raise
        if state is None or not _is_switched_on(state, kind) or state.loop_is_alive(now):
            return False
        # An announced commit may just have become visible.
        if parts.facts.is_marked(monotonic):
            return True
        # The file does not know of rows that are gone, or far ahead since a clock was put back.
        if state.is_due(now, kind) or (parts.sync.is_due if asks else parts.sync.is_wanted):
            return True
        self._look_again_in(threads, _until(state.next_for(kind), now))
        return False


def bridge_to(loop: Loop) -> Bridge:
    """Return the bridge to an app's loop, or for None to a loop of the task's own."""
    return in_a_new_loop if loop is None else on_loop(loop)


def _is_switched_on(state: State, kind: Visitor) -> bool:
    return state.admin if kind == "admin" else state.traffic


def _until(due: datetime | None, now: datetime) -> float:
    if due is None:
        return LOOK_EVERY
    return min(LOOK_EVERY, max(0.0, (due - now).total_seconds()))


def _drain_at_exit(held: "ref[Watcher]", pid: int) -> None:
    watcher = held()
    if watcher is not None and pid == os.getpid():
        watcher.drain()


# By the LazyCron's id, which stays unique while its watcher lives and refers to it.
_WATCHERS: "WeakValueDictionary[int, Watcher]" = WeakValueDictionary()


def watcher_of(cron: LazyCron) -> Watcher:
    """Return the one watcher of a LazyCron, however many edges it is mounted in."""
    watcher = _WATCHERS.get(id(cron))
    if watcher is None:
        watcher = _WATCHERS.setdefault(id(cron), Watcher(cron))
    return watcher
