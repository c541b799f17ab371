"""Texts as every database can store them."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from lazycron.schema import lazycron_setting
from lazycron.texts import (
    Json,
    counters_from_json,
    from_json,
    one_line,
    readable_json,
    shorten,
    shown,
    storable,
    to_json,
)
from tests.conftest import START


class Evil:
    """An object whose repr raises whatever it is told to."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error


class EvilList(list[int]):
    """A list that cannot be iterated."""

    def __iter__(self) -> Iterator[int]:
        raise ZeroDivisionError


def test_nul_characters_and_lone_surrogates_are_escaped() -> None:
    """What some database refuses becomes readable."""
    assert storable("a\x00b") == "a\\x00b"
    assert storable("a\udc80b") == "a\\udc80b"


def test_other_characters_stay_as_they_are() -> None:
    """Astral characters, accents, tabs."""
    assert storable("😀 é\tü") == "😀 é\tü"


@pytest.mark.parametrize(
    "text", ["a\x00b", "\udc80\ud83d", "😀" * 479, "\U0010ffff", "é\u0301", "\x1b[31m\x7f"]
)
def test_an_odd_message_is_stored_and_read_back_on_every_database(
    engine: Engine, text: str
) -> None:
    """What `shorten` gives, a text column takes."""
    ready = shorten(text, 480)
    with engine.begin() as connection:
        connection.execute(
            lazycron_setting.insert().values(name="odd", value=ready, changed_at=START)
        )
        assert connection.execute(select(lazycron_setting.c.value)).scalar_one() == ready


def test_a_text_that_fits_is_not_cut() -> None:
    """Up to its length."""
    assert shorten("x" * 480, 480) == "x" * 480


def test_a_long_text_is_cut_in_the_middle() -> None:
    """Both ends remain readable, and the length is exact."""
    text = shorten("begin" + "x" * 1000 + "end", 480)
    assert len(text) == 480
    assert text.startswith("beginx")
    assert text.endswith("xend")
    assert text.count(" … (1008 characters in all) ") == 1


@given(st.text(st.characters(codec=None)), st.integers(min_value=4, max_value=50))
def test_a_shortened_text_is_never_longer_and_always_valid(text: str, length: int) -> None:
    """Whatever the text holds, surrogates included."""
    short = shorten(text, length)
    assert len(short) <= length
    short.encode()
    assert "\x00" not in short


def test_a_message_is_one_line_of_at_most_480_characters() -> None:
    """Line ends of every kind and runs of blanks become one blank."""
    assert one_line(" a\nb\r\n\tc\u2028d\x85e ") == "a b c d e"
    assert len(one_line("word " * 500)) == 480


def test_json_is_compact_and_comes_back() -> None:
    """Nested values, astral texts and lone surrogates survive, in ASCII."""
    value = {"a": [1, 2.5, None, True], "text": "😀\udc80\x00"}
    text = to_json(value)
    assert text.isascii()
    assert " " not in text
    assert from_json(text) == value


def test_no_json_is_none() -> None:
    """An empty column."""
    assert from_json(None) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"x", {(1, 2): 3}])
def test_what_is_no_json_is_refused(value: Json) -> None:
    """NaN and infinities too, which Python would write and no database reads."""
    with pytest.raises((TypeError, ValueError)):
        to_json(value)


@pytest.mark.parametrize("text", ["", "{half", "[" * 100_000])
def test_a_column_that_a_hand_has_made_unreadable_shows_nothing(text: str) -> None:
    """And counts from nothing again."""
    assert readable_json(text) is None
    assert counters_from_json(text) == {}


def test_counters_are_numbers_by_name() -> None:
    """Anything else in the column counts nothing."""
    assert counters_from_json('{"ok": 3, "runs": "4", "late": null}') == {"ok": 3}
    assert counters_from_json("[1]") == counters_from_json(None) == {}
    assert readable_json('{"page": 3}') == {"page": 3}


def test_a_refused_value_is_shown_in_at_most_120_characters() -> None:
    """Whatever its repr is or raises."""
    assert shown("5x") == "'5x'"
    assert len(shown("x" * 10_000)) == 120
    assert shown(Evil(RuntimeError())) == "<Evil whose repr raised RuntimeError>"
    assert "ValueError" in shown(10**5000)
