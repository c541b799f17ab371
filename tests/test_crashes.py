"""Killed with signal 9, at each point of a run: what the next process finds, and does."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, event

from lazycron import Budget, LazyCron
from lazycron.clock import EPOCH
from lazycron.executors.thread import ThreadExecutor
from lazycron.model.settle import Outcome, Settlement
from lazycron.store import Stamp
from lazycron.testing import ManualClock
from tests.conftest import START, MakeCron
from tests.processes import Child, Wire
from tests.tables import HOUR, put_rows, row_of, set_row, statuses, text_of

LEASE = timedelta(minutes=5)
HERE = "here"


# ── the process that is killed ───────────────────────────────────────────────────────────────────


def begin(wire: Wire, url: str, folder: str, names: list[str], point: str) -> None:
    """Run what is due, and halt at a point of the first run."""
    cron = LazyCron(
        url, state_file=f"{folder}/state.json", lease=LEASE, clock=ManualClock(START), drain=0
    )

    def halting() -> None:
        if POINTS[point] is in_the_task:
            wire.halt_here(HERE)

    for name in names:
        cron.task(every="1h", name=name)(halting)
    cron.sync()
    POINTS[point](wire, cron)
    cron.run_due()
    wire.say("nobody killed it")


def before_the_task(wire: Wire, cron: LazyCron) -> None:
    """Halt after the claim."""

    class Halting(ThreadExecutor):
        def execute(self, *values: Any) -> Outcome:
            wire.halt_here(HERE)
            return super().execute(*values)

    cron._parts.runner.running.executor = Halting()


def in_the_task(wire: Wire, cron: LazyCron) -> None:
    """Halt in the task itself: see `begin`."""


def before_the_record(wire: Wire, cron: LazyCron) -> None:
    """Halt after the task."""
    record = cron._parts.store.record

    def halting(settlement: Settlement, then: Stamp | None) -> object:
        wire.halt_here(HERE)
        return record(settlement, then)

    cron._parts.store.record = halting  # type: ignore[assignment, method-assign]


def in_the_record(wire: Wire, cron: LazyCron) -> None:
    """Halt in the record's transaction, after its last statement and before its commit."""

    @event.listens_for(cron._parts.store.engine, "after_cursor_execute")
    def halt(*values: Any) -> None:
        if values[2].startswith("INSERT INTO task_run"):
            wire.halt_here(HERE)


def after_the_record(wire: Wire, cron: LazyCron) -> None:
    """Halt before the state file is written anew."""
    record = cron._parts.store.record

    def halting(settlement: Settlement, then: Stamp | None) -> object:
        recorded = record(settlement, then)
        wire.halt_here(HERE)
        return recorded

    cron._parts.store.record = halting  # type: ignore[assignment, method-assign]


POINTS: dict[str, Callable[[Wire, LazyCron], None]] = {
    point.__name__: point
    for point in (before_the_task, in_the_task, before_the_record, in_the_record, after_the_record)
}


def kill_one_at(point: str, engine: Engine, folder: Path, names: list[str]) -> None:
    """Start a process, and kill it at a point of its first run."""
    with Child(begin, text_of(engine.url), str(folder), names, point) as child:
        child.expect(HERE)
        child.kill()


# ── the next process ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def following(url: URL, make_cron: MakeCron) -> LazyCron:
    """The next process of this host, with the same tasks."""
    cron = make_cron(url, lease=LEASE)
    for name in ("first", "second"):
        cron.task(every="1h", name=name)(lambda: None)
    return cron


def runs_of(cron: LazyCron) -> list[tuple[str, str]]:
    """Tick, and return what was run."""
    return [(run.task, run.status) for run in cron.run_due(budget=Budget(10, 20)).runs]


@pytest.mark.parametrize("point", ["before_the_task", "in_the_task", "before_the_record"])
def test_a_run_killed_before_its_record_is_lost_and_run_once_more(
    point: str,
    engine: Engine,
    tmp_path: Path,
    following: LazyCron,
    clock: ManualClock,
) -> None:
    put_rows(engine, ["first"], due=START)
    kill_one_at(point, engine, tmp_path, ["first"])
    held = row_of(engine, "first")
    assert (held["lock_token"] is not None, held["next_run_at"]) == (True, START + LEASE)

    # The lease still holds: whoever looks leaves the row alone.
    clock.tick(LEASE - timedelta(seconds=1))
    assert runs_of(following) == []
    assert statuses(engine) == []

    # It has ended: the run is recorded as lost, twice looked at on SQLite, and run again at once.
    ran = []
    for _ in range(4):
        clock.tick()
        ran += runs_of(following)
    assert ran == [("first", "ok")]
    assert statuses(engine) == ["lost", "ok"]
    lost, again = reversed(following.history("first"))
    assert (lost.ms, lost.attempt, again.attempt) == (None, 1, 2)
    assert lost.scheduled_for == again.scheduled_for == START
    assert lost.pid != again.pid
    after = row_of(engine, "first")
    assert (after["lock_token"], after["losses"], after["failures"]) == (None, 0, 0)
    assert any("first  lost" in line for line in following.log_tail())


