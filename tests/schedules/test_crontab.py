"""Crontabs by what their manuals and the time-zone data say, and by clocks simulated here."""

import calendar
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazycron.errors import ScheduleError
from lazycron.schedules.fields import NICKNAMES
from lazycron.schedules.shaped import Crontab, parse
from tests.processes import rounds
from tests.watching import counted_calls

MINUTE = timedelta(minutes=1)

# Where an expectation comes from; nothing here was taken from what the code says.
MANUAL = "crontab(5) of Debian's cron: its examples, field by field"
EITHER = "crontab(5) of Debian's cron: both day fields restricted, either matches"
BOTH = "crontab(5) of Debian's cron: a day field that begins with *, both must match"
NICK = "crontab(5) of Debian's cron: the nicknames' expressions"
CRONSIM = "cronsim's documentation: L, LW, nL and n#k"
CALENDAR = "the Gregorian calendar"
# cron(8) of Debian's cron: a job of fixed time that a forward change (of less than three hours)
# skips is run at once after it, one that a backward change repeats is not run twice; jobs that run
# at every hour or minute go by the new time. The instants of the changes are the IANA data's.
BERLIN = "cron(8) of Debian's cron; tzdata: Berlin +1/+2, 2026-03-29 and 2026-10-25 at 01:00 UTC"
NEW_YORK = "cron(8) of Debian's cron; tzdata: New York -5/-4, 2026-03-08 07:00, 11-01 06:00 UTC"
LORD_HOWE = "cron(8) of Debian's cron; tzdata: Lord Howe +11/+10:30, 04-04 15:00, 10-03 15:30 UTC"
APIA = "cronsim: skipped times are due at the end of the gap; tzdata: Apia -10/+14, no 2011-12-30"

