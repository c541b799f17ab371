"""When to look: one float on the hot path, and the threads that look and tick."""

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from queue import Empty, SimpleQueue
from typing import Literal
from weakref import WeakValueDictionary, ref

from lazycron.activity import Activity
from lazycron.app import LazyCron
from lazycron.errors import LazyCronError
from lazycron.execute import Bridge, in_a_new_loop, on_loop
from lazycron.facts import OUTAGE_PAUSE
from lazycron.parts import Parts
from lazycron.reports import TickReport
from lazycron.statefile import State
from lazycron.store import DatabaseError, Fault, fault_of
from lazycron.ticks import Door

logger = logging.getLogger("lazycron")

# So that a task's CPU time does not race the tail of the response that woke it (measured: about
# 5 ms later on five of seven servers without it).
HEAD_START = 0.05
LOOK_EVERY = 1.0
LONGEST_STANDING_BACK = 20.0
MOST_THREADS = 4
LOOP_LIFE = timedelta(seconds=30)

Visit = Literal["traffic", "admin"]
Kind = Literal["traffic", "admin", "url"]
Loop = asyncio.AbstractEventLoop | None
Report = Future[TickReport]


@dataclass(slots=True, eq=False)
class Errand:
    """What a thread is sent for: a look, or the cron URL's tick; the report is its answer."""

    kind: Kind
    loop: Loop = None
    report: Report = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Hand:
    """A thread that looks and ticks: one of ours, or a request's own under `tick_in="request"`.

    `activity` is that of the tick it is in, and None while it does not tick.
    """

    ident: int | None = None
    errand: Errand | None = None
    activity: Activity | None = None

    def is_hanging(self, longer_than: timedelta) -> bool:
        """Tell whether it has been in one run for longer than that."""
        activity = self.activity
        return activity is not None and activity.is_hanging(self.ident, longer_than)

    def shares(self, longer_than: timedelta) -> Errand | None:
        """Return the errand of its tick, if one is under way or sure to come and does not hang."""
        errand = self.errand
        if errand is None or errand.report.done() or self.is_hanging(longer_than):
            return None
        return errand if errand.kind == "url" or self.activity is not None else None


Serve = Callable[["Crew", Hand], None]


