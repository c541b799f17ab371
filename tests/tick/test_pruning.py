"""History that is too old goes, in whatever order it stands."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from sqlalchemy import Engine, func, insert, select

from lazycron import LazyCron
from lazycron.schema import task_run
from lazycron.testing import ManualClock
from tests.conftest import START

DAY = timedelta(days=1)


def put_runs(engine: Engine, *runs: tuple[str, int, datetime]) -> None:
    """Insert runs of a job that started at a moment, in the order given."""
    plain = {"status": "ok", "trigger": "url", "attempt": 1}
    rows = [
        {"name": name, "job_id": 1, "started_at": at, "scheduled_for": at, **plain}
        for name, number, at in runs
        for _ in range(number)
    ]
    with engine.begin() as connection:
        connection.execute(insert(task_run), rows)


def counted(engine: Engine) -> Mapping[str, int]:
    """Count the runs of each name."""
    query = select(task_run.c.name, func.count()).group_by(task_run.c.name)
    with engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


@pytest.mark.parametrize("ahead", [0, 900, 1000, 1700])
def test_runs_of_a_clock_that_was_ahead_do_not_keep_older_ones(
    cron: LazyCron, engine: Engine, clock: ManualClock, ahead: int
) -> None:
    """They stand before them; the first slice is looked at each minute, and one further on."""
    old, ages = START - 365 * DAY, START + 3650 * DAY
    put_runs(engine, ("ahead", ahead, ages), ("old", 2500, old), ("new", 300, START))
    cron.run_due()
    left = counted(engine).get("old", 0)
    assert left == {0: 500, 900: 1400, 1000: 1500, 1700: 2200}[ahead]
    for _ in range(8):
        clock.tick("61s")
        cron.run_due()
    expected = {"ahead": ahead, "new": 300} if ahead else {"new": 300}
    assert counted(engine) == expected


def test_pruning_by_hand_goes_through_all_at_once(cron: LazyCron, engine: Engine) -> None:
    """And says how many went."""
    old, ages = START - 365 * DAY, START + 3650 * DAY
    put_runs(engine, ("ahead", 1500, ages), ("old", 1500, old), ("new", 10, START), ("old", 5, old))
    cron.sync()
    assert cron.prune() == 1505
    assert counted(engine) == {"ahead": 1500, "new": 10}
    assert cron.prune() == 0