CASES = [
    # expression, zone, moment and next time in UTC, source
    ("5 0 * * *", "UTC", "2026-01-01 00:00", "2026-01-01 00:05", MANUAL),
    ("5 0 * * *", "UTC", "2026-01-01 00:05", "2026-01-02 00:05", MANUAL),
    ("15 14 1 * *", "UTC", "2026-01-01 14:15", "2026-02-01 14:15", MANUAL),
    ("0 22 * * 1-5", "UTC", "2026-01-02 22:00", "2026-01-05 22:00", MANUAL),  # Friday, Monday
    ("0 22 * * 1-5", "UTC", "2026-01-05 22:00", "2026-01-06 22:00", MANUAL),
    ("23 0-23/2 * * *", "UTC", "2026-01-01 00:23", "2026-01-01 02:23", MANUAL),
    ("23 0-23/2 * * *", "UTC", "2026-01-01 22:23", "2026-01-02 00:23", MANUAL),
    ("5 4 * * sun", "UTC", "2026-01-01 00:00", "2026-01-04 04:05", MANUAL),
    ("*/5 * * * *", "UTC", "2026-01-01 00:57", "2026-01-01 01:00", MANUAL),
    ("1-9/2 * * * *", "UTC", "2026-01-01 00:03", "2026-01-01 00:05", MANUAL),
    ("1-9/2 * * * *", "UTC", "2026-01-01 00:09", "2026-01-01 01:01", MANUAL),
    ("0 0,12 1 */2 *", "UTC", "2026-01-01 12:00", "2026-03-01 00:00", MANUAL),
    ("0 4 8-14 * *", "UTC", "2026-01-14 04:00", "2026-02-08 04:00", MANUAL),
    ("15 10,13 * * 1,4", "UTC", "2026-01-01 11:00", "2026-01-01 13:15", MANUAL),  # a Thursday
    ("15 10,13 * * 1,4", "UTC", "2026-01-01 13:15", "2026-01-05 10:15", MANUAL),
    ("0 0 1 JAN,jul *", "UTC", "2026-01-01 00:00", "2026-07-01 00:00", MANUAL),
    ("0 0 * * MON-WED", "UTC", "2026-01-01 00:00", "2026-01-05 00:00", MANUAL),
    ("0 0 * * 0", "UTC", "2026-01-01 00:00", "2026-01-04 00:00", MANUAL),
    ("0 0 * * 7", "UTC", "2026-01-01 00:00", "2026-01-04 00:00", MANUAL),
    ("0 0 * * 5-7", "UTC", "2026-01-03 00:00", "2026-01-04 00:00", MANUAL),
    ("0 0 * * 0-1", "UTC", "2026-01-04 00:00", "2026-01-05 00:00", MANUAL),
    ("* * * * *", "UTC", "2026-01-01 00:00", "2026-01-01 00:01", MANUAL),
    ("59 23 31 12 *", "UTC", "2026-01-01 00:00", "2026-12-31 23:59", MANUAL),
    ("30 4 1,15 * 5", "UTC", "2026-01-01 04:30", "2026-01-02 04:30", EITHER),  # a Friday
    ("30 4 1,15 * 5", "UTC", "2026-01-09 04:30", "2026-01-15 04:30", EITHER),
    ("30 4 1,15 * 5", "UTC", "2026-01-15 04:30", "2026-01-16 04:30", EITHER),
    ("0 */4 1 * mon", "UTC", "2026-01-01 20:00", "2026-01-05 00:00", EITHER),
    ("0 0 13 * 5", "UTC", "2026-02-06 00:00", "2026-02-13 00:00", EITHER),
    ("0 0 */2 * sun", "UTC", "2026-01-01 00:00", "2026-01-11 00:00", BOTH),  # the 4th is even
    ("0 0 */2 * sun", "UTC", "2026-01-11 00:00", "2026-01-25 00:00", BOTH),
    ("0 0 1 * */2", "UTC", "2026-01-01 00:00", "2026-02-01 00:00", BOTH),  # a Sunday: 0, 2, 4, 6
    ("@hourly", "UTC", "2026-01-01 00:00", "2026-01-01 01:00", NICK),
    ("@daily", "UTC", "2026-01-01 00:00", "2026-01-02 00:00", NICK),
    ("@midnight", "UTC", "2026-01-01 12:00", "2026-01-02 00:00", NICK),
    ("@weekly", "UTC", "2026-01-01 00:00", "2026-01-04 00:00", NICK),
    ("@monthly", "UTC", "2026-01-01 00:00", "2026-02-01 00:00", NICK),
    ("@yearly", "UTC", "2026-01-01 00:00", "2027-01-01 00:00", NICK),
    ("@annually", "UTC", "2026-06-01 00:00", "2027-01-01 00:00", NICK),
    ("@Daily", "Europe/Berlin", "2026-01-01 00:00", "2026-01-01 23:00", NICK),
    ("0 0 L * *", "UTC", "2026-01-31 00:00", "2026-02-28 00:00", CRONSIM),
    ("0 0 L * *", "UTC", "2028-02-01 00:00", "2028-02-29 00:00", CRONSIM),
    ("0 0 L * *", "UTC", "2026-04-01 00:00", "2026-04-30 00:00", CRONSIM),
    ("0 9 LW * *", "UTC", "2026-01-01 00:00", "2026-01-30 09:00", CRONSIM),  # the 31st: Saturday
    ("0 9 LW * *", "UTC", "2026-05-01 00:00", "2026-05-29 09:00", CRONSIM),  # the 31st: Sunday
    ("0 0 * * 5#3", "UTC", "2026-01-01 00:00", "2026-01-16 00:00", CRONSIM),
    ("0 0 * * 5#3", "UTC", "2026-01-16 00:00", "2026-02-20 00:00", CRONSIM),
    ("0 0 * * 4#5", "UTC", "2026-01-29 00:00", "2026-04-30 00:00", CRONSIM),
    ("0 0 * * SUN#1", "UTC", "2026-01-04 00:00", "2026-02-01 00:00", CRONSIM),
    ("0 0 * * 5L", "UTC", "2026-01-01 00:00", "2026-01-30 00:00", CRONSIM),
    ("0 0 * * 7L", "UTC", "2026-01-01 00:00", "2026-01-25 00:00", CRONSIM),
    ("0 0 29 2 *", "UTC", "2026-01-01 00:00", "2028-02-29 00:00", CALENDAR),
    ("0 0 29 2 *", "UTC", "2096-02-29 00:00", "2104-02-29 00:00", CALENDAR),  # 2100 is none
    ("0 0 31 * *", "UTC", "2026-01-31 00:00", "2026-03-31 00:00", CALENDAR),
    ("0 0 30 * *", "UTC", "2026-01-30 00:00", "2026-03-30 00:00", CALENDAR),
    ("0 0 29 2 */7", "UTC", "2026-01-01 00:00", "2032-02-29 00:00", CALENDAR),  # a Sunday
    ("0 0 1 1 *", "Asia/Kolkata", "2026-01-01 00:00", "2026-12-31 18:30", "tzdata: +5:30"),
    ("0 12 * * *", "Asia/Kathmandu", "2026-01-01 00:00", "2026-01-01 06:15", "tzdata: +5:45"),
    # Berlin: 02:00-03:00 on 29 March is skipped, 02:00-03:00 on 25 October comes twice.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28 01:30", "2026-03-29 01:00", BERLIN),
    ("30 2 * * *", "Europe/Berlin", "2026-03-29 01:00", "2026-03-30 00:30", BERLIN),
    ("0 3 * * *", "Europe/Berlin", "2026-03-28 02:00", "2026-03-29 01:00", BERLIN),
    ("15,45 2 * * *", "Europe/Berlin", "2026-03-28 12:00", "2026-03-29 01:00", BERLIN),
    ("15,45 2 * * *", "Europe/Berlin", "2026-03-29 01:00", "2026-03-30 00:15", BERLIN),
    ("*/15 * * * *", "Europe/Berlin", "2026-03-29 00:45", "2026-03-29 01:00", BERLIN),
    ("*/15 2 * * *", "Europe/Berlin", "2026-03-28 12:00", "2026-03-30 00:00", BERLIN),
    ("0 */2 * * *", "Europe/Berlin", "2026-03-28 23:00", "2026-03-29 02:00", BERLIN),  # 2:00: none
    ("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", "2026-10-25 00:30", BERLIN),
    ("30 2 * * *", "Europe/Berlin", "2026-10-25 00:30", "2026-10-26 01:30", BERLIN),
    ("30 2 * * *", "Europe/Berlin", "2026-10-25 01:15", "2026-10-26 01:30", BERLIN),
    ("30 3 * * *", "Europe/Berlin", "2026-10-25 01:45", "2026-10-25 02:30", BERLIN),
    ("30 * * * *", "Europe/Berlin", "2026-10-25 00:30", "2026-10-25 01:30", BERLIN),
    ("*/30 2 * * *", "Europe/Berlin", "2026-10-25 00:30", "2026-10-25 01:00", BERLIN),
    # New York: 02:00-03:00 on 8 March is skipped, 01:00-02:00 on 1 November comes twice.
    ("30 2 * * *", "America/New_York", "2026-03-07 12:00", "2026-03-08 07:00", NEW_YORK),
    ("30 2 8 3 *", "America/New_York", "2026-01-01 00:00", "2026-03-08 07:00", NEW_YORK),
    ("0 * * * *", "America/New_York", "2026-03-08 06:00", "2026-03-08 07:00", NEW_YORK),
    ("* 2 * * *", "America/New_York", "2026-03-07 12:00", "2026-03-09 06:00", NEW_YORK),
    ("30 1 * * *", "America/New_York", "2026-10-31 12:00", "2026-11-01 05:30", NEW_YORK),
    ("30 1 * * *", "America/New_York", "2026-11-01 05:30", "2026-11-02 06:30", NEW_YORK),
    ("30 1 * * sun", "America/New_York", "2026-11-01 06:10", "2026-11-08 06:30", NEW_YORK),
    ("0 * * * *", "America/New_York", "2026-11-01 05:00", "2026-11-01 06:00", NEW_YORK),
    ("*/20 1 * * *", "America/New_York", "2026-11-01 05:40", "2026-11-01 06:00", NEW_YORK),
    # Lord Howe: back half an hour from 02:00 on 5 April, ahead from 02:00 on 4 October.
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00", "2026-04-04 14:45", LORD_HOWE),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04 14:45", "2026-04-05 15:15", LORD_HOWE),
    ("45 * * * *", "Australia/Lord_Howe", "2026-04-04 14:45", "2026-04-04 15:15", LORD_HOWE),
    ("0 * * * *", "Australia/Lord_Howe", "2026-04-04 14:00", "2026-04-04 15:30", LORD_HOWE),
    ("0 */2 * * *", "Australia/Lord_Howe", "2026-04-04 13:30", "2026-04-04 15:30", LORD_HOWE),
    ("* 2 * * *", "Australia/Lord_Howe", "2026-04-04 15:15", "2026-04-04 15:30", LORD_HOWE),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00", "2026-10-03 15:30", LORD_HOWE),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 15:30", "2026-10-04 15:15", LORD_HOWE),
    ("15 * * * *", "Australia/Lord_Howe", "2026-10-03 14:45", "2026-10-03 16:15", LORD_HOWE),
    ("*/10 * * * *", "Australia/Lord_Howe", "2026-10-03 15:20", "2026-10-03 15:30", LORD_HOWE),
    # Apia had no 30 December 2011.
    ("0 12 * * *", "Pacific/Apia", "2011-12-29 12:00", "2011-12-29 22:00", APIA),
    ("0 12 * * *", "Pacific/Apia", "2011-12-29 22:00", "2011-12-30 10:00", APIA),
    ("0 12 * * *", "Pacific/Apia", "2011-12-30 10:00", "2011-12-30 22:00", APIA),
    ("0 * * * *", "Pacific/Apia", "2011-12-30 09:00", "2011-12-30 10:00", APIA),
    ("*/30 12 * * *", "Pacific/Apia", "2011-12-29 22:30", "2011-12-30 22:00", APIA),
    ("0 0 31 12 *", "Pacific/Apia", "2011-12-01 00:00", "2011-12-30 10:00", APIA),
]


