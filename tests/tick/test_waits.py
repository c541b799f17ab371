"""How long due rows waited before they ran, told apart by the cause."""

import sqlite3
from collections.abc import Callable

from sqlalchemy import URL

from lazycron import Budget, LazyCron, Retry
from lazycron.testing import ManualClock
from tests.conftest import MakeCron

WAITS = ("waited_beat", "waited_lock", "waited_budget", "missed", "retries")


def counted(cron: LazyCron) -> dict[str, tuple[int, ...]]:
    """Return each task's waits, skips and retries."""
    return {one.name: tuple(one.counters[name] for name in WAITS) for one in cron.overview()}


def taking(clock: ManualClock, length: str) -> Callable[[], None]:
    """Return a task that takes so long."""

    def chore() -> None:
        clock.tick(length)

    return chore


def test_a_wait_for_a_beat_and_one_for_the_budget_are_told_apart(
    cron: LazyCron, clock: ManualClock
) -> None:
    """The beat comes ten minutes late; then the second row waits for the first one's run."""
    for name in ("a", "b"):
        cron.task(every="1h", name=name)(taking(clock, "90s"))
    cron.sync()
    clock.tick("70m")
    cron.run_due(budget=Budget(tasks=None, seconds=None))
    assert counted(cron) == {"a": (600, 0, 0, 0, 0), "b": (600, 0, 90, 0, 0)}


def test_a_wait_for_a_lock_counts_from_the_tick_that_was_refused(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Five minutes without a beat, then five in which another connection held the write lock."""
    cron = make_cron(sqlite)
    cron.task(every="1h", name="a")(lambda: None)
    cron.sync()
    clock.tick("65m")
    writer = sqlite3.connect(str(sqlite.database), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert cron.run_due().runs == []
    writer.execute("ROLLBACK")
    writer.close()
    clock.tick("5m")
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    assert counted(cron) == {"a": (300, 300, 0, 0, 0)}
    clock.tick("60m")
    cron.run_due()
    assert counted(cron)["a"][1] == 300


def test_a_retry_is_counted_and_waits_for_nobody(cron: LazyCron, clock: ManualClock) -> None:
    """It is due when it is due."""

    def fail() -> None:
        raise RuntimeError

    cron.task(every="1h", name="a", retry=Retry(base="1m"))(fail)
    cron.sync()
    clock.tick("1h")
    cron.run_due()
    clock.tick("10m")
    cron.run_due()
    assert counted(cron) == {"a": (0, 0, 0, 0, 1)}
