"""The five fields of a crontab: read one by one, so that an error names the value and the remedy.

cronsim computes the times; it gets each field in one plain spelling.
"""

import re
from dataclasses import dataclass
from typing import NoReturn

from lazycron.errors import ScheduleError
from lazycron.texts import shown

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
CRON_FIELDS = 5
MOST_WEEKS = 5
SUNDAY = 7
_HASH = re.compile(r"(?<![A-Z])H(?![A-Z])")
_NUMBER = re.compile(r"\d{1,400}", re.ASCII)


class Refusal(Exception):  # noqa: N818 - never leaves this module
    """Why a field cannot be read, and what to write instead."""


def refuse(why: str) -> NoReturn:
    """Refuse a field."""
    raise Refusal(why)


@dataclass(frozen=True, slots=True)
class Field:
    """What one field takes."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def read(self, text: str) -> str:
        """Return the field in its plain spelling; raises Refusal."""
        return ",".join(self._term(term) for term in text.upper().split(","))

    def covers_all(self, plain: str) -> bool:
        """Tell whether a plain field names every value, with a star or without."""
        if set(plain) & set("L#"):
            return False
        size = SUNDAY if self.high == SUNDAY else self.high - self.low + 1
        return len({v % size for term in plain.split(",") for v in self._values(term)}) == size

    def _term(self, term: str) -> str:
        if not term:
            refuse("a value is missing: between two commas, or at an end")
        special = self._special(term)
        if special is not None:
            return special
        span, slash, by = term.partition("/")
        step = self._step(by) if slash else 1
        if span == "*":
            return "*" if step == 1 else f"*/{step}"
        first, dash, last = span.partition("-")
        low = self._number(first)
        if dash:
            high = self._end(first, last, low)
        elif slash:
            high = self.high
        else:
            high = low
        return self._plain(low, high, step)

    def _plain(self, low: int, high: int, step: int) -> str:
        """Write a range, one value as a single value: cronsim reads its step as open-ended."""
        if high - low < step:
            return str(low)
        return f"{low}-{high}" if step == 1 else f"{low}-{high}/{step}"

    def _values(self, term: str) -> range:
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        low, high = (self.low, self.high) if span == "*" else (int(first), int(last or first))
        return range(low, high + 1, int(step or 1))

    def _number(self, text: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.low
        number = int(text) if _NUMBER.fullmatch(text) else -1
        if not self.low <= number <= self.high:
            refuse(f"{shown(text)} is not accepted; write {self._accepted()}")
        return number

    def _end(self, first: str, last: str, low: int) -> int:
        """Read one end of a range; Sunday is the first day, and the last at a range's end."""
        high = self._number(last)
        is_week = self.high == SUNDAY
        if is_week and low in {0, SUNDAY} and high in {0, SUNDAY}:
            if low >= high:
                return low
            if first.isdigit():  # 0-7 is the whole week, as in cron
                return high
            refuse("both ends are Sunday; write 0 for Sunday, or * for each day")
        if is_week and last == "SUN":
            high = SUNDAY
        if high < low:
            rest = max(self.low, 1) if is_week else self.low
            begin = f"{low}-{self.high}" if low < self.high else f"{low}"
            end = "" if high < rest else f",{rest}-{high}" if high > rest else f",{rest}"
            refuse(f"the range runs backward; write {begin}{end}")
        return high

    def _step(self, text: str) -> int:
        if not _NUMBER.fullmatch(text) or int(text) == 0:
            refuse(f"the step {shown(text)} is not a whole number from 1 up")
        return int(text)

    def _special(self, term: str) -> str | None:
        """Read L, LW, 5L and 5#3; refuse what other crons write."""
        day = self.name == "day of the month"
        weekday = self.high == SUNDAY
        if term == "?":
            refuse("? means any value in Quartz; write *")
        if _HASH.search(term):
            refuse("H is Jenkins' hash; write a number, and jitter= to spread the runs")
        if "~" in term:
            refuse("a random value is not taken; write a number, and jitter= to spread runs")
        if day and term in {"L", "LW"}:
            return term
        if day and term.startswith("L") and "/" in term:
            refuse("a step goes with * or a range; write L or LW alone")
        if day and term.startswith("L"):
            refuse(
                "only L, the last day, and LW, the last day from Monday to Friday, are taken; for "
                "an earlier day write its number, or let a daily task compare the date"
            )
        if day and "W" in term:
            refuse(
                "the weekday nearest to a date is not taken, only LW, the month's last day from "
                "Monday to Friday; write the date, or let a daily task compare it"
            )
        if weekday and term.endswith("L"):
            return self._last(term[:-1])
        if weekday and "#" in term:
            return self._nth(term)
        return None

    def _last(self, text: str) -> str:
        if text in self.names:
            refuse(f"the last one of a weekday takes a number; write {self._number(text)}L")
        if not text:
            refuse("L needs a weekday before it; write 5L for the month's last Friday")
        return f"{self._number(text)}L"

    def _nth(self, term: str) -> str:
        text, _, nth = term.partition("#")
        if not _NUMBER.fullmatch(nth) or not 1 <= int(nth) <= MOST_WEEKS:
            refuse(f"after # goes a number from 1 to {MOST_WEEKS}; 5#3 is the third Friday")
        return f"{self._number(text)}#{int(nth)}"

    def _accepted(self) -> str:
        names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.low} to {self.high}{names}, alone or in ranges, lists and steps, or *"


