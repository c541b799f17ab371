"""Time zones: found by name, and searched by what their clocks show.

Arithmetic on aware local times forgets which of two equal times was meant. So everything here
goes from one change of a zone's offset to the next and computes in UTC.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from lazycron.errors import ScheduleError
from lazycron.texts import shown

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
# No clock has ever moved by more than a day, so two days on no change affects the result.
FAR = timedelta(days=2)

WallClock = Callable[[datetime], datetime]


def to_zone(name: str) -> tzinfo:
    """Return the time zone of an IANA name; raises ScheduleError where there is none."""
    if name == "UTC":
        return UTC  # cronsim skips its DST work for this object only
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        message = f'time zone {shown(name)} is unknown; pass an IANA name such as "Europe/Istanbul"'
        raise ScheduleError(message) from None


def on_the_wall(moment: datetime, zone: tzinfo) -> datetime:
    """Return what a wall clock in the zone shows, as a naive datetime."""
    return moment.astimezone(zone).replace(tzinfo=None)


def offset_at(moment: datetime, zone: tzinfo) -> timedelta:
    """Return how far the zone's clocks are ahead of UTC."""
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def change_within(start: datetime, end: datetime, zone: tzinfo) -> datetime | None:
    """Return the moment of the one change of the offset after `start`, up to `end`; UTC.

    The two are at most a day apart, so that no second change can hide the first.
    """
    before = offset_at(start, zone)
    if offset_at(end, zone) == before:
        return None
    low, high = start, end
    while high - low > SECOND:
        middle = low + (high - low) / 2
        if offset_at(middle, zone) == before:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)


def next_shown(
    moment: datetime, zone: tzinfo, following: WallClock, *, may_stop: Callable[[datetime], bool]
) -> datetime:
    """Return the first moment after this one at which the zone's clocks show a wanted time.

    `following` returns the first wanted wall-clock time after another one, both naive. A clock
    change for which `may_stop` is true is an answer too: there a clock skips a wanted time, which
    counts as shown then.
    """
    offset = offset_at(moment, zone)
    shows = (moment + offset).replace(tzinfo=None)
    while True:
        wanted = following(shows)
        found = (wanted - offset).replace(tzinfo=UTC)
        end = min(found, moment + DAY)
        change = change_within(moment, end, zone)
        if change is not None:
            if may_stop(change):
                return change
            # From here on the new offset applies; the time shown at the change itself counts.
            moment, offset = change, offset_at(change, zone)
            shows = (change + offset).replace(tzinfo=None) - SECOND
        elif end == found:
            return found
        else:
            moment = max(end, found - FAR)
            offset = offset_at(moment, zone)
            shows = (moment + offset).replace(tzinfo=None)
