"""Windows: the hours of the day in which a task may begin, by the clocks of a zone."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from lazycron.errors import ScheduleError
from lazycron.schedules.zones import (
    DAY,
    SECOND,
    change_within,
    next_shown,
    offset_at,
    on_the_wall,
    to_zone,
)
from lazycron.texts import shown

ACCEPTED = 'two times of day such as "02:00-05:00" or "22:00-02:00", the second at most "24:00"'
MINUTES = 60
_TEXT = re.compile(r"(\d\d?):(\d\d)\s*-\s*(\d\d?):(\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window:
    """From `opens`, included, to `closes`, not included, both since midnight; maybe across it.

    The zone's clocks decide: a window that a clock change skips is not open on that day, and one
    that it repeats is open for longer.
    """

    opens: timedelta
    closes: timedelta
    tz: str
    zone: tzinfo

    @property
    def text(self) -> str:
        """What is stored in the row, such as "02:00-05:00"."""
        return f"{_in_text(self.opens)}-{_in_text(self.closes)}"

    def is_open(self, moment: datetime) -> bool:
        """Tell whether the zone's clocks show a time within the window."""
        return self._holds(on_the_wall(moment, self.zone))

    def admitted(self, moment: datetime) -> datetime:
        """Return the moment itself while the window is open, else the next opening."""
        if self.is_open(moment):
            return moment
        return next_shown(
            moment,
            self.zone,
            lambda shows: _following(shows, self.opens),
            may_stop=self.is_open,
        )

    def closing(self, moment: datetime) -> datetime:
        """Return when the window, open at this moment, closes."""
        return next_shown(
            moment,
            self.zone,
            lambda shows: _following(shows, self.closes),
            may_stop=lambda change: not self.is_open(change),
        )

    def closed_since(self, moment: datetime) -> datetime:
        """Return when the window, closed at this moment, has closed."""
        while True:
            offset = offset_at(moment, self.zone)
            shows = (moment + offset).replace(tzinfo=None)
            closed = _latest(shows, self.closes)
            found = (closed - offset).replace(tzinfo=UTC)
            change = change_within(max(found, moment - DAY) - SECOND, moment, self.zone)
            if change is None:
                return found
            if self.is_open(change - SECOND):
                return change
            moment = change - SECOND

    def _holds(self, shows: datetime) -> bool:
        since = shows - datetime.combine(shows, time())
        if self.opens < self.closes:
            return self.opens <= since < self.closes
        return since >= self.opens or since < self.closes


def to_window(value: object, tz: str) -> Window:
    """Read what `between=` takes; raises ScheduleError, which says what is accepted."""
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        hour, minute, last_hour, last_minute = map(int, match.groups())
        opens = timedelta(hours=hour, minutes=minute)
        closes = timedelta(hours=last_hour, minutes=last_minute)
        differ = opens != closes % DAY or closes - opens == DAY
        if max(minute, last_minute) < MINUTES and opens < DAY and closes <= DAY and differ:
            return Window(opens, closes, tz, to_zone(tz))
    message = f"between={shown(value)} is not a window; pass {ACCEPTED}"
    raise ScheduleError(message)


def _following(shows: datetime, of_day: timedelta) -> datetime:
    """Return the first wall-clock time later than `shows` that has this time of day."""
    found = datetime.combine(shows, time()) + of_day % DAY
    return found if found > shows else found + DAY


def _latest(shows: datetime, of_day: timedelta) -> datetime:
    """Return the last wall-clock time up to `shows` that has this time of day."""
    found = datetime.combine(shows, time()) + of_day % DAY
    return found if found <= shows else found - DAY


def _in_text(of_day: timedelta) -> str:
    hours, rest = divmod(of_day, timedelta(hours=1))
    return f"{hours:02}:{rest // timedelta(minutes=1):02}"
