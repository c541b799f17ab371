"""Crontab texts: what is read, against a reader of its own, and how the rest is refused."""

import calendar
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import product

import pytest

from lazycron import Crontab, ScheduleError
from lazycron.schedules.fields import NICKNAMES

# one value in several spellings


@pytest.mark.parametrize(
    ("odd", "plain"),
    [
        ("5-05/2 * * * *", "5 * * * *"),
        ("007-7/3 * * * *", "7 * * * *"),
        ("0 5-05/2 * * *", "0 5 * * *"),
        ("0 0 5-05/2 * *", "0 0 5 * *"),
        ("0 0 * * mon-MON/2", "0 0 * * 1"),
        ("0 0 * * 1-mon/2", "0 0 * * 1"),
        ("0 0 * * Mon-1/6", "0 0 * * 1"),
        ("0 0 * * sun-sun/2", "0 0 * * 0"),
        ("0 0 * * 7-sun/2", "0 0 * * 0"),
        ("0 0 * 1-jan/2 *", "0 0 * 1 *"),
        ("0 0 * JAN-01/5 *", "0 0 * 1 *"),
        ("59/2 * * * *", "59 * * * *"),
        ("10-12/5 * * * *", "10 * * * *"),
        ("0 0 * * mon-sun", "0 0 * * 1-7"),
        ("0 0 * * sat-sun", "0 0 * * 6,0"),
        ("0 0 * * fri-Sun/2", "0 0 * * 5,0"),
        ("0 0 * * sun-tue", "0 0 * * 0,1,2"),
    ],
)
def test_other_spellings_of_the_same(odd: str, plain: str) -> None:
    """They are due at the same times, and said in words that mean the same."""
    moment, ours, theirs = datetime(2026, 1, 1, tzinfo=UTC), Crontab(odd), Crontab(plain)
    assert ours.upcoming(moment, 40) == theirs.upcoming(moment, 40)
    if "," not in plain:
        assert str(ours) == str(theirs)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("5-05/2 * * * *", "at minute 5 of every hour in UTC"),
        ("0 0 * * mon-MON/2", "at 00:00 on Monday in UTC"),
        ("0 0 * * mon-sun", "at 00:00 on Monday through Sunday in UTC"),
        ("0 0 * * sat-sun", "at 00:00 on Saturday and Sunday in UTC"),
        ("0 0 13 * mon-sun", "at 00:00 in UTC"),  # either is enough, so it is each day
        ("0 0 1-31 * 5", "at 00:00 in UTC"),
        ("0 */40 * * *", "at 00:00 in UTC"),
        ("*/05 * * * *", "every 5 minutes"),
    ],
)
def test_words_mean_what_the_times_are(expression: str, words: str) -> None:
    """Whatever the spelling."""
    assert str(Crontab(expression)) == words


# refusals: the value, why, and what to write instead


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("0 0 31 2 *", ("can never be due", "no day 31 comes in month 2", "L is")),
        ("0 0 */30 2 mon#5", ("can never be due", "*/30", "1#5")),
        ("0 0 ? * *", ("day of the month '?'", "write *")),
        ("0 0 15W * *", ("day of the month '15W'", "LW")),
        ("0 0 L-3 * *", ("day of the month 'L-3'", "L, the last day")),
        ("0 0 L/2 * *", ("day of the month 'L/2'", "step", "L or LW alone")),
        ("0 0 LW/2 * *", ("day of the month 'LW/2'", "step")),
        ("0 22-2 * * *", ("hour '22-2'", "backward", "write 22-23,0-2")),
        ("0 23-0 * * *", ("hour '23-0'", "backward", "write 23,0")),
        ("0 0 * nov-feb *", ("month 'nov-feb'", "backward", "write 11-12,1-2")),
        ("0 0 * * fri-mon", ("weekday 'fri-mon'", "backward", "write 5-7,1")),
        ("0 0 * * sun-7", ("weekday 'sun-7'", "both ends are Sunday")),
        ("0 0 * * friL", ("weekday 'friL'", "write 5L")),
        ("0 0 * * L", ("weekday 'L'", "write 5L")),
        ("0 0 * * 5L/2", ("weekday '5L/2'", "0 to 7")),
        ("0 0 * * 5#6", ("weekday '5#6'", "1 to 5")),
        ("0 0 * * \u017fun", ("weekday '\u017fun'", "ASCII")),
        ("\u0661 0 * * *", ("minute '\u0661'", "ASCII")),
        ("H 0 * * *", ("minute 'H'", "jitter=")),
        ("H/15 * * * *", ("minute 'H/15'", "jitter=")),
        ("0~59 * * * *", ("minute '0~59'", "jitter=")),
        ("60 * * * *", ("minute '60'", "0 to 59")),
        ("0 0 0 * *", ("day of the month '0'", "1 to 31")),
        ("0 0 * foo *", ("month 'foo'", "JAN to DEC")),
        ("*/0 * * * *", ("minute '*/0'", "step '0'", "from 1 up")),
        ("1,,2 * * * *", ("minute '1,,2'", "missing")),
        ("0 0 0 * * *", ("five fields", "no seconds", 'every="10s"')),
        ("CRON_TZ=Asia/Tokyo 0 3 * * *", ("five fields", 'tz="Asia/Tokyo"')),
        ("TZ=Asia/Tokyo 0 3 * * *", ("five fields", 'tz="Asia/Tokyo"')),
        ("@every 90s", ("five fields", 'every="90s"')),
        ("@reboot", ("five fields", "where the app starts")),
    ],
)
def test_a_refusal_names_the_value_and_the_way_out(expression: str, parts: tuple[str, ...]) -> None:
    """And the whole text it stands in."""
    with pytest.raises(ScheduleError) as caught:
        Crontab(expression)
    message = str(caught.value)
    assert message.startswith(f"crontab {expression!r} ")
    for part in parts:
        assert part in message
    if "five fields" in message:
        assert ", ".join(NICKNAMES) in message


