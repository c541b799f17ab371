"""Rows that were edited by hand: what cannot be read stops no other row."""

import random
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from lazycron import Budget, LazyCron
from lazycron.schema import scheduled_task
from lazycron.testing import ManualClock
from lazycron.texts import counters_from_json

MOMENTS = ("next_run_at", "scheduled_for", "last_run_at", "seen_at", "created_at")
GARBLED = {
    "sqlite": ("tomorrow", "2026-13-01", 5, -1.5, b"\xff", "", "0001-01-01", "9999-12-31 23:59:59"),
    "postgresql": ("infinity", "-infinity", "0001-01-01", "294276-01-01"),
    "mariadb": ("0000-00-00", "0001-01-01", "9999-12-31 23:59:59"),
}
COUNTERS = (
    '{"runs": ' + "9" * 4300 + ', "ok": ' + "9" * 4300 + ', "lateness": true}',
    '{"runs": -1, "most_lateness": 9223372036854775807}',
    "{",
    "[]",
)


def edit(engine: Engine, column: str, value: Any) -> None:  # noqa: ANN401 - whatever fits
    """Overwrite a column of the one row as a person could."""
    shown = ":value"
    if engine.dialect.name == "postgresql" and column in MOMENTS:
        shown = "CAST(CAST(:value AS text) AS timestamptz)"
    statement = text(f"UPDATE scheduled_task SET {column} = {shown} WHERE name = 'edited'")
    with engine.begin() as connection:
        if engine.dialect.name == "mariadb":
            connection.execute(text("SET SESSION sql_mode = ''"))
        assert connection.execute(statement, {"value": value}).rowcount == 1


def look_everywhere(cron: LazyCron) -> None:
    """Ask every verb that reads."""
    assert {"edited", "healthy"} <= {status.name for status in cron.overview()}
    cron.jobs()
    cron.history()
    cron.check()
    assert cron.why("healthy").text
    assert cron.why("edited").text


@pytest.mark.parametrize("seed", range(6))
def test_a_row_edited_by_hand_stops_no_other(
    seed: int, cron: LazyCron, clock: ManualClock, engine: Engine
) -> None:
    """Whatever its moments and counters hold: verbs show all rows, and the others run on time."""
    ran: list[object] = []
    cron.task(name="edited", every="5m")(lambda: None)
    cron.task(name="healthy", every="1m")(lambda: ran.append(clock.now()))
    cron.sync()
    chance = random.Random(seed)
    for _ in range(8):
        column = chance.choice((*MOMENTS, "counters"))
        values = COUNTERS if column == "counters" else GARBLED[engine.dialect.name]
        edit(engine, column, chance.choice(values))
        look_everywhere(cron)
        before = len(ran)
        clock.tick(timedelta(minutes=1))
        cron.run_due(budget=Budget(None, None))
        assert len(ran) == before + 1
        look_everywhere(cron)


def test_counters_are_whole_numbers_that_can_be_counted_on() -> None:
    """Others count from zero."""
    assert counters_from_json(COUNTERS[0]) == {}
    assert counters_from_json('{"ok": 3, "runs": true, "late": 9223372036854775807}') == {"ok": 3}


def test_a_moment_that_cannot_be_read_is_told(cron: LazyCron, engine: Engine) -> None:
    """With the name of the task and what to do."""
    cron.task(name="edited", every="5m")(lambda: None)
    cron.sync()
    value = {"sqlite": "tomorrow", "postgresql": "infinity", "mariadb": "0000-00-00"}
    edit(engine, scheduled_task.c.next_run_at.name, value[engine.dialect.name])
    [problem] = [one for one in cron.check() if one.name == "unreadable_rows"]
    assert "edited" in problem.text
    assert cron.overview()[0].next is None
