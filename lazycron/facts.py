"""What this process last saw: kept in memory for `why` and `check`, never stored."""

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OUTAGE_PAUSE = 30.0
MARK_LIFE = 5.0
FLOOR_LIFE = 60.0
MOST_GAPS = 20


@dataclass(frozen=True, slots=True)
class Outage:
    """A database that could not be asked: since when, and when to try again (monotonic)."""

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
    set_back_at: datetime | None = None
    replaced_at: datetime | None = None
    unknown_rows: bool = False
    floor: datetime = EPOCH
    floor_until: float = 0.0
    jobs_seen: bool = False
    marked_at: float | None = None
    told: set[str] = field(default_factory=set)

    def beat(self, now: datetime) -> None:
        """Note that a request has come, and how long after the last one."""
        if self.last_request_at is not None:
            self.gaps.append(now - self.last_request_at)
        self.last_request_at = now

    def out_of_order(self, error: str, now: datetime, monotonic: float) -> None:
        """Note that the database could not be asked."""
        since = self.outage.since if self.outage else now
        self.outage = Outage(since, monotonic + OUTAGE_PAUSE, error)

    def may_ask(self, monotonic: float) -> bool:
        """Tell whether a tick that nobody waits for may try the database again."""
        return self.outage is None or monotonic >= self.outage.again_at

    def mark(self, monotonic: float) -> None:
        """Note that something was enqueued whose commit may become visible within moments."""
        self.marked_at = monotonic

    def is_marked(self, monotonic: float) -> bool:
        """Tell whether a look should ask the database whatever the state file says.

        The first look that comes more than a few seconds after the last mark is the last to ask,
        be it in a minute: on a quiet site nobody looked in between.
        """
        marked_at = self.marked_at
        if marked_at is None:
            return False
        if monotonic >= marked_at + MARK_LIFE:
            self.marked_at = None
        return True

    def raise_floor(self, head: datetime, monotonic: float) -> None:
        """Remember that the index holds only unknown rows before `head`, for a minute."""
        if monotonic >= self.floor_until:
            self.floor_until = monotonic + FLOOR_LIFE
        self.floor = head

    def lower_floor(self, due: datetime) -> None:
        """Forget the floor if a known row was entered below it."""
        if due < self.floor:
            self.floor_until = -inf

    def floor_at(self, monotonic: float) -> datetime:
        """Return the moment before which all rows are unknown; forgotten once a minute."""
        return self.floor if monotonic < self.floor_until else EPOCH
