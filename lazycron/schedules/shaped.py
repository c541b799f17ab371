"""When a task is due: rhythms, their window and jitter, and their texts in rows."""

import hashlib
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property

from lazycron.durations import Duration, in_short, in_words, to_duration
from lazycron.errors import ScheduleError
from lazycron.schedules.rhythms import MINUTE, TEXT_LENGTH, Crontab, Every, Schedule
from lazycron.schedules.windows import Window, to_window
from lazycron.schedules.zones import SECOND, to_zone
from lazycron.texts import shown

__all__ = ["TEXT_LENGTH", "Crontab", "Every", "Schedule", "Shaped", "parse", "shape", "to_zone"]

MOST_JITTER = timedelta(days=30)
NONE = timedelta(0)
MICROSECOND = timedelta(microseconds=1)


class Shaped(Schedule):
    """A rhythm held to a window, or spread by jitter, or both.

    The window comes first: a nominal time at which it is closed moves to its next opening. Jitter
    then delays the due time by less than `jitter`, but not beyond the next nominal time or the
    window's closing. So each nominal time has its own due time, and none is lost or doubled. The
    delay is a hash of the seed and, for crontabs, the nominal time. An interval's delay is always
    the same, since different delays would bring two runs too close to each other.
    """

    def __init__(
        self, rhythm: Every | Crontab, window: Window | None, jitter: timedelta, seed: str = ""
    ) -> None:
        self._rhythm = rhythm
        self.window = window
        self.jitter = jitter
        self._seed = seed
        if len(self.text) > TEXT_LENGTH:
            message = f"{shown(self.text)} is longer than a row's schedule may be: {TEXT_LENGTH}"
            raise ScheduleError(message)

    @cached_property
    def text(self) -> str:
        """What is stored in the row, such as "every 1h tz=UTC between=02:00-05:00 jitter=5m"."""
        parts = [self._rhythm.text]
        if self.window is not None:
            if isinstance(self._rhythm, Every):
                parts.append(f"tz={self.window.tz}")
            parts.append(f"between={self.window.text}")
        if self.jitter:
            parts.append(f"jitter={in_short(self.jitter)}")
        return " ".join(parts)

    @property
    def rhythm(self) -> Every | Crontab:
        """The schedule without window and jitter."""
        return self._rhythm

    @property
    def zone(self) -> tzinfo | None:
        """The time zone of its rhythm, else of its window."""
        return self._rhythm.zone or (self.window.zone if self.window else None)

    @property
    def is_windowed(self) -> bool:
        """Whether a run may begin only at some times of day."""
        return self.window is not None

    @property
    def is_jittered(self) -> bool:
        """Whether due times depend on the installation and the task's name."""
        return bool(self.jitter)

    def seeded(self, seed: str) -> "Shaped":
        """Return the schedule for one task of one installation."""
        return Shaped(self._rhythm, self.window, self.jitter, seed)

    def admitted(self, moment: datetime) -> datetime:
        """Return the moment itself while the window is open, else the next opening."""
        return moment if self.window is None else self.window.admitted(moment.astimezone(UTC))

    def next_after(self, moment: datetime) -> datetime:
        """Return the first due time later than `moment`."""
        return self.due_for(self.nominal_after(moment))

    def nominal_after(self, moment: datetime) -> datetime:
        """Return the first nominal time whose due time is later than `moment`."""
        moment = moment.astimezone(UTC)
        if self.jitter and isinstance(self._rhythm, Crontab):
            last = self._latest(moment)
            if last is not None and self.due_for(last) > moment:
                return last
        return self.following(moment)

    def following(self, moment: datetime) -> datetime:
        """Return the first nominal time later than `moment`."""
        if self.window is not None and isinstance(self._rhythm, Crontab):
            if self.window.is_open(moment):
                return self.window.admitted(self._rhythm.next_after(moment))
            # All times since the window closed are put off to its opening.
            closed = self.window.closed_since(moment)
            return self.window.admitted(self._rhythm.next_after(closed - MICROSECOND))
        return self.admitted(self._rhythm.next_after(moment))

    def _latest(self, moment: datetime) -> datetime | None:
        """Return the last nominal time up to `moment`, if its due time may be later than that."""
        back = MINUTE
        while (first := self.following(moment - back)) > moment:
            if back > self.jitter:
                return None
            back *= 2
        # By halving, not step by step: there may be a month of minutes.
        low, high = first, moment
        while (found := self.following(low)) <= moment:
            middle = low + (high - low) / 2
            first = self.following(middle)
            low, high = (first, high) if first <= moment else (found, middle)
        return low

    def due_for(self, nominal: datetime, start: datetime | None = None) -> datetime:
        """Return a nominal time with its jitter; for intervals never too soon after `start`."""
        due = nominal + self._delay(nominal)
        if start is not None and isinstance(self._rhythm, Every):
            due = self.admitted(max(due, self._rhythm.soonest(start)))
        return due

    def _delay(self, nominal: datetime) -> timedelta:
        if not self.jitter:
            return NONE
        most = min(self.jitter, self._rhythm.next_after(nominal) - nominal)
        left = most
        if self.window is not None and self.window.is_open(nominal):
            left = min(most, self.window.closing(nominal) - nominal)
        if isinstance(self._rhythm, Every):
            share = _share(self._seed)
            # Only the last one before the window closes may need a shorter delay.
            delay = _part(most, share)
            return delay if delay < left else _part(left, share)
        return _part(left, _share(f"{self._seed}\n{nominal.astimezone(UTC).isoformat()}"))

    def after_run(self, scheduled_for: datetime, start: datetime) -> datetime:
        """Return the next nominal time after a run for `scheduled_for` that began at `start`.

        Jitter does not change an interval's phase.
        """
        if isinstance(self._rhythm, Every):
            # `run_now` may begin it before the delay is over, or even before its nominal time.
            begun = max(start - self._delay(scheduled_for), min(start, scheduled_for))
            return self.admitted(self._rhythm.after_run(scheduled_for, begun))
        return self._beyond(scheduled_for, start)

    def after_missed(self, scheduled_for: datetime, now: datetime) -> datetime:
        """Return the next nominal time if `scheduled_for` is passed over at `now`."""
        if isinstance(self._rhythm, Every):
            # A due time that is only put off is not missed yet.
            undelayed = now - self._delay(scheduled_for)
            found = self.admitted(self._rhythm.after_missed(scheduled_for, undelayed))
            if self.due_for(found) > now:
                return found
            return self.admitted(self._rhythm.after_missed(scheduled_for, now))
        return self._beyond(scheduled_for, now)

    def _beyond(self, scheduled_for: datetime, moment: datetime) -> datetime:
        found = self.nominal_after(moment)
        return found if found > scheduled_for else self.following(scheduled_for)

    @property
    def retry_base(self) -> timedelta:
        """The unit of the backoff after failures and losses: the rhythm's."""
        return self._rhythm.retry_base

    def latest_retry(self, start: datetime) -> datetime | None:
        """Return the nominal time by which it must be retried; None for intervals."""
        if isinstance(self._rhythm, Every):
            return None
        return self.nominal_after(start)

    def __repr__(self) -> str:
        return f"Shaped({self.text!r})"

    def __str__(self) -> str:
        words = str(self._rhythm)
        if self.window is not None:
            words += f" between {self.window.text.replace('-', ' and ')}"
            if isinstance(self._rhythm, Every):
                words += f" in {self.window.tz}"
        if self.jitter:
            words += f", up to {in_words(self.jitter)} later"
        return words