def test_a_kill_within_the_record_leaves_nothing_of_it(
    engine: Engine, tmp_path: Path, following: LazyCron, clock: ManualClock
) -> None:
    """On PostgreSQL the record is one statement, which has no middle."""
    if engine.dialect.name == "postgresql":
        pytest.skip("a record is one statement on PostgreSQL: there is no within")
    put_rows(engine, ["first"], due=START)
    kill_one_at("in_the_record", engine, tmp_path, ["first"])
    assert statuses(engine) == []
    assert row_of(engine, "first")["lock_token"] is not None
    clock.tick(LEASE)
    ran = []
    for _ in range(4):
        clock.tick()
        ran += runs_of(following)
    assert ran == [("first", "ok")]
    assert statuses(engine) == ["lost", "ok"]


def test_a_run_killed_after_its_record_is_not_lost(
    engine: Engine, tmp_path: Path, following: LazyCron, clock: ManualClock
) -> None:
    """The state file still names the lease's end; one look there puts it right."""
    put_rows(engine, ["first"], due=START)
    kill_one_at("after_the_record", engine, tmp_path, ["first"])
    assert statuses(engine) == ["ok"]
    stale = json.loads((tmp_path / "state.json").read_text())
    assert stale["next"] == (START + LEASE).timestamp()
    clock.tick(LEASE + timedelta(seconds=1))
    assert runs_of(following) == []
    assert following.state().next == START + HOUR
    clock.set(START + HOUR)
    assert runs_of(following) == [("first", "ok")]
    assert statuses(engine) == ["ok", "ok"]


def test_of_a_process_killed_between_two_runs_the_second_is_lost(
    engine: Engine, tmp_path: Path, following: LazyCron, clock: ManualClock
) -> None:
    """The second row was claimed in the commit that recorded the first."""
    put_rows(engine, ["first", "second"], due=START - timedelta(seconds=1))
    kill_one_at("after_the_record", engine, tmp_path, ["first", "second"])
    assert statuses(engine) == ["ok"]
    assert row_of(engine, "first")["lock_token"] is None
    assert row_of(engine, "second")["lock_token"] is not None
    clock.tick(LEASE)
    ran = []
    for _ in range(4):
        clock.tick()
        ran += runs_of(following)
    assert ran == [("second", "ok")]
    assert statuses(engine, "second") == ["lost", "ok"]
    assert statuses(engine, "first") == ["ok"]


def test_a_process_that_restarts_under_the_same_name_does_not_keep_the_claim_alive(
    engine: Engine, tmp_path: Path, following: LazyCron, clock: ManualClock
) -> None:
    """A container's pid is 1 before and after: the claim is its token's, not a name's."""
    put_rows(engine, ["first"], due=START)
    kill_one_at("in_the_task", engine, tmp_path, ["first"])
    following._parts.store.by = row_of(engine, "first")["locked_by"]
    clock.tick(LEASE)
    ran = []
    for _ in range(4):
        clock.tick()
        ran += runs_of(following)
    assert ran == [("first", "ok")]
    assert statuses(engine) == ["lost", "ok"]


def test_run_now_buries_the_killed_run_first(
    engine: Engine, tmp_path: Path, following: LazyCron, clock: ManualClock
) -> None:
    put_rows(engine, ["first"], due=START)
    kill_one_at("in_the_task", engine, tmp_path, ["first"])
    assert following.run_now("first") is None
    clock.tick(LEASE)
    # The look half a second later, on SQLite, is made by this clock and waited for by another.
    result = following.run_now("first")
    if engine.dialect.name == "sqlite":
        assert result is None
        clock.tick("0.6s")
        result = following.run_now("first")
    assert result is not None
    assert result.status == "ok"
    assert statuses(engine) == ["lost", "ok"]


def test_three_kills_in_a_row_back_off_and_the_task_is_never_given_up(
    engine: Engine, following: LazyCron, clock: ManualClock
) -> None:
    """The first loss is due again at once, the second two intervals later, the third four."""
    put_rows(engine, ["first", "second"], due=START)
    set_row(engine, "second", enabled=False)
    looks = 2 if engine.dialect.name == "sqlite" else 1
    waits = []
    for losses in range(1, 4):
        following._parts.store.claim(_stamp(following, clock, f"{losses:032}"))
        clock.tick(LEASE)
        for _ in range(looks):
            clock.tick()
            following._parts.runner.burial.look(clock.now(), EPOCH)
        row = row_of(engine, "first")
        assert row["losses"] == losses
        waits.append(row["next_run_at"] - clock.now())
        clock.set(row["next_run_at"])
    assert waits == [timedelta(0), 2 * HOUR, 4 * HOUR]
    assert runs_of(following) == [("first", "ok")]
    assert statuses(engine) == ["lost", "lost", "lost", "ok"]
    assert row_of(engine, "first")["losses"] == 0


def _stamp(cron: LazyCron, clock: ManualClock, token: str) -> Stamp:
    cron.sync()
    now = clock.now()
    return Stamp(due=now, start=now, token=token, by="h:1", trigger="cli", floor=EPOCH)
