"""A job's arguments: checked against the function, written as JSON, and back as what they were."""

import json
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazycron import Run
from lazycron.errors import ArgumentsError
from lazycron.model.arguments import (
    Arguments,
    check_call,
    complete_call,
    read_arguments,
    write_arguments,
)
from lazycron.model.values import MOST_BYTES, MOST_DIGITS

PLUS_TWO = timezone(timedelta(hours=2))
PLAIN = [
    None,
    True,
    0,
    -1,
    10 ** (MOST_DIGITS - 1),
    1.5,
    "",
    "Größe 猫 \x00 \ud800",
    datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=PLUS_TWO),
    datetime(2026, 1, 2),  # noqa: DTZ001 - a naive one comes back naive
    date(2026, 1, 2),
    UUID(int=7),
    Decimal("1.10"),
    Decimal("NaN"),
    [],
    (),
    {},
    [1, (2, [3])],
    {"a": {"b": [date(2026, 1, 2)]}},
    {"$": "uuid", "value": "none"},
    {"$": {"$": 1}},
]


def there_and_back(*args: object, **kwargs: object) -> Arguments:
    """Write arguments and read them again."""
    return read_arguments(write_arguments(Arguments(args, kwargs)))


@pytest.mark.parametrize("value", PLAIN, ids=range(len(PLAIN)))
def test_a_value_comes_back_as_what_it_was(value: object) -> None:
    """By position and by name; its type, and the types within."""
    found = there_and_back(value, named=value)
    for one in (found.args[0], (found.kwargs or {})["named"]):
        assert type(one) is type(value)
        assert repr(one) == repr(value)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.just(PLUS_TWO))
    | st.dates()
    | st.uuids()
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(anything)
def test_whatever_is_accepted_comes_back_equal(value: object) -> None:
    """Made up by chance."""
    assert there_and_back(value).args == (value,)


class Colour(StrEnum):
    """A text that is more than one."""

    RED = "red"


class Broken(tzinfo):
    """A time zone that raises."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        raise LookupError(str(moment))

    dst = tzname = utcoffset  # type: ignore[assignment]


class Silent:
    """A value whose repr raises."""

    def __repr__(self) -> str:
        raise ValueError


def itself() -> list[object]:
    """Make a list that holds itself."""
    value: list[object] = []
    value.append(value)
    return value


REFUSED = [
    (object(), "builtins.object"),
    (Silent(), "whose repr raised ValueError"),
    (b"bytes", "builtins.bytes"),
    ({1, 2}, "builtins.set"),
    (Colour.RED, "Colour"),
    (OrderedDict(a=1), "collections.OrderedDict"),
    (timedelta(1), "datetime.timedelta"),
    (float("nan"), "is nan"),
    (float("inf"), "is inf"),
    (10**5000, "digits"),
    ({1: 2}, "has the key 1"),
    ([[b"deep"]], r"parameter\[0\]\[0\]"),
    ({"a": [b"deep"]}, r"parameter\['a'\]\[0\]"),
    (itself(), "deeper than 50"),
    (datetime(2026, 1, 1, tzinfo=Broken()), "cannot be written"),
]


@pytest.mark.parametrize(("value", "said"), REFUSED, ids=range(len(REFUSED)))
def test_anything_else_is_refused_by_an_error_that_names_the_argument(
    value: object, said: str
) -> None:
    """By its name, whether it was passed by name or by position."""
    with pytest.raises(ArgumentsError, match=said) as by_name:
        write_arguments(Arguments((), {"parameter": value}))
    with pytest.raises(ArgumentsError) as by_position:
        write_arguments(Arguments((value,)), ["parameter"])
    with pytest.raises(ArgumentsError, match=r"^argument 1[\[ ]"):
        write_arguments(Arguments((value,)))
    assert str(by_name.value) == str(by_position.value)
    assert str(by_name.value).startswith("argument parameter")
    assert "may be text, numbers" in str(by_name.value)
    assert len(str(by_name.value)) < 700


def test_64_kib_are_accepted_and_one_byte_more_is_not() -> None:
    """Counted as JSON."""
    frame = len(write_arguments(Arguments(("",))))
    assert len(write_arguments(Arguments(("x" * (MOST_BYTES - frame),)))) == MOST_BYTES
    with pytest.raises(ArgumentsError, match="take 65537 bytes as JSON, more than 65536"):
        write_arguments(Arguments(("x" * (MOST_BYTES - frame + 1),)))


def test_what_is_written_is_ascii_that_every_database_stores() -> None:
    """NUL characters and lone surrogates are escaped."""
    text = write_arguments(Arguments(("猫\x00\ud800",)))
    assert text.isascii()
    assert "\x00" not in text


def test_a_key_counts_for_nothing() -> None:
    """What is accepted does not depend on whether somebody else has the key."""
    frame = len(write_arguments(Arguments(("",))))
    full = "x" * (MOST_BYTES - frame)
    snapshot = write_arguments(Arguments((full,), {}, "k" * 191))
    assert read_arguments(snapshot) == Arguments((full,), {}, "k" * 191)
    with pytest.raises(ArgumentsError, match="take 65537 bytes"):
        write_arguments(Arguments((full + "x",), {}, "k"))


def test_an_hour_that_comes_twice_comes_back_as_the_one_it_was() -> None:
    """A naive moment's second pass; an aware one has its offset."""
    twice = datetime(2026, 10, 25, 2, 30, fold=1)  # noqa: DTZ001 - naive on purpose
    [found] = read_arguments(write_arguments(Arguments((twice,)))).args
    assert (found, found.fold) == (twice, 1)
    aware = twice.replace(tzinfo=ZoneInfo("Europe/Berlin"))
    [found] = read_arguments(write_arguments(Arguments((aware,)))).args
    assert (found, found.utcoffset()) == (aware.astimezone(UTC), timedelta(hours=1))


