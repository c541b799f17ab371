"""An error of any size costs no more than what is kept of it: measured in memory, never in time."""

import linecache
import tracemalloc
from collections.abc import Callable

import pytest

from lazycron.executors.outcome import failure_message
from lazycron.executors.tracebacks import text_of, traceback_of
from lazycron.model.run import Postpone
from lazycron.texts import one_line, shorten, shown

SIZE = 20_000_000
HUGE = "line\n" * (SIZE // 5)


class CountingText(str):
    """A text that counts who works on the whole of it."""

    __slots__ = ()
    worked = 0

    def split(self, *_: object) -> list[str]:
        """Count."""
        CountingText.worked += 1
        return []

    splitlines = encode = replace = split  # type: ignore[assignment]


def raised(error: BaseException) -> BaseException:
    """Let an error have a traceback."""
    try:
        raise error  # noqa: TRY301 - it is to have a traceback
    except BaseException as caught:  # noqa: BLE001 - any kind
        return caught


def noted() -> BaseException:
    """An error with huge notes, and many."""
    error = ValueError("noted")
    error.add_note(HUGE)
    for _ in range(100_000):
        error.add_note("note")
    return raised(error)


def chained() -> BaseException:
    """An error of a long chain."""
    error: BaseException = ValueError("first")
    for number in range(3000):
        later = ValueError(f"number {number}")
        later.__cause__ = error
        error = raised(later)
    return error


def wide() -> BaseException:
    """A group of many, one of them huge."""
    return raised(ExceptionGroup("many", [ValueError(HUGE)] * 3 + [ValueError("x")] * 50_000))


def deep_group() -> BaseException:
    """Groups in groups."""
    error: Exception = ValueError(HUGE)
    for _ in range(500):
        error = ExceptionGroup("outer", [error])
    return raised(error)


def on_a_huge_line() -> BaseException:
    """An error raised on a source line of megabytes."""
    source = f"x = 1; raise ValueError('here')  # {'x' * SIZE}"
    linecache.cache["<huge>"] = (len(source), None, [source], "<huge>")
    try:
        exec(compile(source, "<huge>", "exec"))
    except ValueError as error:
        return error
    raise AssertionError


ERRORS: dict[str, Callable[[], BaseException]] = {
    "text": lambda: raised(ValueError(HUGE)),
    "key": lambda: raised(KeyError(HUGE)),
    "arguments": lambda: raised(ValueError(HUGE, [HUGE] * 10)),
    "list": lambda: raised(ValueError(["x" * 1000] * 100_000)),
    "bytes": lambda: raised(ValueError(b"\xff" * SIZE)),
    "notes": noted,
    "chain": chained,
    "group": wide,
    "deep group": deep_group,
    "cause": lambda: raised(_caused()),
    "line": on_a_huge_line,
}


def _caused() -> BaseException:
    error = ValueError("small")
    error.__cause__ = raised(ValueError(HUGE))
    return error


def peak_of(work: Callable[[], object]) -> int:
    """Return how much memory a call takes at its highest."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ERRORS)
def test_a_huge_error_is_cut_before_it_is_written(name: str) -> None:
    """Its message and its traceback say what it is all the same."""
    error = ERRORS[name]()
    message, trace = failure_message(error), traceback_of(error)
    assert len(message) <= 480
    assert len(trace) <= 16_000
    assert message.startswith(type(error).__name__)
    assert type(error).__name__ in trace
    assert "Traceback (most recent call last):" in trace
    assert peak_of(lambda: (failure_message(error), traceback_of(error))) < 1_000_000


@pytest.mark.parametrize("make", [chained, _caused])
def test_a_shorter_traceback_names_the_newest_and_how_it_came_about(
    make: Callable[[], BaseException],
) -> None:
    """In Python's own words."""
    trace = traceback_of(make())
    assert "The above exception was the direct cause of the following exception" in trace
    assert trace.endswith(("ValueError: number 2999", "ValueError: small"))


def test_an_ordinary_traceback_is_pythons_own() -> None:
    """With its groups and notes."""
    error = raised(ExceptionGroup("two", [ValueError("one"), KeyError("other")]))
    error.add_note("a note")
    trace = traceback_of(error)
    assert "  + Exception Group Traceback (most recent call last):" in trace
    assert "a note" in trace


def test_nobody_works_on_the_whole_of_a_huge_text() -> None:
    """Not what is raised, returned, or given as a reason."""
    huge = CountingText("x" * SIZE)
    one_line(huge)
    shorten(huge, 480)
    failure_message(raised(ValueError(huge)))
    traceback_of(raised(ValueError(huge)))
    one_line(str.__str__(Postpone(1, reason=huge).reason))
    assert CountingText.worked == 0


@pytest.mark.parametrize(
    "value",
    [HUGE, b"\xff" * SIZE, ["x" * SIZE] * 50, dict.fromkeys(range(10**6)), set(range(10**6))],
    ids=["text", "bytes", "list", "dict", "set"],
)
def test_a_huge_value_is_shown_without_writing_it_whole(value: object) -> None:
    """In an error's message."""
    assert len(shown(value)) <= 120
    assert peak_of(lambda: shown(value)) < 1_000_000


def test_a_text_that_raises_is_said() -> None:
    """Whatever it raises."""

    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert text_of(SpeechlessError()) == "its text raised SystemExit"