# against a reader of its own, written from crontab(5) of Debian's cron and cronsim's page


class Unreadable(Exception):  # noqa: N818 - a word of this reader
    """The reader cannot read a text."""


BOUNDS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]
MONTHS = {calendar.month_abbr[n].lower(): n for n in range(1, 13)}
WEEKDAYS = {name: n for n, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
NAMES: list[dict[str, int]] = [{}, {}, {}, MONTHS, WEEKDAYS]
Days = Callable[[date], bool]


def number(text: str, kind: int) -> int:
    """Read a number or a name of one field."""
    value = NAMES[kind].get(text.lower())
    if value is None:
        if not text or set(text) - set("0123456789"):
            raise Unreadable(text)
        value = int(text)
    if not BOUNDS[kind][0] <= value <= BOUNDS[kind][1]:
        raise Unreadable(text)
    return value


def numbers(term: str, kind: int) -> set[int]:
    """Read one part of a list as the set of its values."""
    span, *steps = term.split("/")
    if len(steps) > 1 or any(set(s) - set("0123456789") or not int(s or "0") for s in steps):
        raise Unreadable(term)
    step = int(steps[0]) if steps else 1
    low, high = BOUNDS[kind]
    if span != "*":
        first, *rest = span.split("-")
        if len(rest) > 1:
            raise Unreadable(term)
        low = number(first, kind)
        if rest:
            high = number(rest[0], kind)
            if kind == 4 and rest[0].lower() == "sun" and low not in {0, 7}:
                high = 7
            if kind == 4 and low == 7 and high == 0:
                high = 7
            if kind == 4 and first.lower() == "sun" and high == 7:
                raise Unreadable(term)
        elif not steps:
            high = low
    if high < low:
        raise Unreadable(term)
    return set(range(low, high + 1, step))


def last_day(day: date) -> int:
    """Return the number of the month's last day."""
    return calendar.monthrange(day.year, day.month)[1]


def day_of_month(term: str) -> Days:
    """Read a part of the day field as a test of dates."""
    if term.lower() == "l":
        return lambda day: day.day == last_day(day)
    if term.lower() == "lw":

        def is_last_workday(day: date) -> bool:
            rest = (day.replace(day=n) for n in range(day.day + 1, last_day(day) + 1))
            return day.weekday() < 5 and all(other.weekday() >= 5 for other in rest)

        return is_last_workday
    found = numbers(term, 2)
    return lambda day: day.day in found


def weekday(term: str) -> Days:
    """Read a part of the weekday field as a test of dates."""
    if "#" in term:
        which, _, nth = term.partition("#")
        wanted = number(which, 4) % 7
        if nth not in {"1", "2", "3", "4", "5"}:
            raise Unreadable(term)
        return lambda day: day.isoweekday() % 7 == wanted and (day.day - 1) // 7 + 1 == int(nth)
    if term[-1:].lower() == "l":
        if not term[:-1].isdigit():
            raise Unreadable(term)
        wanted = number(term[:-1], 4) % 7
        return lambda day: day.isoweekday() % 7 == wanted and day.day + 7 > last_day(day)
    found = {value % 7 for value in numbers(term, 4)}
    return lambda day: day.isoweekday() % 7 in found


class Reader:
    """A crontab as a brute-force test of every minute of a date."""

    def __init__(self, text: str) -> None:
        minute, hour, day, month, week = text.split()
        self.minutes = set().union(*(numbers(term, 0) for term in minute.split(",")))
        self.hours = set().union(*(numbers(term, 1) for term in hour.split(",")))
        self.months = set().union(*(numbers(term, 3) for term in month.split(",")))
        self.days = [day_of_month(term) for term in day.split(",")]
        self.weekdays = [weekday(term) for term in week.split(",")]
        self.both = day.startswith("*") or week.startswith("*")

    def is_on(self, day: date) -> bool:
        """Tell whether it is due at all on a date."""
        one, other = (any(test(day) for test in tests) for tests in (self.days, self.weekdays))
        return day.month in self.months and ((one and other) if self.both else (one or other))

    def times(self, day: date) -> list[datetime]:
        """Return its times on a date, in UTC."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        if not self.is_on(day):
            return []
        return [
            midnight + timedelta(hours=h, minutes=m)
            for h, m in product(sorted(self.hours), sorted(self.minutes))
        ]


def spelled(dice: random.Random, kind: int) -> str:
    """Write a value of a field in one of its spellings, seldom a wrong one."""
    low, high = BOUNDS[kind]
    value = dice.randint(low, high)
    forms = [str(value), str(value), f"{value:02}", f"{value:03}"]
    forms += [
        dice.choice([name, name.upper(), name.title()])
        for name, n in NAMES[kind].items()
        if n == value
    ] * 3
    return dice.choice(forms)


def term(dice: random.Random, kind: int) -> str:
    """Write a part of a field."""
    one, other = spelled(dice, kind), spelled(dice, kind)
    step = dice.choice(["1", "2", "03", "7", "40"])
    forms = [one, one, f"{one}-{other}", f"{one}-{other}", f"{one}-{one}", f"*/{step}", "*"]
    forms += [f"{one}/{step}", f"{one}-{other}/{step}", f"{one}-{one}/{step}"]
    if kind == 2:
        forms += ["L", "LW", "lw", "L/2"]
    if kind == 4:
        forms += [f"{one}#{dice.randint(1, 6)}", f"{one}L", f"{one}-sun", "sat-Sun"]
    if dice.random() < 0.01:
        forms = ["", "?", "H", "L-3", "15W", "\u017fun", "5-", "-5", "1-2-3", "*-5", "5/0", "1/2/3"]
    return dice.choice(forms)


def expression(dice: random.Random) -> str:
    """Write five fields."""
    fields = []
    for kind in range(5):
        few = dice.choice([1, 1, 1, 2, 3])
        written = ",".join(term(dice, kind) for _ in range(few))
        fields.append("*" if dice.random() < 0.35 else written or "0")
    return " ".join(fields)


BEGIN = date(2027, 12, 1)
DATES = [BEGIN + timedelta(days=n) for n in range(500)]


def test_random_texts_are_read_as_a_reader_of_its_own_reads_them() -> None:
    """The same texts are refused, and the others are due at the same times."""
    dice = random.Random(10)
    read = refused = 0
    for _ in range(500):
        text = expression(dice)
        try:
            reader = Reader(text)
        except Unreadable:
            with pytest.raises(ScheduleError):
                Crontab(text)
            refused += 1
            continue
        days = [day for day in DATES if reader.is_on(day)]
        if not days:
            continue  # none within these dates
        crontab = Crontab(text)
        read += 1
        for day in [days[0], dice.choice(days), dice.choice(days[: len(days) // 2 + 1])]:
            times = reader.times(day)
            moment = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(seconds=1)
            earlier = dice.randrange(len(times))
            assert crontab.next_after(moment) == times[0], text
            if earlier:
                assert crontab.next_after(times[earlier - 1]) == times[earlier], text
            following = next((other for other in days if other > day), None)
            if following is not None:
                assert crontab.next_after(times[-1]) == reader.times(following)[0], text
    assert read > 200
    assert refused > 50