def at(text: str) -> datetime:
    """Read an ISO moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "zone", "moment", "expected", "source"),
    CASES,
    ids=[f"{case[0]} {case[1]} {case[2]}" for case in CASES],
)
def test_what_the_manuals_say(
    expression: str, zone: str, moment: str, expected: str, source: str
) -> None:
    """Each expectation has its source beside it."""
    assert Crontab(expression, tz=zone).next_after(at(moment)) == at(expected), source


def test_there_are_enough_of_them() -> None:
    """At least sixty, and none twice."""
    assert len({case[:3] for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"])
def test_the_zone_data_say_what_the_table_says(zone: str) -> None:
    """A change of the data themselves would fail here, and not somewhere above."""
    changes = {
        "Europe/Berlin": ["2026-03-29 01:00", "2026-10-25 01:00"],
        "Australia/Lord_Howe": ["2026-04-04 15:00", "2026-10-03 15:30"],
        "Pacific/Apia": ["2011-12-30 10:00"],
    }
    for change in map(at, changes[zone]):
        before, after = (
            (change - MINUTE).astimezone(ZoneInfo(zone)),
            change.astimezone(ZoneInfo(zone)),
        )
        assert before.utcoffset() != after.utcoffset()


# nicknames and refusals


@pytest.mark.parametrize("nickname", NICKNAMES)
def test_a_nickname_is_its_expression(nickname: str) -> None:
    """In the row as well."""
    assert Crontab(nickname) == Crontab(NICKNAMES[nickname])
    assert parse(Crontab(nickname).text) == Crontab(nickname)


@pytest.mark.parametrize("nickname", ["@reboot", "@every", "@", "daily"])
def test_another_nickname_is_refused_and_the_known_ones_are_named(nickname: str) -> None:
    """There is no reboot here."""
    with pytest.raises(ScheduleError, match="@hourly, @daily, @midnight, @weekly, @monthly"):
        Crontab(nickname)


@pytest.mark.parametrize(
    "expression",
    ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 */30 2 MON#5", "0 0 30,31 2 */1", "* * 31 2 *"],
)
def test_what_never_matches_is_refused_soon(expression: str) -> None:
    """The search is bounded: counted in calls, of which it takes ten thousand at most."""
    with counted_calls() as calls, pytest.raises(ScheduleError):
        Crontab(expression)
    assert calls[0] < 50_000


FIELD = st.text(alphabet="0123456789*/-,#LWMONSUJA@ ²", min_size=0, max_size=8)


@given(st.lists(FIELD, min_size=1, max_size=6).map(" ".join))
def test_whatever_is_no_crontab_is_a_schedule_error(expression: str) -> None:
    """And nothing else: no assertion, no endless search."""
    with suppress(ScheduleError):
        Crontab(expression, tz="Europe/Berlin")


# in words


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("* * * * *", "UTC", "every minute"),
        ("*/15 * * * *", "Europe/Berlin", "every 15 minutes"),
        ("*/7 * * * *", "UTC", "every seventh minute of every hour in UTC"),
        ("0 */6 * * *", "UTC", "every 6 hours in UTC"),
        ("@hourly", "UTC", "at the start of every hour in UTC"),
        ("30 3 * * *", "Europe/Istanbul", "at 03:30 in Europe/Istanbul"),
        ("0 8 * * mon-fri", "UTC", "at 08:00 on Monday through Friday in UTC"),
        ("0 0 13 * 5", "UTC", "at 00:00 on the 13th day of month and on Friday in UTC"),
        ("0 0 */2 * 0", "UTC", "at 00:00 on every second day of month if it's on Sunday in UTC"),
        ("0 0 L * *", "UTC", "at 00:00 on the last day of every month in UTC"),
    ],
)
def test_a_crontab_says_itself_in_words(expression: str, zone: str, words: str) -> None:
    """With its zone, unless it is the same in all of them."""
    assert str(Crontab(expression, tz=zone)) == words


def test_words_that_would_be_too_many_are_the_expression() -> None:
    """A table has only so much room."""
    expression = "1,3,8,14,23,37,41,55 1,4,9,11,17,22 1,2,3,5,9,15,28 * 5#3,1L"
    assert str(Crontab(expression)) == f"crontab {expression} in UTC"


def test_words_that_cannot_be_found_are_the_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are for show, and no reason for anything to fail."""

    def explain(_: object) -> str:
        raise KeyError

    monkeypatch.setattr("cronsim.CronSim.explain", explain)
    assert str(Crontab("30 3 * * *")) == "crontab 30 3 * * * in UTC"


