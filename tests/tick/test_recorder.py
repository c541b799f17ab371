"""Whatever a run came to is stored, or at least logged: any size, any content, any weather."""

import json
import re
from collections.abc import Callable

import pytest
from sqlalchemy import URL
from sqlalchemy.exc import DataError, OperationalError

from lazycron import LazyCron
from lazycron.model.settle import Settlement
from lazycron.store import Stamp, Store
from tests.conftest import MakeCron
from tests.scenes import row_of, statuses

MEGABYTES = 10_000_000
record = Store.record


class Awkward:
    """An object whose every text raises."""

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__


class AwkwardError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def fail(error: BaseException) -> Callable[[], object]:
    def failing() -> object:
        raise error

    return failing


def deep() -> object:
    found: list[object] = []
    for _ in range(10_000):
        found = [found]
    return found


def circular() -> object:
    found: list[object] = []
    found.append(found)
    return found


OUTCOMES: dict[str, tuple[Callable[[], object], str]] = {
    "nothing": (lambda: None, "ok"),
    "blank": (lambda: " \n\t ", "ok"),
    "nul": (lambda: "a\x00b", "ok"),
    "surrogate": (lambda: "a\ud800b", "ok"),
    "emoji": (lambda: "🐑" * 480, "ok"),
    "lines": (lambda: "one\r\ntwo\u2028three", "ok"),
    "huge text": (lambda: "x" * MEGABYTES, "ok"),
    "huge result": (lambda: ["x" * MEGABYTES], "ok"),
    "nan": (lambda: float("nan"), "ok"),
    "big number": (lambda: 10**4000, "ok"),
    "object": (object, "ok"),
    "awkward": (Awkward, "ok"),
    "bytes": (lambda: b"\x00\xff", "ok"),
    "nul in a result": (lambda: {"a\x00": "\ud800"}, "ok"),
    "deep": (deep, "ok"),
    "circular": (circular, "ok"),
    "huge error": (fail(ValueError("y" * MEGABYTES)), "failed"),
    "nul error": (fail(ValueError("a\x00b\ud800")), "failed"),
    "awkward error": (fail(AwkwardError()), "failed"),
    "exit": (fail(SystemExit(3)), "failed"),
    "interrupt": (fail(KeyboardInterrupt()), "failed"),
    "generator exit": (fail(GeneratorExit()), "failed"),
    "error group": (fail(ExceptionGroup("many", [ValueError("z" * 1000)] * 100)), "failed"),
}


def test_any_outcome_can_be_stored(cron: LazyCron) -> None:
    """In the row and in the history, bounded and marked where it was shortened."""
    for name, (function, status) in OUTCOMES.items():
        cron.task(every="hour", name=name)(function)
        result = cron.run_now(name)
        assert result is not None, name
        assert result.status == status, name
        row = row_of(cron, name)
        (run,) = cron.history(name)
        assert (row.running, row.last_status, run.status) == (False, status, status), name
        assert row.last_message == run.message == result.message, name
        assert 0 < len(result.message) <= 480, name
        assert len(run.error or "") <= 16_000, name
        assert len(json.dumps(run.result)) <= 65_536, name


def test_what_was_shortened_says_so(cron: LazyCron) -> None:
    """Both ends of a text remain; why a result is not stored stands in the message."""
    found = {}
    for name in ("huge text", "huge error", "huge result", "nan", "awkward", "nul", "lines"):
        cron.task(every="hour", name=name)(OUTCOMES[name][0])
        cron.run_now(name)
        (found[name],) = cron.history(name)
    said = rf"x+ … \({MEGABYTES} characters in all\) x+ The result was not stored"
    assert re.match(said, found["huge text"].message or "")
    message = found["huge error"].message
    assert message is not None
    assert message.startswith("ValueError: yyy")
    assert " … " in message
    assert "(test_recorder.py:" in message
    assert " … " in (found["huge error"].error or "")
    for name, said in {
        "huge text": f"takes at least {MEGABYTES + 1} bytes as JSON",
        "huge result": f"takes at least {MEGABYTES + 2} bytes as JSON",
        "nan": "the result is nan",
        "awkward": "<Awkward whose repr raised RuntimeError>",
    }.items():
        assert found[name].result is None
        assert said in (found[name].message or ""), name
    assert found["nul"].message == "a\\x00b"
    assert found["lines"].message == "one two three"


# A database that does not take it


def refuse(
    monkeypatch: pytest.MonkeyPatch, error: Exception, refused: Callable[[Settlement], bool]
) -> list[Settlement]:
    """Let recording fail for some settlements; return all that were tried."""
    tried: list[Settlement] = []

    def attempt(store: Store, settlement: Settlement, then: Stamp | None) -> object:
        tried.append(settlement)
        if refused(settlement):
            raise error
        return record(store, settlement, then)

    monkeypatch.setattr(Store, "record", attempt)
    return tried


ENCODING = UnicodeEncodeError("latin-1", "…", 0, 1, "ordinal not in range(256)")
DATA = DataError("UPDATE", {}, Exception("no equivalent in encoding LATIN1"))
GONE = OperationalError("UPDATE", {}, Exception("server closed the connection"))


@pytest.mark.parametrize("error", [ENCODING, DATA], ids=["driver", "database"])
def test_a_text_that_the_database_cannot_encode_is_stored_in_ascii(
    sqlite: URL, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The run's status is worth more than its letters."""
    cron = make_cron(sqlite)
    cron.task(every="hour", name="chore")(lambda: "Vær så god 🐑")
    tried = refuse(monkeypatch, error, lambda one: not one.outcome.message.isascii())
    assert cron.run_now("chore") is not None
    assert len(tried) == 2
    (run,) = cron.history()
    assert run.message == r"V\xe6r s\xe5 god \U0001f411"
    assert row_of(cron, "chore").last_status == "ok"


def test_texts_that_are_refused_altogether_are_left_out(
    sqlite: URL, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is let go all the same; the log file has the message."""
    cron = make_cron(sqlite)
    cron.task(every="hour", name="chore")(lambda: "Too much.")
    refuse(monkeypatch, DATA, lambda one: "Too much" in one.outcome.message)
    assert cron.run_now("chore") is not None
    (run,) = cron.history()
    assert run.message == "The database refused this run's texts; the log file has its message."
    assert "Too much." in cron.log_tail()[0]


def test_a_finished_run_is_recorded_when_the_database_is_back(
    cron: LazyCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried again with growing pauses, alone: a failing record takes no claim with it."""
    failures = iter([True, True, False, False])
    tried = refuse(monkeypatch, GONE, lambda _: next(failures))
    ran = []
    for name in ("a", "b"):
        cron.task(every="hour", name=name, first_run=0)(lambda name=name: ran.append(name))
    cron.run_due()
    report = cron.run_due()
    assert len(tried) == 3
    assert [run.task for run in report.runs] == ["a"]
    assert [run.task for run in cron.run_due().runs] == ["b"]
    assert (ran, statuses(cron)) == (["a", "b"], ["ok", "ok"])


def test_a_run_that_cannot_be_recorded_in_its_lease_is_left_to_the_lease(
    sqlite: URL, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test's clock that stands still does not make it wait for ever; the log file has it."""
    cron = make_cron(sqlite)
    cron.task(every="hour", lease="1s", name="chore")(lambda: "In vain.")
    tried = refuse(monkeypatch, GONE, lambda _: True)
    result = cron.run_now("chore")
    assert result is not None
    assert result.status == "lost"
    assert len(tried) == 6
    assert row_of(cron, "chore").running
    assert "chore  ok (not recorded)  0 ms  manual  In vain." in cron.log_tail()[0]
