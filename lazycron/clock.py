"""The only place where the wall clock is read."""

import time
from datetime import UTC, datetime
from typing import Protocol

from lazycron.messages import shown


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
    datetime and for what lies outside the calendar, and TypeError for anything else.
    """
    # A time zone that gives no offset is none: Python would take the host's own.
    if isinstance(value, datetime) and value.utcoffset() is None:
        message = f"{value!r} has no time zone; pass an aware datetime or epoch seconds"
        raise ValueError(message)
    if not isinstance(value, datetime | int | float) or isinstance(value, bool):
        message = f"{shown(value)} is no moment; pass an aware datetime or epoch seconds"
        raise TypeError(message)
    try:
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError):
        message = f"{shown(value)} is outside the calendar; pass an aware datetime or epoch seconds"
        raise ValueError(message) from None