def test_a_key_is_remembered_beside_the_arguments() -> None:
    """A dead job's row has given it up."""
    assert read_arguments(write_arguments(Arguments((1,), {}, "key"))).key == "key"
    assert json.loads(write_arguments(Arguments((1,)))) == {"args": [1], "kwargs": {}}


# ── the call ─────────────────────────────────────────────────────────────────────────────────────


def call(
    function: Callable[..., Any], run_parameter: str | None, *args: Any, **kwargs: Any
) -> object:
    """Check a call, and make it."""
    arguments = Arguments(args, kwargs)
    check_call(function, run_parameter, arguments)
    positional, named = complete_call(function, run_parameter, "RUN", arguments)
    return function(*positional, **named)


def first(run: Run, a: int, b: int = 2) -> object:
    return run, a, b


def middle(a: int, run: Run, b: int = 2) -> object:
    return run, a, b


def rest(a: int, run: Run, *more: int, c: int = 3, **others: int) -> object:
    return run, a, more, c, others


def by_name(*more: int, run: Run, c: int) -> object:
    return run, more, c


def defaults(a: int = 1, run: Run | None = None, b: int = 2, *, c: int = 3) -> object:
    return run, a, b, c


def only_by_position(a: int, /, b: int, run: Run) -> object:
    return run, a, b


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "got"),
    [
        (first, (1,), {}, ("RUN", 1, 2)),
        (first, (), {"a": 1, "b": 5}, ("RUN", 1, 5)),
        (middle, (1, 5), {}, ("RUN", 1, 5)),
        (middle, (1,), {"b": 5}, ("RUN", 1, 5)),
        (rest, (1,), {}, ("RUN", 1, (), 3, {})),
        (rest, (1, 2, 3), {"c": 4, "d": 5}, ("RUN", 1, (2, 3), 4, {"d": 5})),
        (by_name, (), {"c": 1}, ("RUN", (), 1)),
        (by_name, (1, 2), {"c": 1}, ("RUN", (1, 2), 1)),
        (defaults, (), {}, ("RUN", 1, 2, 3)),
        (defaults, (7,), {}, ("RUN", 7, 2, 3)),
        (defaults, (), {"b": 7}, ("RUN", 1, 7, 3)),
        (defaults, (7, 8), {"c": 9}, ("RUN", 7, 8, 9)),
        (only_by_position, (1,), {"b": 2}, ("RUN", 1, 2)),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_run_is_filled_in_wherever_its_parameter_stands(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], got: object
) -> None:
    """The caller counts the others only."""
    assert call(function, "run", *args, **kwargs) == got


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"c": 1})],
    ids=str,
)
def test_a_call_that_does_not_fit_is_an_error_that_shows_the_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Without the run, which is not the caller's."""
    with pytest.raises(
        ArgumentsError, match=r"^middle\(a: int, b: int = 2\).* does not take these"
    ):
        check_call(middle, "run", Arguments(args, kwargs))


def test_the_run_itself_cannot_be_passed() -> None:
    """Not even to a function that takes any name."""
    with pytest.raises(ArgumentsError, match="'run' is filled in by lazycron"):
        check_call(rest, "run", Arguments((1,), {"run": 5}))


def test_a_builtin_that_tells_nothing_takes_anything() -> None:
    """It says itself what it does not like, when it runs."""
    check_call(iter, None, Arguments((1, 2, 3)))
    assert call(max, None, 1, 2) == 2


def test_a_function_without_a_run_is_called_as_it_was_enqueued() -> None:
    """Any parameter may be named as ours are."""

    def task(self: int, name: int, *, args: int) -> object:
        return self, name, args

    assert call(task, None, 1, name=2, args=3) == (1, 2, 3)
