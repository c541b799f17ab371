"""Lengths of time: what a duration argument accepts, and how a duration is written."""

import math
import re
from datetime import timedelta

from lazycron.errors import ScheduleError
from lazycron.texts import shown

Duration = timedelta | float | str

ACCEPTED = 'a timedelta, a number of seconds or a text such as "90s", "15m", "1h30m" or "2d"'
MICROSECOND = timedelta(microseconds=1)
LONGEST_DURATION = timedelta(days=3660)

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_NAMES = {"d": "day", "h": "hour", "m": "minute", "s": "second"}
_TEXT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)


def to_duration(
    value: Duration,
    *,
    what: str = "duration",
    least: timedelta = timedelta(0),
    most: timedelta = LONGEST_DURATION,
) -> timedelta:
    """Turn a duration argument into a timedelta between `least` and `most`.

    Raises ScheduleError, which names the value and what is accepted, for anything else: words,
    NaN, infinities, booleans, and lengths out of bounds.
    """
    seconds = _seconds(value)
    # Compared as numbers: 1e308 seconds would overflow a timedelta.
    if seconds is None or not least.total_seconds() <= seconds <= most.total_seconds():
        message = (
            f"{what} {shown(value)} is not accepted; pass {ACCEPTED}, "
            f"from {_bound(least)} to {_bound(most)}"
        )
        raise ScheduleError(message)
    return timedelta(seconds=seconds)


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(value)
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip().lower())
        if match and any(match.groups()):
            parts = zip(match.groups(), _UNITS.values(), strict=True)
            return sum(float(count) * unit for count, unit in parts if count)
    return None


def _finite(number: float) -> float | None:
    try:
        return float(number) if math.isfinite(number) else None
    except OverflowError:  # a whole number beyond the floats
        return None


def _bound(length: timedelta) -> str:
    return "zero" if not length else in_words(length)


def in_short(length: timedelta) -> str:
    """Write a duration as the text that `to_duration` takes: "1h30m", "0s"."""
    return "".join(f"{count}{unit}" for unit, count in _split(length)) or "0s"


def in_words(length: timedelta) -> str:
    """Write a duration for people: "15 minutes", "1 hour 30 minutes"."""
    named = [f"{n} {_NAMES[unit]}{'' if n == '1' else 's'}" for unit, n in _split(length)]
    return " ".join(named) or "0 seconds"


def roughly(length: timedelta) -> str:
    """Write a duration by its two largest units, for sentences: "3 days 4 hours"."""
    whole = timedelta(seconds=round(abs(length).total_seconds()))
    named = [f"{n} {_NAMES[unit]}{'' if n == '1' else 's'}" for unit, n in _split(whole)]
    return " ".join(named[:2]) or "0 seconds"


def _split(length: timedelta) -> list[tuple[str, str]]:
    whole, micros = divmod(length, timedelta(seconds=1))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f"{micros.microseconds:06d}".rstrip("0")
    last = f"{seconds}.{fraction}" if fraction else str(seconds)
    counts = [("d", str(days)), ("h", str(hours)), ("m", str(minutes)), ("s", last)]
    return [(unit, count) for unit, count in counts if count != "0"]
