"""When a task is due: pure answers, computed and compared in UTC."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from lazycron.durations import Duration, in_short, in_words, to_duration
from lazycron.errors import ScheduleError
from lazycron.messages import shown

WORDS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=3653)
MINUTE = timedelta(minutes=1)
CRON_FIELDS = 5
TEXT_LENGTH = 400


class Schedule(ABC):
    """Says when a task is due; immutable and pure.

    `str()` says it in words. Two schedules are the same if their `text` is.
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
        """Return the next due time after a run for `scheduled_for` that began at `start`."""

    @property
    def retry_base(self) -> timedelta:
        """What the backoff after failures and losses is a multiple of."""
        return MINUTE

    def latest_retry(self, start: datetime) -> datetime | None:
        """Return the moment no retry of a run that began at `start` may be put off beyond."""
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
        return moment + self.interval

    def after_run(self, scheduled_for: datetime, start: datetime) -> datetime:
        """Return max(scheduled_for + interval, start + 0.9 interval), but at most one interval on.

        The phase is kept when beats come regularly: with "start + interval" a monitor that pings
        every five minutes serves a five-minute task only two times in three (simulated with
        +-0.5 s: 1,281 of 2,000; with this rule 1,999). Missed beats are not made up for. The last
        clause counts only where a host's clock was ahead when the row was written.
        """
        regular = max(scheduled_for + self.interval, start + self.interval * 0.9)
        return min(regular, start + self.interval)

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
    names, steps, ranges, `L` and `#`, and fixed times in a DST gap or overlap. Raises
    ScheduleError for an expression that cannot be read or never matches, and for an unknown zone.
    """

    def __init__(self, expression: str, tz: str = "UTC") -> None:
        self.expression = " ".join(_as_text(expression, "a crontab expression").split())
        self.tz = _as_text(tz, "a time zone").strip()
        self._zone = to_zone(self.tz)
        what = f"crontab {shown(expression)}"
        if len(self.expression.split()) != CRON_FIELDS:
            message = f"{what} needs five fields: minute hour day month weekday"
            raise ScheduleError(message)
        if len(self.text) > TEXT_LENGTH:
            message = f"{what} is longer than a row's schedule may be: {TEXT_LENGTH} characters"
            raise ScheduleError(message)
        try:
            self.next_after(datetime(2026, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            message = f"{what} cannot be read: {error}"
            raise ScheduleError(message) from None
        except StopIteration:
            message = f"{what} never matches a date"
            raise ScheduleError(message) from None

    @property
    def text(self) -> str:
        """What is stored in the row, such as "crontab 30 3 * * * tz=Europe/Istanbul"."""
        return f"crontab {self.expression} tz={self.tz}"

    def next_after(self, moment: datetime) -> datetime:
        """Return the first matching wall-clock time after `moment`, in UTC."""
        local = next(CronSim(self.expression, moment.astimezone(self._zone)))
        return local.astimezone(UTC)

    def after_run(self, scheduled_for: datetime, start: datetime) -> datetime:
        """Return the first time after the start; never the one just worked off again."""
        return self.next_after(max(scheduled_for, start))

    def latest_retry(self, start: datetime) -> datetime | None:
        """Return the next regular time: a retry waits no longer than that."""
        return self.next_after(start)

    def __repr__(self) -> str:
        return f"Crontab({self.expression!r}, tz={self.tz!r})"

    def __str__(self) -> str:
        return f"crontab {self.expression} in {self.tz}"


def parse(text: str) -> Schedule:
    """Read back what a schedule's `text` wrote into a row; raises ScheduleError."""
    kind, _, rest = text.partition(" ")
    if kind == "every":
        return Every(rest)
    if kind == "crontab":
        expression, _, tz = rest.rpartition(" tz=")
        return Crontab(expression, tz=tz)
    message = f"schedule {shown(text)} in the row is of no known kind (every, crontab)"
    raise ScheduleError(message)


def _as_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        message = f"{shown(value)} is not {what}: pass a text"
        raise ScheduleError(message)
    return value


def to_zone(name: str) -> tzinfo:
    """Return the time zone of an IANA name; raises ScheduleError where there is none."""
    if name == "UTC":
        return UTC  # cronsim skips its DST work for this object only
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        message = f'time zone {shown(name)} is unknown; pass an IANA name such as "Europe/Istanbul"'
        raise ScheduleError(message) from None
