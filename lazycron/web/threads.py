"""The threads of one process that look and tick, the visit of each, and shared ticks."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import Literal

from lazycron.model.report import TickReport
from lazycron.process import MOST_HANGING, Activity

MOST_THREADS = MOST_HANGING

Visitor = Literal["traffic", "admin"]
Kind = Literal["traffic", "admin", "url"]
Loop = asyncio.AbstractEventLoop | None
Report = Future[TickReport]


@dataclass(slots=True, eq=False)
class Visit:
    """What a request asks of a thread: a look, or the cron URL's tick. The report is its answer."""

    kind: Kind
    loop: Loop = None
    report: Report = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class TickThread:
    """A thread that looks and ticks: one of ours, or a request's own under `tick_in="request"`.

    `visit` is its current visit; `activity` is that of its tick, or None while it does not tick.
    """

    ident: int | None = None
    visit: Visit | None = None
    activity: Activity | None = None

    @property
    def is_on_url(self) -> bool:
        """Whether it is busy with the cron URL's tick."""
        return self.visit is not None and self.visit.kind == "url"

    def is_hanging(self, longer_than: timedelta) -> bool:
        """Tell whether it has been in one run for longer than that."""
        activity = self.activity
        return activity is not None and activity.is_hanging(self.ident, longer_than)

    def shared(self, longer_than: timedelta) -> Visit | None:
        """Return the visit whose tick is under way, or sure to come, and does not hang."""
        visit = self.visit
        if visit is None or visit.report.done() or self.is_hanging(longer_than):
            return None
        return visit if visit.kind == "url" or self.activity is not None else None


Serve = Callable[["Threads", TickThread], None]


class Threads:
    """The tick threads of one process, from its first request or lifespan to the drain.

    A forked child makes its own: nothing here, not even the lock, is used after a fork. The methods
    of the first part are called with `lock` held.
    """

    def __init__(self, hanging_after: Callable[[], timedelta]) -> None:
        self.lock = threading.Lock()
        self.is_closed = False
        self.has_looked = False
        self.rest_until = -inf
        self.ours: list[TickThread] = []
        self._hanging_after = hanging_after
        self._of_requests: list[TickThread] = []
        # One lock for the queue and the busy threads: with two, a thread that has just taken a
        # visit from the queue would look idle for a moment.
        self._came = threading.Condition(self.lock)
        self._waiting: deque[Visit] = deque()
        self._url: Visit | None = None

    # with the lock held

    def is_at_rest(self) -> bool:
        """Tell whether no visit waits, and no thread is busy with one."""
        return not self._waiting and all(one.visit is None for one in self.ours)

    def would_serve(self) -> bool:
        """Tell whether a look would be done at once, by an idle thread or a further one."""
        return self._is_one_idle() or self._needs_a_further_one()

    def _is_one_idle(self) -> bool:
        return sum(one.visit is None for one in self.ours) > len(self._waiting)

    def _needs_a_further_one(self) -> bool:
        """Tell whether each thread hangs, or ticks for the cron URL.

        Who knows the URL may come without a pause, and would keep all visitors from looking.
        """
        longest = self._hanging_after()
        return len(self.ours) < MOST_THREADS and all(
            one.is_on_url or one.is_hanging(longest) for one in self.ours
        )

    def _is_stuck(self) -> bool:
        """Tell whether no thread takes a visit until a task ends that may never end."""
        return len(self.ours) >= MOST_THREADS and self._all_hang()

    def _all_hang(self) -> bool:
        longest = self._hanging_after()
        return all(one.is_hanging(longest) for one in self.ours)

    def under_way(self) -> Visit | None:
        """Return the visit whose tick the cron URL can share: it ticks, or is about to."""
        longest = self._hanging_after()
        for one in (*self.ours, *self._of_requests):
            if (visit := one.shared(longest)) is not None:
                return visit
        is_waiting = self._url is not None and self._url in self._waiting
        return self._url if is_waiting and not self._is_stuck() else None

    def tick_once(self, loop: Loop, serve: Serve) -> Visit:
        """Return the visit whose tick is under way, else send a new one.

        Its report is cancelled if no thread would take it: closed, or all threads hang.
        """
        visit = self.under_way()
        if visit is not None:
            return visit
        visit = Visit("url", loop)
        if self.is_closed or self._is_stuck():
            visit.report.cancel()
        else:
            self._url = visit
            self.send(visit, serve)
        return visit

    def send(self, visit: Visit, serve: Serve) -> None:
        """Queue a visit for the first free thread, and start a further thread if needed."""
        if not self._is_one_idle() and self._needs_a_further_one():
            self._start(serve)
        self._waiting.append(visit)
        self._came.notify()

    def _start(self, serve: Serve) -> None:
        made = TickThread()
        name = f"lazycron-tick-{len(self.ours) + 1}"
        thread = threading.Thread(target=serve, args=(self, made), name=name, daemon=True)
        thread.start()
        # Only now: a thread that could not be started must not be counted as an idle one.
        made.ident = thread.ident
        self.ours.append(made)

    def close(self) -> None:
        """Begin nothing new; a report of a tick that has not begun is cancelled."""
        self.is_closed = True
        for visit in self._waiting:
            visit.report.cancel()
        self._waiting.clear()
        self._came.notify_all()

    def receive(self, own: TickThread) -> bool:
        """Let a request's own thread tick, unless a tick is under way or four are.

        The cron URL's tick does not keep a visitor's away.
        """
        longest = self._hanging_after()
        busy = [one for one in (*self.ours, *self._of_requests) if one.shared(longest) is not None]
        if any(own.is_on_url or not one.is_on_url for one in busy):
            return False
        if len(self._of_requests) >= MOST_THREADS:
            return False
        self._of_requests.append(own)
        return True

    # without it

    def dismiss(self, own: TickThread) -> None:
        """Let a request's thread go."""
        with self.lock:
            self._of_requests.remove(own)

    def take(self, one: TickThread) -> Visit | None:
        """Wait for the next visit; None if there will be none."""
        with self._came:
            self._came.wait_for(lambda: self._waiting or self.is_closed)
            one.visit = self._waiting.popleft() if self._waiting else None
            return one.visit

    def put_down(self, one: TickThread) -> None:
        """Be idle again; a report that was not made is cancelled."""
        with self.lock:
            if one.visit is not None:
                one.visit.report.cancel()
            one.visit = one.activity = None
