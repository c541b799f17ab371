"""What this process last saw and what it is doing: kept in memory, never stored."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

from lazycron.clock import EPOCH

OUTAGE_PAUSE = 30.0
MARK_LIFE = 5.0
FLOOR_LIFE = 60.0
MOST_GAPS = 20
# How many ticks of one process may hang, each in a task, before requests begin no more ticks.
MOST_HANGING = 4


@dataclass(frozen=True, slots=True)
class Outage:
    """A database that cannot be reached: since when, and when to try again (monotonic)."""

    since: datetime
    again_at: float
    error: str


@dataclass(slots=True)
class Facts:
    """One process's memory; dropped after a fork."""

    last_request_at: datetime | None = None
    last_tick_at: datetime | None = None
    last_stop: str | None = None
    last_ran: tuple[str, ...] = ()
    gaps: deque[timedelta] = field(default_factory=lambda: deque(maxlen=MOST_GAPS))
    installed: bool = False
    told_missing: bool = False
    outage: Outage | None = None
    refused_since: datetime | None = None
    set_back_at: datetime | None = None
    replaced_at: datetime | None = None
    unknown_rows: bool = False
    # By the names that are left out: the moment before which no row of the others lies, and until
    # when (monotonic) that is believed.
    floors: dict[frozenset[str], tuple[datetime, float]] = field(default_factory=dict)
    jobs_seen: bool = False
    marked_at: float | None = None
    told: set[str] = field(default_factory=set)

    def beat(self, now: datetime) -> None:
        """Note a request, and how long after the last one it came."""
        if self.last_request_at is not None:
            self.gaps.append(now - self.last_request_at)
        self.last_request_at = now

    def out_of_order(self, error: str, now: datetime, monotonic: float) -> None:
        """Note that the database could not be reached."""
        since = self.outage.since if self.outage else now
        self.outage = Outage(since, monotonic + OUTAGE_PAUSE, error)

    def may_ask(self, monotonic: float) -> bool:
        """Tell whether a background tick may try the database again."""
        return self.outage is None or monotonic >= self.outage.again_at

    def mark(self, monotonic: float) -> None:
        """Note that something was enqueued whose commit may become visible within moments."""
        self.marked_at = monotonic

    def is_marked(self, monotonic: float) -> bool:
        """Tell whether a look should ask the database whatever the state file says.

        The first look more than a few seconds after the last mark is the last one to ask. It may
        come a minute later: on a quiet site there is no look in between.
        """
        marked_at = self.marked_at
        if marked_at is None:
            return False
        if monotonic >= marked_at + MARK_LIFE:
            self.marked_at = None
        return True

    def raise_floor(
        self, head: datetime, monotonic: float, without: frozenset[str] = frozenset()
    ) -> None:
        """Remember for a minute: rows before `head` are unknown, or of the tasks in `without`."""
        until = self.floors.get(without, (EPOCH, -inf))[1]
        self.floors[without] = (head, monotonic + FLOOR_LIFE if monotonic >= until else until)

    def lower_floor(self, due: datetime) -> None:
        """Forget the floors above a known row that was entered."""
        for names, (head, _) in tuple(self.floors.items()):
            if due < head:
                self.floors.pop(names, None)

    def floor_at(self, monotonic: float, without: frozenset[str] = frozenset()) -> datetime:
        """Return the moment before which all rows are unknown, or of the tasks in `without`."""
        found = (self.floors.get(names) for names in (frozenset[str](), without))
        return max(
            (head for head, until in filter(None, found) if monotonic < until), default=EPOCH
        )


def _nothing() -> None:
    """Keep everything open: this process goes on."""


class Activity:
    """Counts ticks and runs, so that others can wait for them or find one hanging."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.stopping = threading.Event()
        self._monotonic = monotonic
        self._ticks = 0
        self._users = 0
        self._last_out: Callable[[], None] = _nothing
        self._idle = threading.Condition()
        self._run_began: dict[int, float] = {}
        self._in_a_task: dict[int, float] = {}

    @contextmanager
    def in_a_tick(self) -> Iterator[None]:
        """Count a tick for the time of this block."""
        with self.in_use():
            with self._idle:
                self._ticks += 1
            try:
                yield
            finally:
                with self._idle:
                    self._ticks -= 1
                    self._idle.notify_all()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a user of the database for the time of this block: a tick, a look, a renewal."""
        with self._idle:
            self._users += 1
        try:
            yield
        finally:
            with self._idle:
                self._users -= 1
                is_last = self._users == 0
            if is_last:
                self._last_out()

    def close_behind(self, close: Callable[[], None]) -> None:
        """Let the last user close what was opened after the drain."""
        self._last_out = close

    def in_a_run(self) -> AbstractContextManager[None]:
        """Return a block for whose time this thread counts as being in a run.

        A task may run another task in its own thread: the one that began first counts.
        """
        thread = threading.get_ident()
        if thread in self._run_began:
            return nullcontext()
        return _Noted(self._run_began, thread, self._monotonic())

    def in_a_task(self) -> AbstractContextManager[None]:
        """Note that this thread is inside a task's function for the time of the block."""
        thread = threading.get_ident()
        if thread in self._in_a_task:
            return nullcontext()
        return _Noted(self._in_a_task, thread, self._monotonic())

    def is_in_a_task(self, thread: int) -> bool:
        """Tell whether a thread is inside a task's function, whose errors become its outcome."""
        return thread in self._in_a_task

    @property
    def is_busy(self) -> bool:
        """Whether a tick is under way."""
        return self._ticks > 0

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no tick is under way, at most `timeout` seconds; return whether none is."""
        with self._idle:
            return self._idle.wait_for(lambda: self._ticks == 0, timeout)

    def hanging(self, longer_than: timedelta) -> int:
        """Count the threads that have been in one run for longer than that."""
        return sum(self.is_hanging(thread, longer_than) for thread in tuple(self._run_began))

    def is_hanging(self, thread: int | None, longer_than: timedelta) -> bool:
        """Tell whether a thread has been in one run for longer than that."""
        began = self._run_began.get(thread or 0)
        if began is None:
            return False
        return self._monotonic() - began > longer_than.total_seconds()


class _Noted:
    """The block of `run`; a class, since a generator would cost too much between short runs."""

    def __init__(self, began: dict[int, float], thread: int, now: float) -> None:
        self._began = began
        self._thread = thread
        self._now = now

    def __enter__(self) -> None:
        self._began[self._thread] = self._now

    def __exit__(self, *_: object) -> None:
        del self._began[self._thread]
