"""The threads of one process that look and tick, what each is sent for, and who shares a tick."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from queue import Empty, SimpleQueue
from typing import Literal

from lazycron.model.report import TickReport
from lazycron.process import MOST_HANGING, Activity

MOST_THREADS = MOST_HANGING

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
        return len(self._hands) < MOST_THREADS and self._all_hang()

    def _is_stuck(self) -> bool:
        """Tell whether nobody would take an errand until a task ends that may never end."""
        return len(self._hands) >= MOST_THREADS and self._all_hang()

    def _all_hang(self) -> bool:
        longest = self._hanging_after()
        return all(hand.is_hanging(longest) for hand in self._hands)

    def under_way(self) -> Errand | None:
        """Return the errand whose tick the cron URL can share: it ticks, or is about to."""
        longest = self._hanging_after()
        for hand in (*self._hands, *self._guests):
            if (errand := hand.shares(longest)) is not None:
                return errand
        url = self._url
        if (
            url is None
            or self._is_stuck()
            or url.report.done()
            or any(hand.errand is url for hand in self._hands)
        ):
            return None
        return url

    def tick_once(self, loop: Loop, serve: Serve) -> Errand:
        """Return the errand of the tick under way, else send a new one.

        Its report is cancelled where nobody would take it: the crew is closed, or all hands hang.
        """
        errand = self.under_way()
        if errand is not None:
            return errand
        errand = Errand("url", loop)
        if self.is_closed or self._is_stuck():
            errand.report.cancel()
        else:
            self._url = errand
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
