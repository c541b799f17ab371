"""Lengths of time: what is taken, what is refused, and how one is written."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazycron.durations import Duration, in_short, in_words, roughly, to_duration
from lazycron.errors import ScheduleError


class Evil:
    """An object whose repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError


ACCEPTED = [
    (timedelta(minutes=5), 300),
    (0, 0),
    (90, 90),
    (1.5, 1.5),
    ("90s", 90),
    ("15m", 900),
    ("1h30m", 5400),
    ("2d", 172800),
    ("1d1h1m1s", 90061),
    ("0.25s", 0.25),
    ("0s", 0),
    (" 5M ", 300),
]
REFUSED = [
    -5,
    -0.001,
    float("nan"),
    float("inf"),
    float("-inf"),
    1e308,
    10**400,
    10**5000,
    "",
    " ",
    "soonish",
    "90",
    "-5m",
    "5 m",
    "30m1h",
    "1.5h",
    "1h1h",
    "٣m",
    "9" * 400 + "s",
    "1" + "0" * 303 + "d4" + "0" * 304 + "h",
    "x" * 100_000,
    True,
    False,
    None,
    [],
    b"5m",
    timedelta(seconds=-1),
    timedelta.max,
    Evil(),
]


@pytest.mark.parametrize(("value", "seconds"), ACCEPTED)
def test_a_duration_is_a_timedelta_a_number_of_seconds_or_a_text(
    value: Duration, seconds: float
) -> None:
    """Each accepted form gives the same length."""
    assert to_duration(value) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", REFUSED, ids=range(len(REFUSED)))
def test_anything_else_is_refused_with_what_is_accepted(value: Duration) -> None:
    """The error says what, and the forms and bounds that are accepted; it stays short."""
    with pytest.raises(ScheduleError) as caught:
        to_duration(value, what="first_run")
    text = str(caught.value)
    assert text.startswith("first_run ")
    assert text.endswith(
        ' is not accepted; pass a timedelta, a number of seconds or a text such as "90s", "15m", '
        '"1h30m" or "2d", from zero to 3660 days'
    )
    assert len(text) < 300


@pytest.mark.parametrize("value", [-5, "soonish", 1e308, True])
def test_the_error_names_the_value(value: Duration) -> None:
    """As Python writes it."""
    with pytest.raises(ScheduleError) as caught:
        to_duration(value)
    assert f"duration {value!r} is not accepted" in str(caught.value)


def test_bounds_belong_to_what_is_accepted() -> None:
    """Both ends are taken; a microsecond beyond them is not."""
    least, most = timedelta(seconds=1), timedelta(days=10)
    assert to_duration(1, least=least, most=most) == least
    assert to_duration("10d", least=least, most=most) == most
    for beyond in (least - timedelta(microseconds=1), most + timedelta(microseconds=1)):
        with pytest.raises(ScheduleError, match="from 1 second to 10 days"):
            to_duration(beyond, least=least, most=most)


@given(
    st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3653)),
)
def test_a_written_duration_reads_back_to_the_microsecond(length: timedelta) -> None:
    """Every length up to ten years survives being written short."""
    assert to_duration(in_short(length)) == length


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3653)))
def test_a_duration_argument_keeps_its_microseconds(length: timedelta) -> None:
    """A timedelta comes out as it went in."""
    assert to_duration(length) == length


@given(st.one_of(st.text(), st.floats(), st.integers(), st.binary(), st.booleans()))
def test_whatever_comes_in_a_length_or_a_schedule_error_comes_out(value: Duration) -> None:
    """Nothing else is ever raised."""
    try:
        length = to_duration(value)
    except ScheduleError:
        return
    assert timedelta(0) <= length <= timedelta(days=3660)


@pytest.mark.parametrize(
    ("seconds", "short", "words", "rough"),
    [
        (0, "0s", "0 seconds", "0 seconds"),
        (1, "1s", "1 second", "1 second"),
        (1.5, "1.5s", "1.5 seconds", "2 seconds"),
        (60, "1m", "1 minute", "1 minute"),
        (900, "15m", "15 minutes", "15 minutes"),
        (5400, "1h30m", "1 hour 30 minutes", "1 hour 30 minutes"),
        (86400, "1d", "1 day", "1 day"),
        (273906, "3d4h5m6s", "3 days 4 hours 5 minutes 6 seconds", "3 days 4 hours"),
    ],
)
def test_durations_are_written_short_in_words_and_roughly(
    seconds: float, short: str, words: str, rough: str
) -> None:
    """One and many, and the two largest units for sentences."""
    length = timedelta(seconds=seconds)
    assert (in_short(length), in_words(length), roughly(length)) == (short, words, rough)


def test_a_length_that_is_behind_us_is_roughly_as_long() -> None:
    """Sentences say "ago" themselves."""
    assert roughly(timedelta(hours=-2)) == "2 hours"
