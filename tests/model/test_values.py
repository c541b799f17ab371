"""Checkpoints and results are written as arguments are, and come back as what they were."""

import tracemalloc
from collections import namedtuple
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazycron import LazyCron, Run
from lazycron.errors import ArgumentsError
from lazycron.model.arguments import Arguments, write_arguments
from lazycron.model.values import MOST_BYTES, read_value, readable_value, write_value
from lazycron.testing import ManualClock

Point = namedtuple("Point", "x y")  # noqa: PYI024 - what a user may have


class Number(IntEnum):
    """Whole numbers by name."""

    ONE = 1


class Word(StrEnum):
    """Texts by name."""

    ONE = "one"


class Colour(Enum):
    """Names of nothing else."""

    RED = 1


KEPT = [
    "text",
    (1, (2, [3])),
    {"at": datetime(2026, 1, 2, 3, tzinfo=UTC), "on": date(2026, 1, 2)},
    [UUID(int=7), Decimal("1.10"), None, True, 2.5],
    {"$": "tuple", "value": [1]},
]
CHANGED = [
    {1: "a"},
    {None: "a"},
    {True: "a"},
    {(1, 2): "a"},
    {Word.ONE: "a"},
    Point(1, 2),
    Number.ONE,
    Word.ONE,
    Colour.RED,
    {"deep": [Number.ONE]},
    {1, 2},
    b"bytes",
    float("nan"),
]


@pytest.mark.parametrize("value", CHANGED, ids=repr)
def test_all_three_places_refuse_the_same_values(value: object) -> None:
    """With the same words about the value, and with what is accepted."""
    said = []
    with pytest.raises(ArgumentsError) as caught:
        write_arguments(Arguments((value,)), ["argument"])
    said.append(str(caught.value).removeprefix("argument argument").partition(";")[0])
    for what in ("checkpoint", "result"):
        with pytest.raises(ArgumentsError, match=f"a {what} may be text, numbers") as caught:
            write_value(value, what)
        said.append(str(caught.value).removeprefix(f"the {what}").partition(";")[0])
    assert len(set(said)) == 1


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.dates()
    | st.uuids()
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_like)
def test_what_is_written_comes_back_as_what_it_was(value: object) -> None:
    """Its types too."""
    back = read_value(write_value(value, "result"))
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "text", ["{half", "[" * 100_000, '{"$": "tuple"}', '{"$": "who", "value": 1}', '{"$": []}']
)
def test_a_text_edited_by_hand_shows_nothing(text: str) -> None:
    """Reading it raises; showing it does not."""
    assert readable_value(text) is None
    with pytest.raises(Exception, match=r".*"):
        read_value(text)


LARGE = [
    ["x" * 1000] * 100_000,
    dict.fromkeys(map(str, range(100_000)), "x" * 1000),
    [10**4000] * 100_000,
    "x" * 50_000_000,
]


@pytest.mark.parametrize("value", LARGE, ids=range(len(LARGE)))
def test_a_value_that_is_too_large_is_refused_before_it_is_written(value: object) -> None:
    """Nothing of the size of its text is made."""
    tracemalloc.start()
    try:
        with pytest.raises(ArgumentsError, match=r"takes at least \d+ bytes as JSON, more than"):
            write_value(value, "checkpoint")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * MOST_BYTES


def test_a_checkpoint_and_a_result_come_back_from_every_database(
    cron: LazyCron, clock: ManualClock
) -> None:
    """To the next attempt, to `jobs`, `overview`, `history` and `result`."""
    seen = []

    @cron.task
    def work(run: Run) -> object:
        seen.append(run.progress)
        if run.attempt <= len(KEPT):
            run.checkpoint(KEPT[run.attempt - 1])
            raise LookupError
        return KEPT

    job = work.enqueue()
    for value in KEPT[:4]:
        cron.run_due()
        assert [one.progress for one in cron.jobs()] == [value]
        assert [one.progress for one in cron.overview()] == [value]
        clock.tick("1d")
    assert seen == [None, *KEPT[:3]]
    keep = cron.task(name="keep")(lambda: KEPT)
    job = keep.enqueue()
    assert cron.run_now("keep") is not None
    assert cron.result(job.id or 0).value == KEPT
    assert cron.history("keep")[0].result == KEPT
    assert repr(cron.history("keep")[0].result) == repr(KEPT)