DAY, WEEKDAY = 2, 4
FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of the month", 1, 31),
    Field(
        "month",
        1,
        12,
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    ),
    Field("weekday", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
)


def to_plain(expression: str, what: str) -> str:
    """Return a crontab's five fields, each in its plain spelling; raises ScheduleError."""
    fields = expression.split()
    if len(fields) != CRON_FIELDS:
        message = f"{what} {_why_not_five(fields)}; or write one of {', '.join(NICKNAMES)}"
        raise ScheduleError(message)
    plain = []
    for field, text in zip(FIELDS, fields, strict=True):
        try:
            if not text.isascii():
                refuse("only ASCII letters and digits are taken")
            plain.append(field.read(text))
        except Refusal as why:
            message = f"{what} cannot be read: {field.name} {shown(text)}: {why}"
            raise ScheduleError(message) from None
    return " ".join(plain)


def _why_not_five(fields: list[str]) -> str:
    five = "needs five fields: minute hour day month weekday"
    first = fields[0] if fields else ""
    if first.lower() == "@every":
        return f'{five}; an interval is written every="{"".join(fields[1:]) or "5m"}"'
    if first.lower() == "@reboot":
        return f"{five}; lazycron knows no reboot: call the function where the app starts"
    if first.upper().startswith(("CRON_TZ=", "TZ=")):
        zone = first.partition("=")[2]
        return f'{five}; the time zone is written apart: tz="{zone}"'
    if len(fields) in {CRON_FIELDS + 1, CRON_FIELDS + 2}:
        return f'{five}, and takes no seconds and no year; seconds are written every="10s"'
    return five


def to_spoken(plain: str) -> str:
    """Return plain fields in their best spelling: with a star where every value matches."""
    fields = plain.split()
    for number, field in enumerate(FIELDS):
        text = fields[number]
        if number not in {DAY, WEEKDAY} and text.startswith("*/"):
            span, _, step = text.partition("/")
            if span and int(step) > field.high - field.low:
                fields[number] = str(field.low)
    day, weekday = fields[DAY], fields[WEEKDAY]
    either = not day.startswith("*") and not weekday.startswith("*")
    if either and (FIELDS[DAY].covers_all(day) or FIELDS[WEEKDAY].covers_all(weekday)):
        fields[DAY] = fields[WEEKDAY] = "*"
    return " ".join(fields)


def never_due(plain: str) -> str:
    """Say why a readable crontab is never due."""
    _, _, day, month, weekday = plain.split()
    where = "in any month" if month == "*" else f"in month {month}"
    if weekday == "*":
        return f"can never be due: no day {day} comes {where}; L is the month's last day"
    return (
        f"can never be due: no date {where} is day of the month {day} and weekday {weekday}; "
        "where neither of the two begins with *, either is enough"
    )