class Crew:
    """The hands of one process, from its first request or lifespan to the drain.

    A forked child makes one of its own: nothing here, not even the lock, is used after a fork.
    """

    def __init__(self, hanging_after: Callable[[], timedelta]) -> None:
        self.lock = threading.Lock()
        self.is_closed = False
        self.rest_until = -inf
        self._hanging_after = hanging_after
        self._hands: list[Hand] = []
        self._guests: list[Hand] = []
        self._errands: SimpleQueue[Errand | None] = SimpleQueue()
        self._url: Errand | None = None

    # with the lock held

    def has_free_hand(self) -> bool:
        """Tell whether a look would be done at once: by an idle thread, or by a further one."""
        idle = sum(hand.errand is None for hand in self._hands)
        return idle > self._errands.qsize() or self._needs_further_hand()

    def _needs_further_hand(self) -> bool:
        longest = self._hanging_after()
        all_hang = all(hand.is_hanging(longest) for hand in self._hands)
        return all_hang and len(self._hands) < MOST_THREADS

    def under_way(self) -> Errand | None:
        """Return the errand whose tick the cron URL can share: it ticks, or is about to."""
        longest = self._hanging_after()
        for hand in (*self._hands, *self._guests):
            if (errand := hand.shares(longest)) is not None:
                return errand
        url = self._url
        if url is None or url.report.done() or any(hand.errand is url for hand in self._hands):
            return None
        return url

    def tick_once(self, loop: Loop, serve: Serve) -> Errand:
        """Return the errand of the tick under way, else send a new one."""
        errand = self.under_way()
        if errand is None:
            errand = self._url = Errand("url", loop)
            if self.is_closed:
                errand.report.cancel()
            else:
                self.send(errand, serve)
        return errand

    def send(self, errand: Errand, serve: Serve) -> None:
        """Queue an errand, for whichever thread is free first, with a further one if needed."""
        idle = sum(hand.errand is None for hand in self._hands)
        if idle <= self._errands.qsize() and self._needs_further_hand():
            self._start(serve)
        self._errands.put(errand)

    def _start(self, serve: Serve) -> None:
        hand = Hand()
        name = f"lazycron-tick-{len(self._hands) + 1}"
        thread = threading.Thread(target=serve, args=(self, hand), name=name, daemon=True)
        thread.start()
        # Only now: a thread that could not be started must not be counted as an idle one.
        hand.ident = thread.ident
        self._hands.append(hand)

    def close(self) -> None:
        """Begin nothing new: who waits for a tick that has not begun is told so."""
        self.is_closed = True
        with suppress(Empty):
            while True:
                waiting = self._errands.get_nowait()
                if waiting is not None:
                    waiting.report.cancel()
        for _ in self._hands:
            self._errands.put(None)

    def receive(self, guest: Hand) -> bool:
        """Let a request's own thread tick, unless a tick is under way or four are."""
        if self.under_way() is not None or len(self._guests) >= MOST_THREADS:
            return False
        self._guests.append(guest)
        return True

    # without it

    def dismiss(self, guest: Hand) -> None:
        """Let a request's thread go."""
        with self.lock:
            self._guests.remove(guest)

    def take(self, hand: Hand) -> Errand | None:
        """Wait for the next errand; None: there will be none."""
        errand = self._errands.get()
        with self.lock:
            hand.errand = errand
        return errand

    def put_down(self, hand: Hand) -> None:
        """Be idle again; a report that nobody has made is cancelled."""
        with self.lock:
            if hand.errand is not None:
                hand.errand.report.cancel()
            hand.errand = hand.activity = None


