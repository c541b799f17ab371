"""When to look: one float on the hot path, and the threads that look and tick."""

import asyncio
import atexit
import logging
import os
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from queue import SimpleQueue
from typing import Literal
from weakref import WeakKeyDictionary

from lazycron.app import LazyCron
from lazycron.execute import Bridge, in_a_new_loop, on_loop
from lazycron.parts import Parts
from lazycron.reports import TickReport
from lazycron.statefile import State
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
Loop = asyncio.AbstractEventLoop | None


@dataclass(slots=True, eq=False)
class Errand:
    """What a tick thread is sent for: a look, or the cron URL's tick with its future."""

    kind: Visit | Literal["url"]
    loop: Loop
    report: "Future[TickReport]" = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class TickThread:
    """One thread that looks and ticks, and what it is doing."""

    thread: threading.Thread | None = None
    errand: Errand | None = None
    ticking: bool = False


class Trigger:
    """Decides when this process looks; makes its threads lazily, anew in each process.

    `look_again_at` is on the clock's monotonic scale, so that a wall clock set back silences
    nobody. The edges compare it on every request and call `look` at or after it.
    """

    def __init__(self, cron: LazyCron) -> None:
        self.look_again_at = -inf
        self._cron = cron
        self._pid: int | None = None
        self._closing = False
        self._lock = threading.Lock()
        self._threads: list[TickThread] = []
        self._errands: SimpleQueue[Errand] = SimpleQueue()
        self._url: Errand | None = None

    # called by the edges

    def look(self, kind: Visit, loop: Loop) -> None:
        """Send a tick thread to look whether anything is due; never raises, never waits."""
        try:
            self._fresh_after_fork()
            now = self._cron.settings.clock.monotonic()
            with self._lock:
                if now < self.look_again_at:
                    return  # another request was first
                self.look_again_at = now + LOOK_EVERY
                if self._closing or not self._cron.settings.is_on:
                    self.look_again_at = inf
                    return
                self._send(Errand(kind, loop))
        except Exception:
            logger.exception("lazycron could not look", extra={"action": "look_failed"})

    def tick(self, loop: Loop) -> "Future[TickReport]":
        """Tick for the cron URL in a tick thread; a tick under way that does not hang is shared."""
        self._fresh_after_fork()
        with self._lock:
            errand = self._under_way()
            if errand is None:
                errand = self._url = Errand("url", loop)
                self._send(errand)
            return errand.report

    def tick_here(self, kind: Visit | Literal["url"], bridge: Bridge = in_a_new_loop) -> TickReport:
        """Tick in the calling thread, for hosts that freeze a process after the response."""
        self.look_again_at = self._cron.settings.clock.monotonic() + LOOK_EVERY
        return self._run_due(self._cron.parts, kind, bridge, stays=False)

    def look_here(self, kind: Visit, bridge: Bridge = in_a_new_loop) -> None:
        """Look, and tick if anything is due, in the calling thread."""
        self.look_again_at = self._cron.settings.clock.monotonic() + LOOK_EVERY
        if self._closing or not self._cron.settings.is_on:
            self.look_again_at = inf
        elif self._is_wanted(self._cron.parts, kind):
            self.tick_here(kind, bridge)

    def open(self) -> None:
        """Start afresh: an app that was shut down in this process is served again."""
        self._closing = False
        self.look_again_at = -inf

    def drain(self) -> None:
        """Let no new look begin, and wait for running tasks, at most the `drain` setting."""
        self._closing = True
        self.look_again_at = inf
        self._cron.close()

    # threads

    def _fresh_after_fork(self) -> None:
        # Compared at each use: under uWSGI neither fork hooks nor is_alive() tell the truth.
        if self._pid == os.getpid():
            return
        self._lock = threading.Lock()
        self._threads = []
        self._errands = SimpleQueue()
        self._url = None
        if self._pid is not None:
            self.look_again_at = -inf
        self._pid = os.getpid()
        atexit.register(_drain_at_exit, self, self._pid)

    def _under_way(self) -> Errand | None:
        """Return the errand whose tick the cron URL can share: it ticks, or is about to."""
        for held in self._threads:
            if held.errand is not None and held.ticking and not self._is_hanging(held):
                return held.errand
        taken = [held.errand for held in self._threads]
        waiting = self._url is not None and not self._url.report.done()
        return self._url if waiting and self._url not in taken else None

    def _send(self, errand: Errand) -> None:
        """Hand an errand to an idle thread, or to a further one where all others hang."""
        idle = sum(held.errand is None for held in self._threads)
        if idle <= self._errands.qsize():
            hanging = all(self._is_hanging(held) for held in self._threads)
            full = len(self._threads) >= MOST_THREADS
            if full or not hanging:
                if errand.kind == "url":
                    self._errands.put(errand)  # done by whichever thread is free first
                return
            self._start()
        self._errands.put(errand)

    def _start(self) -> None:
        held = TickThread()
        name = f"lazycron-tick-{len(self._threads) + 1}"
        held.thread = threading.Thread(target=self._serve, args=(held,), name=name, daemon=True)
        self._threads.append(held)
        held.thread.start()

    def _is_hanging(self, held: TickThread) -> bool:
        if held.errand is None or held.thread is None or not self._cron.is_used:
            return False
        longest = self._cron.settings.budget.length
        return self._cron.parts.runner.activity.is_hanging(held.thread.ident, longest)

    def _serve(self, held: TickThread) -> None:
        errands = self._errands
        while True:
            errand = errands.get()
            with self._lock:
                held.errand = errand
                held.ticking = errand.kind == "url"
            try:
                time.sleep(HEAD_START)
                if not self._closing:
                    self._do(held, errand)
                errand.report.cancel()
            except BaseException as error:  # noqa: BLE001 - nothing may end this thread
                if not errand.report.done():
                    errand.report.set_exception(error)
                logger.warning(
                    "a tick failed: %s", type(error).__name__, extra={"action": "tick_failed"}
                )
            finally:
                with self._lock:
                    held.errand = None
                    held.ticking = False

    def _do(self, held: TickThread, errand: Errand) -> None:
        bridge = in_a_new_loop if errand.loop is None else on_loop(errand.loop)
        parts = self._cron.parts
        if errand.kind != "url" and not self._is_wanted(parts, errand.kind):
            return
        held.ticking = True
        report = self._run_due(parts, errand.kind, bridge, stays=True)
        errand.report.set_result(report)

    # looking

    def _is_wanted(self, parts: Parts, kind: Visit) -> bool:
        """Ask the state file, and the database only where the file cannot be believed."""
        clock = self._cron.settings.clock
        now, monotonic = clock.now(), clock.monotonic()
        parts.facts.last_request_at = now
        if not parts.facts.may_ask(monotonic):
            return False
        state = parts.statefile.read(now)
        if state is None:
            if not parts.runner.install():
                return False
            state = parts.refresh_state()
        if not _is_switched_on(state, kind) or _loop_is_alive(state, now):
            return False
        if parts.sync.is_wanted or state.is_due(now):
            return True
        self.look_again_at = monotonic + _until(state.next, now)
        return False

    def _run_due(
        self, parts: Parts, kind: Visit | Literal["url"], bridge: Bridge, *, stays: bool
    ) -> TickReport:
        budget = self._cron.settings.budget
        door = Door(trigger=kind, budget=budget, bridge=bridge, stays=stays)
        report = parts.runner.run_due(door)
        clock = self._cron.settings.clock
        # A visitor's tick keeps away from the last one for as long as that one took.
        standing_back = min(report.seconds, LONGEST_STANDING_BACK)
        wait = max(standing_back, _until(report.next_due, parts.reference.now()))
        if not self._closing:
            self.look_again_at = clock.monotonic() + wait
        return report


def _is_switched_on(state: State, kind: Visit) -> bool:
    return state.admin if kind == "admin" else state.traffic


def _loop_is_alive(state: State, now: datetime) -> bool:
    """Tell whether a `run --loop` has given a sign of life lately: requests stand back for it."""
    return state.loop_at is not None and abs(now - state.loop_at) < LOOP_LIFE


def _until(due: datetime | None, now: datetime) -> float:
    if due is None:
        return LOOK_EVERY
    return min(LOOK_EVERY, max(0.0, (due - now).total_seconds()))


def _drain_at_exit(trigger: Trigger, pid: int) -> None:
    if pid == os.getpid():
        trigger.drain()


_TRIGGERS: "WeakKeyDictionary[LazyCron, Trigger]" = WeakKeyDictionary()


def trigger_of(cron: LazyCron) -> Trigger:
    """Return the one trigger of a LazyCron, however many edges it is mounted in."""
    return _TRIGGERS.setdefault(cron, Trigger(cron))