# against clocks simulated minute by minute

YEAR = 2027
NAMES = {"month": list(calendar.month_abbr)[1:], "weekday": ["Sun", *calendar.day_abbr[:6]]}
BOUNDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}


@st.composite
def fields(draw: st.DrawFn, kind: str) -> str:
    """A field of a crontab: stars, steps, numbers, ranges, lists and names."""
    low, high = BOUNDS[kind]
    numbers = st.integers(low, high)
    names = NAMES.get(kind)

    def one() -> str:
        first, last = sorted(draw(st.tuples(numbers, numbers)))
        step = draw(st.integers(1, 30))
        forms = [str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}"]
        if names and first - low < len(names):
            forms.append(names[first - low])
        return draw(st.sampled_from(forms))

    if draw(st.booleans()):
        return "*"
    return ",".join(one() for _ in range(draw(st.integers(1, 3))))


def expressions() -> st.SearchStrategy[str]:
    """Any crontab of the plain kind."""
    return st.tuples(*(fields(kind) for kind in BOUNDS)).map(" ".join)


def numbers_of(field: str, kind: str) -> set[int]:
    """Read a field as crontab(5) describes it, without cronsim."""
    low, high = BOUNDS[kind]
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            start, end = low, high
        elif first.isdigit():
            start = int(first)
            end = int(last or first)
        else:
            start = end = NAMES[kind].index(first) + low
        found.update(range(start, end + 1, int(step or 1)))
    return found