def _share(text: str) -> float:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def _part(length: timedelta, share: float) -> timedelta:
    """Return a share of a length in whole seconds, so that due times are easy to read."""
    return SECOND * int(length.total_seconds() * share)


def shape(schedule: Schedule, *, between: str | None, jitter: Duration | None, tz: str) -> Schedule:
    """Hold a schedule to a window and spread it by jitter; raises ScheduleError.

    `tz` is the window's zone if the schedule has none.
    """
    if between is None and jitter is None:
        return schedule
    if not isinstance(schedule, Every | Crontab):
        message = f"between= and jitter= go with an Every or a Crontab, not with {shown(schedule)}"
        raise ScheduleError(message)
    zone = schedule.tz if isinstance(schedule, Crontab) else tz
    window = None if between is None else to_window(between, zone)
    length = NONE
    if jitter is not None:
        length = to_duration(jitter, what="jitter", most=MOST_JITTER)
    if window is None and not length:
        return schedule
    return Shaped(schedule, window, length)


def with_rhythm(rhythm: Every, shaped: Schedule) -> Schedule:
    """Return a schedule of this rhythm with another schedule's window and jitter."""
    return Shaped(rhythm, shaped.window, shaped.jitter) if isinstance(shaped, Shaped) else rhythm


def in_zone(schedule: Schedule, tz: str) -> Schedule:
    """Return the same schedule in another time zone."""
    if isinstance(schedule, Shaped):
        rhythm, window = schedule.rhythm, schedule.window
        if isinstance(rhythm, Crontab):
            rhythm = Crontab(rhythm.expression, tz=tz)
        return Shaped(rhythm, window and to_window(window.text, tz), schedule.jitter)
    return Crontab(schedule.expression, tz=tz) if isinstance(schedule, Crontab) else schedule


def parse(text: str) -> Schedule:
    """Read a schedule back from its `text` in a row; raises ScheduleError."""
    kind, *words = text.split(" ")
    options: dict[str, str] = {}
    while words and "=" in words[-1]:
        name, _, value = words.pop().partition("=")
        options[name] = value
    rest, tz = " ".join(words), options.pop("tz", None)
    between, jitter = options.pop("between", None), options.pop("jitter", None)
    if kind == "every" and (tz is None or between is not None) and not options:
        return shape(Every(rest), between=between, jitter=jitter, tz=tz or "UTC")
    if kind == "crontab" and tz is not None and not options:
        return shape(Crontab(rest, tz=tz), between=between, jitter=jitter, tz=tz)
    message = f"schedule {shown(text)} in the row is of no known kind (every, crontab)"
    raise ScheduleError(message)
