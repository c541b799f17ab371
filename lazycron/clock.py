"""The only place where the wall clock is read."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What lazycron asks the time of: the system's clock, or a test's."""

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
    datetime and TypeError for anything else.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            message = f"{value!r} has no time zone; pass an aware datetime or epoch seconds"
            raise ValueError(message)
        return value.astimezone(UTC)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC)
    message = f"{value!r} is no moment; pass an aware datetime or epoch seconds"
    raise TypeError(message)