END = datetime(YEAR + 1, 1, 1, tzinfo=UTC)


def simulated(expression: str, moment: datetime) -> datetime | None:
    """Return the first minute, later in the year, at which Debian's cron would run this in UTC."""
    minute, hour, day, month, weekday = expression.split()
    times = [
        timedelta(hours=h, minutes=m)
        for h in sorted(numbers_of(hour, "hour"))
        for m in sorted(numbers_of(minute, "minute"))
    ]
    days, months = numbers_of(day, "day"), numbers_of(month, "month")
    weekdays = {number % 7 for number in numbers_of(weekday, "weekday")}
    both = day.startswith("*") or weekday.startswith("*")
    date = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    while date < END:
        by_day, by_weekday = date.day in days, date.isoweekday() % 7 in weekdays
        matches = (by_day and by_weekday) if both else (by_day or by_weekday)
        if date.month in months and matches:
            for time in times:
                if date + time > moment:
                    return date + time
        date += timedelta(days=1)
    return None


MINUTES = st.integers(0, 365 * 1440 - 1)
MOMENTS = MINUTES.map(lambda number: datetime(YEAR, 1, 1, tzinfo=UTC) + number * MINUTE)


@given(expressions(), st.lists(MOMENTS, min_size=1, max_size=5))
def test_a_crontab_agrees_with_every_minute_of_a_year(
    expression: str, moments: list[datetime]
) -> None:
    """In UTC, where no clock is moved."""
    try:
        crontab = Crontab(expression)
    except ScheduleError:
        assert not any(simulated(expression, moment) for moment in moments)
        return
    for moment in moments:
        later, found = simulated(expression, moment), crontab.next_after(moment)
        assert found == later or (later is None and found >= END)


ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]
)


