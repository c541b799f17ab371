"""The clock, and what `now=` takes."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from lazycron.clock import SystemClock, to_moment


class NoOffset(tzinfo):
    """A time zone that gives no offset, which makes a datetime naive all the same."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None

    def dst(self, _: datetime | None) -> timedelta | None:
        return None

    def tzname(self, _: datetime | None) -> str | None:
        return None


def test_the_system_clock_is_aware_and_in_utc() -> None:
    """It agrees with the host's clock."""
    before = datetime.now(UTC)
    now = SystemClock().now()
    assert now.tzinfo is UTC
    assert before <= now <= datetime.now(UTC)


def test_the_monotonic_clock_never_goes_back() -> None:
    """Two readings in a row."""
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()


def test_an_aware_moment_of_any_zone_is_taken_and_turned_into_utc() -> None:
    """Half past three in Istanbul is half past midnight in UTC."""
    local = datetime(2026, 1, 1, 3, 30, tzinfo=ZoneInfo("Europe/Istanbul"))
    moment = to_moment(local)
    assert moment.tzinfo is UTC
    assert moment == datetime(2026, 1, 1, 0, 30, tzinfo=UTC)


def test_the_second_pass_of_an_overlap_is_an_hour_after_the_first() -> None:
    """The fold is obeyed: 02:30 comes twice in Berlin on 25 October 2026."""
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert to_moment(first) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert to_moment(first.replace(fold=1)) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


def test_whole_epoch_seconds_are_taken() -> None:
    """1767225600 is the first of January 2026."""
    assert to_moment(1767225600) == datetime(2026, 1, 1, tzinfo=UTC)
    assert to_moment(0) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "naive",
    [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=NoOffset())],  # noqa: DTZ001
)
def test_a_naive_moment_is_refused(naive: datetime) -> None:
    """The error says what to pass."""
    with pytest.raises(ValueError, match="no time zone; pass an aware datetime or epoch seconds"):
        to_moment(naive)


@pytest.mark.parametrize(
    "beyond",
    [
        float("nan"),
        float("inf"),
        1e308,
        -1e308,
        10**400,
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_moment_outside_the_calendar_is_refused(beyond: float) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match="is outside the calendar"):
        to_moment(beyond)


@pytest.mark.parametrize("wrong", [None, "2026-01-01", True, [], timedelta(1)])
def test_what_is_no_moment_is_refused(wrong: float) -> None:
    """The error says what to pass."""
    with pytest.raises(TypeError, match="is not a moment; pass an aware datetime or epoch seconds"):
        to_moment(wrong)
