"""The only place where the wall clock is read, and which clock stamps rows."""

import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from lazycron.texts import shown

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SAMPLES = 8
STEP = 0.05
# Oscillators differ by some tens of parts in a million; such a drift between hosts is not a step.
DRIFT = 1e-4


class Clock(Protocol):
    """The clock that lazycron reads: the system's, or a test's."""

    def now(self) -> datetime:
        """Return the wall clock's moment, aware and in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean anything."""


class SystemClock:
    """The host's own clocks."""

    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        """Return the host's wall clock in UTC."""
        return datetime.now(UTC)


def to_moment(value: datetime | float) -> datetime:
    """Turn what `now=` takes into an aware UTC datetime.

    Takes an aware datetime of any zone, or whole epoch seconds. Raises ValueError for a naive
    datetime and for what lies outside the calendar, and TypeError for anything else.
    """
    # A time zone without an offset does not count: Python would use the host's zone.
    if isinstance(value, datetime) and value.utcoffset() is None:
        message = f"{value!r} has no time zone; pass an aware datetime or epoch seconds"
        raise ValueError(message)
    if not isinstance(value, datetime | int | float) or isinstance(value, bool):
        message = f"{shown(value)} is not a moment; pass an aware datetime or epoch seconds"
        raise TypeError(message)
    try:
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError):
        message = f"{shown(value)} is outside the calendar; pass an aware datetime or epoch seconds"
        raise ValueError(message) from None


class Reference:
    """Computes a reference clock's time from the monotonic clock, and notices when it steps.

    On PostgreSQL and MariaDB the server's clock is sampled with every tick's last query. Of the
    last eight samples the one with the shortest round trip counts (measured on loopback: off by at
    most 65 and 130 microseconds). So hosts whose clocks differ agree, and a correction of a host's
    clock changes nothing. On SQLite, and with a clock other than the system's, the host's clock
    itself is the reference; its steps are noticed as well.
    """

    def __init__(self, clock: Clock, *, asks_server: bool) -> None:
        self.clock = clock
        self.asks_server = asks_server and isinstance(clock, SystemClock)
        # Round trip in seconds, and the server's moment when the monotonic clock was at zero.
        self._samples: deque[tuple[float, datetime]] = deque(maxlen=SAMPLES)
        self._zero: datetime | None = None
        self._host_zero: datetime | None = None
        self._sampled_at = 0.0
        self._stepped_at: float | None = None
        self.last_step: timedelta | None = None

    @property
    def wants_sample(self) -> bool:
        """Whether the server has to be asked before the next stamp.

        It has to at first, and after the host's two clocks have moved apart: while a machine
        sleeps, its monotonic clock stands still.
        """
        if not self.asks_server:
            return False
        if self._zero is None or self._host_zero is None:
            return True
        return self._is_step(self._zero_of_host(), self._host_zero, 0.0)

    def now(self) -> datetime:
        """Return the reference's moment."""
        if not self.asks_server or self._zero is None:
            return self.clock.now()
        return self._zero + timedelta(seconds=self.clock.monotonic())

    def monotonic(self) -> float:
        """Return the host's monotonic seconds."""
        return self.clock.monotonic()

    @property
    def waits_count(self) -> bool:
        """Whether time passes during a wait: a test's clock stands still."""
        return isinstance(self.clock, SystemClock)

    @property
    def offset(self) -> timedelta:
        """How far the reference is ahead of the host's wall clock."""
        return self.now() - self.clock.now() if self.asks_server else timedelta(0)

    def to_host(self, moment: datetime) -> datetime:
        """Translate a reference moment to the host's wall clock."""
        return moment - self.offset

    def sample(self, moment: datetime, before: float, after: float) -> None:
        """Add a sample: what the server's clock showed between two monotonic readings."""
        if self.asks_server:
            self._host_zero = self._zero_of_host()
            self._take(moment, before, after)

    def look_at_host(self) -> None:
        """Compare the host's two clocks, where the host's wall clock is the reference."""
        if not self.asks_server:
            before = self.clock.monotonic()
            moment = self.clock.now()
            self._take(moment, before, self.clock.monotonic())

    def _take(self, moment: datetime, before: float, after: float) -> None:
        trip = max(0.0, after - before)
        zero = moment - timedelta(seconds=before + trip / 2)
        if self._zero is not None and self._is_step(zero, self._zero, trip):
            self._samples.clear()
            self._stepped_at = after
            self.last_step = zero - self._zero
        self._sampled_at = after
        self._samples.append((trip, zero))
        self._zero = min(self._samples)[1]

    def _is_step(self, zero: datetime, before: datetime, trip: float) -> bool:
        age = max(0.0, self.clock.monotonic() - self._sampled_at)
        return abs((zero - before).total_seconds()) > trip / 2 + STEP + DRIFT * age

    def _zero_of_host(self) -> datetime:
        return self.clock.now() - timedelta(seconds=self.clock.monotonic())

    def stepped_within(self, length: timedelta) -> bool:
        """Tell whether the reference has stepped recently, by the monotonic clock."""
        if self._stepped_at is None:
            return False
        return self.clock.monotonic() - self._stepped_at < length.total_seconds()


@dataclass(frozen=True, slots=True)
class Moments:
    """The reference's moment at each call, or always the given one."""

    reference: Reference
    given: datetime | None = None

    def now(self) -> datetime:
        """Return the moment to stamp with."""
        return self.given if self.given is not None else self.reference.now()