@given(expressions(), ZONES, st.lists(MOMENTS, min_size=2, max_size=8))
def test_the_next_time_is_later_and_never_goes_back(
    expression: str, zone: str, moments: list[datetime]
) -> None:
    """Later than the moment, and of later moments not earlier; in zones with DST as well."""
    try:
        crontab = Crontab(expression, tz=zone)
    except ScheduleError:
        return
    found = [(moment, crontab.next_after(moment)) for moment in sorted(moments)]
    assert all(due > moment for moment, due in found)
    assert all(first <= second for (_, first), (_, second) in pairwise(found))
    for moment, due in found:
        between = moment + (due - moment) / 2
        assert crontab.next_after(between) == due, "nothing lies between a moment and its next time"


CHANGES = [
    ("Europe/Berlin", "2026-03-29 01:00"),
    ("Europe/Berlin", "2026-10-25 01:00"),
    ("America/New_York", "2026-03-08 07:00"),
    ("America/New_York", "2026-11-01 06:00"),
    ("Australia/Lord_Howe", "2026-04-04 15:00"),
    ("Australia/Lord_Howe", "2026-10-03 15:30"),
    ("Pacific/Apia", "2011-12-30 10:00"),
]


@settings(max_examples=10 * rounds())
@pytest.mark.parametrize(("zone", "change"), CHANGES)
@given(data=st.data())
def test_a_job_of_every_hour_or_minute_goes_by_the_clock_on_the_wall(
    zone: str, change: str, data: st.DataObject
) -> None:
    """Two days around a change of the clocks, minute by minute: what the wall shows counts."""
    minute = data.draw(st.sampled_from(["*", "*/7", "*/20", "5", "30", "15,45"]))
    hour = data.draw(
        st.sampled_from(["*", "*/2", "*/3"] if minute[0] != "*" else ["*", "1-3", "2"])
    )
    crontab = Crontab(f"{minute} {hour} * * *", tz=zone)
    minutes, hours = numbers_of(minute, "minute"), numbers_of(hour, "hour")
    begin = at(change) - timedelta(days=1)
    shown = [
        (moment, moment.astimezone(ZoneInfo(zone)))
        for moment in (begin + n * MINUTE for n in range(1, 2 * 1440))
    ]
    expected = [m for m, wall in shown if wall.minute in minutes and wall.hour in hours]
    found, moment = [], begin
    for _ in expected:
        moment = crontab.next_after(moment)
        found.append(moment)
    assert found == expected