class Trigger:
    """Decides when this process looks; makes its threads lazily, anew in each process.

    `look_again_at` is on the clock's monotonic scale, so that a wall clock set back silences
    nobody. The edges compare it on every request and call `look` at or after it. `is_woken` says
    that something was enqueued since, by the very request that ends now perhaps.
    """

    # Slots are read fastest, on every request.
    __slots__ = ("__weakref__", "_crews", "_cron", "is_woken", "look_again_at")

    def __init__(self, cron: LazyCron) -> None:
        self.look_again_at = -inf
        self.is_woken = False
        self._cron = cron
        # By process. Compared at each use: under uWSGI neither fork hooks nor is_alive() tell
        # the truth.
        self._crews: dict[int, Crew] = {}
        cron.waker = self.wake

    # called by the edges

    def look(self, kind: Visit, loop: Loop) -> None:
        """Send a tick thread to look whether anything is due; never raises, never waits."""
        try:
            crew = self._crew()
            with crew.lock:
                if self._may_look(crew) and crew.has_free_hand():
                    crew.send(Errand(kind, loop), self._serve)
        except Exception:
            logger.exception("lazycron could not look", extra={"action": "look_failed"})

    def wake(self) -> None:
        """Let this request look at its end, else the next: something was enqueued here."""
        if self.look_again_at != inf:
            self.look_again_at = -inf
            self.is_woken = True

    def tick(self, loop: Loop) -> Report:
        """Tick for the cron URL in a tick thread; a tick under way that does not hang is shared.

        The report is cancelled where the process is stopping.
        """
        crew = self._crew()
        with crew.lock:
            return crew.tick_once(loop, self._serve).report

    def tick_here(self, bridge: Bridge = in_a_new_loop) -> Report:
        """Do the same in the calling thread, for hosts that freeze a process after the response.

        The report is made on return, unless another thread's tick is shared.
        """
        crew, guest = self._crew(), Hand(threading.get_ident(), Errand("url"))
        with crew.lock:
            shared = crew.under_way()
            errand = shared or guest.errand or Errand("url")
            if crew.is_closed or not (shared or crew.receive(guest)):
                errand.report.cancel()
                return errand.report
        if shared is None:
            self._tick_as_guest(crew, guest, errand, bridge)
        return errand.report

    def look_here(self, kind: Visit, bridge: Bridge = in_a_new_loop) -> None:
        """Look, and tick if anything is due, in the calling thread; never raises."""
        crew, errand = self._crew(), Errand(kind)
        guest = Hand(threading.get_ident(), errand)
        with crew.lock:
            if not (self._may_look(crew) and crew.receive(guest)):
                return
        self._tick_as_guest(crew, guest, errand, bridge)

    def open(self) -> None:
        """Start afresh: an app that was shut down in this process is served again."""
        crew = self._crew()
        if crew.is_closed:
            self._crews[os.getpid()] = self._new_crew()
            self.look_again_at = -inf

    def drain(self) -> None:
        """Let no new look begin, and wait for running tasks, at most the `drain` setting."""
        crew = self._crew()
        with crew.lock:
            crew.close()
            self.look_again_at = inf
        self._cron.close()

    # the crew

    def _crew(self) -> Crew:
        pid = os.getpid()
        crew = self._crews.get(pid)
        if crew is not None:
            return crew
        made = self._new_crew()
        crew = self._crews.setdefault(pid, made)
        if crew is made:
            atexit.register(_drain_at_exit, ref(self), pid)
        return crew

    def _new_crew(self) -> Crew:
        cron = self._cron
        return Crew(lambda: cron.settings.budget.length)

    def _may_look(self, crew: Crew) -> bool:
        """Tell whether a look may begin now, and let the next one come a second later."""
        now = self._cron.settings.clock.monotonic()
        woken, self.is_woken = self.is_woken, False
        if now < self.look_again_at and not woken:
            return False  # another request was first
        if crew.is_closed or not self._cron.settings.is_on:
            self.look_again_at = inf
            return False
        if now < crew.rest_until:
            self.look_again_at = crew.rest_until  # however much is enqueued meanwhile
            return False
        self.look_again_at = now + LOOK_EVERY
        return True

    def _look_again_in(self, crew: Crew, seconds: float) -> None:
        at = self._cron.settings.clock.monotonic() + seconds
        with crew.lock:
            if not crew.is_closed:
                self.look_again_at = max(at, crew.rest_until)

    # in a tick thread, or a request's

    def _serve(self, crew: Crew, hand: Hand) -> None:
        while (errand := crew.take(hand)) is not None:
            try:
                time.sleep(HEAD_START)
                self._do(crew, hand, errand, bridge_to(errand.loop), stays=True)
            except BaseException as error:  # noqa: BLE001 - nothing may end this thread
                self._note(crew, errand, error)
            finally:
                crew.put_down(hand)

    def _tick_as_guest(self, crew: Crew, guest: Hand, errand: Errand, bridge: Bridge) -> None:
        try:
            self._do(crew, guest, errand, bridge, stays=False)
        except Exception as error:  # noqa: BLE001 - a request goes on whatever happens here
            self._note(crew, errand, error)
        finally:
            errand.report.cancel()
            crew.dismiss(guest)

    def _do(self, crew: Crew, hand: Hand, errand: Errand, bridge: Bridge, *, stays: bool) -> None:
        # First the parts, then the question: a drain that comes in between stops these parts, so
        # that no run can begin which nobody waits for.
        parts = self._cron.parts
        if crew.is_closed:
            return
        if errand.kind != "url" and not self._is_wanted(crew, parts, errand.kind):
            return
        hand.activity = parts.runner.activity
        budget = self._cron.settings.budget
        door = Door(trigger=errand.kind, budget=budget, bridge=bridge, stays=stays)
        report = parts.runner.run_due(door)
        self._stand_back(crew, report, parts.reference.now())
        errand.report.set_result(report)

    def _stand_back(self, crew: Crew, report: TickReport, now: datetime) -> None:
        """Keep visitors' ticks away from this one for as long as it took."""
        standing_back = min(report.seconds, LONGEST_STANDING_BACK)
        with crew.lock:
            crew.rest_until = self._cron.settings.clock.monotonic() + standing_back
        self._look_again_in(crew, _until(report.next_due, now))

    def _note(self, crew: Crew, errand: Errand, error: BaseException) -> None:
        """Say that a tick failed, and space the next attempts out; its waiter gets the error."""
        if not errand.report.done():
            errand.report.set_exception(error)
        if not (isinstance(error, DatabaseError) and fault_of(error) is Fault.BUSY):
            self._look_again_in(crew, OUTAGE_PAUSE)
        # A database's errors are told by their kind alone: their texts carry addresses and values.
        # Ours say what to do; all others need their traceback.
        ours = isinstance(error, LazyCronError)
        # After a drain that was too short, the connections are gone under whoever still ticks.
        logger.log(
            logging.DEBUG if crew.is_closed else logging.WARNING,
            "a tick failed: %s",
            f"{type(error).__name__}: {error}" if ours else type(error).__name__,
            exc_info=None if ours or isinstance(error, DatabaseError) else error,
            extra={"action": "tick_failed"},
        )

    # looking

    def _is_wanted(self, crew: Crew, parts: Parts, kind: Visit) -> bool:
        """Tell whether a visitor's tick is due; notes an outage found out here."""
        clock = self._cron.settings.clock
        now, monotonic = clock.now(), clock.monotonic()
        parts.facts.last_request_at = now
        if not parts.facts.may_ask(monotonic):
            return False
        state = parts.statefile.read(now)
        # The database is asked only where the file cannot be believed, which is once a minute.
        asks = state is None
        try:
            if asks and parts.runner.install():
                state = parts.refresh_state()
        except DatabaseError as error:
            fault = fault_of(error)
            if fault is Fault.MISSING:
                return True  # the tick finds out what is missing, and says so once
            if fault is not Fault.BUSY:
                parts.facts.out_of_order(type(error).__name__, now, monotonic)
            raise
        if state is None or not _is_switched_on(state, kind) or _loop_is_alive(state, now):
            return False
        # A commit that was announced may have become visible just now.
        if parts.facts.is_marked(monotonic):
            return True
        # Rows that are gone or that a clock put back has left far ahead are due to no file.
        if state.is_due(now) or (parts.sync.is_due if asks else parts.sync.is_wanted):
            return True
        self._look_again_in(crew, _until(state.next, now))
        return False


