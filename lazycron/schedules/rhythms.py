"""The basic schedules, `Every` and `Crontab`: pure computations in UTC."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property

from cronsim import CronSim, CronSimError

from lazycron.clock import to_moment
from lazycron.durations import Duration, in_short, in_words, to_duration
from lazycron.errors import ScheduleError
from lazycron.schedules.fields import NICKNAMES, never_due, to_plain, to_spoken
from lazycron.schedules.zones import next_shown, to_zone
from lazycron.texts import shown

WORDS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=3653)
MINUTE = timedelta(minutes=1)
TEXT_LENGTH = 400
LONGEST_WORDS = 120


class Schedule(ABC):
    """Says when a task is due; immutable and pure.

    `str()` says it in words. Two schedules are equal if their `text` is equal. A schedule has
    nominal times, each with its due time; the two differ only by jitter.
    """

    @property
    @abstractmethod
    def text(self) -> str:
        """What is stored in the row; `parse` reads it back."""

    @abstractmethod
    def next_after(self, moment: datetime) -> datetime:
        """Return the first due time later than `moment`; both are aware and in UTC."""

    @abstractmethod
    def after_run(self, scheduled_for: datetime, start: datetime) -> datetime:
        """Return the next nominal time after a run for `scheduled_for` that began at `start`."""

    @abstractmethod
    def after_missed(self, scheduled_for: datetime, now: datetime) -> datetime:
        """Return the next nominal time if `scheduled_for` is passed over at `now`."""

    def nominal_after(self, moment: datetime) -> datetime:
        """Return the first nominal time whose due time is later than `moment`."""
        return self.next_after(moment)

    def following(self, moment: datetime) -> datetime:
        """Return the first nominal time later than `moment`, whatever jitter does."""
        return self.next_after(moment)

    def due_for(self, nominal: datetime, start: datetime | None = None) -> datetime:
        """Return when a task is due for a nominal time, after a run that began at `start`."""
        del start
        return nominal

    def admitted(self, moment: datetime) -> datetime:
        """Return the first moment, from this one on, at which a run may begin."""
        return moment

    @property
    def rhythm(self) -> "Schedule":
        """The schedule itself, without window and jitter."""
        return self

    @property
    def zone(self) -> tzinfo | None:
        """The time zone it uses; None where wall clocks do not matter."""
        return None

    @property
    def is_windowed(self) -> bool:
        """Whether a run may begin only at some times of day."""
        return False

    @property
    def is_jittered(self) -> bool:
        """Whether due times depend on the installation and the task's name."""
        return False

    def seeded(self, seed: str) -> "Schedule":
        """Return the schedule for one task of one installation."""
        del seed
        return self

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        """Return the first due times later than `moment`, if each run begins when it is due."""
        found: list[datetime] = []
        nominal, due = self.nominal_after(moment), self.next_after(moment)
        while len(found) < count:
            found.append(due)
            nominal = self.after_run(nominal, due)
            due = self.due_for(nominal, due)
        return found

    @property
    def retry_base(self) -> timedelta:
        """The unit of the backoff after failures and losses."""
        return MINUTE

    def latest_retry(self, start: datetime) -> datetime | None:
        """Return the nominal time by which a run that began at `start` must be retried."""
        del start
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class Every(Schedule):
    """Due again and again after an interval of elapsed time; DST does not matter.

    Takes a timedelta, a number of seconds, a text such as "15m", or one of the words "minute",
    "hour", "day" and "week"; from one second to ten years. Raises ScheduleError for anything else.
    """

    def __init__(self, interval: Duration) -> None:
        word = interval.strip().lower() if isinstance(interval, str) else None
        if word in WORDS:
            self.interval = WORDS[word]
            return
        try:
            self.interval = to_duration(interval, what="every", least=SHORTEST, most=LONGEST)
        except ScheduleError as error:
            message = f"{error}; or one of the words {', '.join(WORDS)}"
            raise ScheduleError(message) from None

    @property
    def text(self) -> str:
        """What is stored in the row, such as "every 15m"."""
        return f"every {in_short(self.interval)}"

    def next_after(self, moment: datetime) -> datetime:
        """Return `moment` plus the interval."""
        return to_moment(moment) + self.interval

    def after_run(self, scheduled_for: datetime, start: datetime) -> datetime:
        """Return max(scheduled_for + interval, start + 0.9 interval), but at most one interval on.

        The phase is kept when beats come regularly. With "start + interval" a monitor that pings
        every five minutes serves a five-minute task only two times in three (simulated with
        +-0.5 s: 1,281 of 2,000; with this rule 1,999). Missed beats are not made up for. The last
        clause matters only where a host's clock was ahead when the row was written.
        """
        regular = max(scheduled_for + self.interval, self.soonest(start))
        return min(regular, start + self.interval)

    def soonest(self, start: datetime) -> datetime:
        """Return the earliest moment for a run after one that began at `start`."""
        return start + self.interval * 0.9

    def after_missed(self, scheduled_for: datetime, now: datetime) -> datetime:
        """Return the first time later than `now` in the phase of `scheduled_for`."""
        missed = max(0, (now - scheduled_for) // self.interval)
        return scheduled_for + (missed + 1) * self.interval

    @property
    def retry_base(self) -> timedelta:
        """The interval, but at least a minute."""
        return max(self.interval, MINUTE)

    def __repr__(self) -> str:
        return f"Every({in_short(self.interval)!r})"

    def __str__(self) -> str:
        words = in_words(self.interval)
        return f"every {words.removeprefix('1 ') if words.count(' ') == 1 else words}"


class Crontab(Schedule):
    """Due at the wall-clock times of a crontab expression of five fields, in a time zone.

    The rules are Debian cron's as the cronsim library has them: day-of-month with day-of-week,
    names, steps, ranges, `L` and `#`, and fixed times in a DST gap or overlap. The nicknames
    @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually are taken too. Raises
    ScheduleError for an expression that cannot be read or can never be due, and for an unknown
    zone.
    """

    def __init__(self, expression: str, tz: str = "UTC") -> None:
        given = " ".join(_as_text(expression, "a crontab expression").split())
        self.expression = NICKNAMES.get(given.lower(), given)
        self.tz = _as_text(tz, "a time zone").strip()
        self._zone = to_zone(self.tz)
        what = f"crontab {shown(expression)}"
        if len(self.text) > TEXT_LENGTH:
            message = f"{what} is longer than a row's schedule may be: {TEXT_LENGTH} characters"
            raise ScheduleError(message)
        self._plain = to_plain(self.expression, what)
        minute, hour = self._plain.split()[:2]
        # Where clocks change, Debian's cron treats jobs with fixed times differently; cronsim
        # recognises them in the same way.
        self._is_fixed = not minute.startswith("*") and not hour.startswith("*")
        try:
            self.next_after(datetime(2026, 1, 1, tzinfo=UTC))
        except (CronSimError, StopIteration):
            message = f"{what} {never_due(self._plain)}"
            raise ScheduleError(message) from None

    @property
    def text(self) -> str:
        """What is stored in the row, such as "crontab 30 3 * * * tz=Europe/Istanbul"."""
        return f"crontab {self.expression} tz={self.tz}"

    @property
    def zone(self) -> tzinfo:
        """The time zone whose clocks it uses."""
        return self._zone

    def next_after(self, moment: datetime) -> datetime:
        """Return the first matching wall-clock time after `moment`, in UTC."""
        moment = to_moment(moment)
        if self._is_fixed or self._zone is UTC:
            simulated = CronSim(self._plain, moment.astimezone(self._zone))
            found = next(simulated).astimezone(UTC)
            while found <= moment:  # the clock was put back: it was due at the first of the two
                found = next(simulated).astimezone(UTC)
            return found
        # cronsim alone is wrong where a clock moves by half an hour: on Lord Howe `0 */2 * * *`
        # would leave out two o'clock.
        return next_shown(moment.astimezone(UTC), self._zone, self._matching, may_stop=_never)

    def _matching(self, shows: datetime) -> datetime:
        return next(CronSim(self._plain, shows))

    def after_run(self, scheduled_for: datetime, start: datetime) -> datetime:
        """Return the first time after the start; never the one that has just run."""
        return self.next_after(max(scheduled_for, start))

    def after_missed(self, scheduled_for: datetime, now: datetime) -> datetime:
        """Return the first time after now."""
        return self.next_after(max(scheduled_for, now))

    def latest_retry(self, start: datetime) -> datetime | None:
        """Return the next regular time: a retry waits no longer than that."""
        return self.next_after(start)

    def __repr__(self) -> str:
        return f"Crontab({self.expression!r}, tz={self.tz!r})"

    def __str__(self) -> str:
        return self._words

    @cached_property
    def _words(self) -> str:
        otherwise = f"crontab {self.expression} in {self.tz}"
        interval = self._as_interval()
        if interval is not None:
            return interval
        try:
            words = CronSim(to_spoken(self._plain), datetime(2026, 1, 1, tzinfo=UTC)).explain()
        except Exception:  # noqa: BLE001 - words are only for show, so nothing may fail here
            return otherwise
        if not words or len(words) > LONGEST_WORDS:
            return otherwise
        return f"{words[0].lower()}{words[1:].removesuffix(' every day')} in {self.tz}"

    def _as_interval(self) -> str | None:
        """Say in plain words what divides the hour or the day evenly."""
        minute, hour, *others = to_spoken(self._plain).split()
        if others != ["*"] * len(others):
            return None
        if hour == "*":
            number = _step(minute, 60)
            return number and (f"every {number} minutes" if number != "1" else "every minute")
        number = _step(hour, 24) if minute == "0" else None
        return number and f"every {number} hours in {self.tz}"


def _step(field: str, whole: int) -> str | None:
    """Return the n of `*/n` (1 for `*`) if n divides the whole and is less than it."""
    if field == "*":
        return "1"
    number = field.removeprefix("*/")
    if number == field or not number.isdecimal():
        return None
    return number if 1 < int(number) < whole and whole % int(number) == 0 else None


def _never(moment: datetime) -> bool:
    del moment
    return False


def _as_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        message = f"{shown(value)} is not {what}: pass a text"
        raise ScheduleError(message)
    return value