def bridge_to(loop: Loop) -> Bridge:
    """Return the bridge to an app's loop; None: to a loop of the task's own."""
    return in_a_new_loop if loop is None else on_loop(loop)


def _is_switched_on(state: State, kind: Visit) -> bool:
    return state.admin if kind == "admin" else state.traffic


def _loop_is_alive(state: State, now: datetime) -> bool:
    """Tell whether a `run --loop` has given a sign of life lately: requests stand back for it."""
    return state.loop_at is not None and abs(now - state.loop_at) < LOOP_LIFE


def _until(due: datetime | None, now: datetime) -> float:
    if due is None:
        return LOOK_EVERY
    return min(LOOK_EVERY, max(0.0, (due - now).total_seconds()))


def _drain_at_exit(held: "ref[Trigger]", pid: int) -> None:
    trigger = held()
    if trigger is not None and pid == os.getpid():
        trigger.drain()


# By the LazyCron's id, which cannot be given away while its trigger lives and holds it.
_TRIGGERS: "WeakValueDictionary[int, Trigger]" = WeakValueDictionary()


def trigger_of(cron: LazyCron) -> Trigger:
    """Return the one trigger of a LazyCron, however many edges it is mounted in."""
    trigger = _TRIGGERS.get(id(cron))
    if trigger is None:
        trigger = _TRIGGERS.setdefault(id(cron), Trigger(cron))
    return trigger
