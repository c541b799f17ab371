"""Any interleaving of ticks, crashes, jumps of the clock and an operator's verbs: what holds."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import URL, Connection, select

from lazycron import Budget, LazyCron
from lazycron.clock import EPOCH
from lazycron.model.settle import Claim, Outcome, Status
from lazycron.schema import scheduled_task, task_run
from lazycron.store import Stamp, new_token
from lazycron.store.driver.engine import open_engine
from lazycron.testing import ManualClock
from tests.conftest import START, empty
from tests.processes import rounds

LEASE = timedelta(seconds=60)
THIRD = LEASE / 3
LONGEST_BACKOFF = timedelta(hours=6)
EVERY = {"minutely": "1m", "hourly": "1h", "nightly": "1d"}
CHANGED = EVERY | {"hourly": "5m", "nightly": "7h"}
VERSIONS = (EVERY, CHANGED)

pytestmark = pytest.mark.races

VERBS = ("disable", "enable", "set_interval", "reset_schedule", "release", "run_now")

owners = st.integers(0, 2)
names = st.sampled_from(sorted(EVERY))


@dataclass(slots=True)
class Held:
    """A run that an owner began and has not ended; `lost` once the row was taken from him."""

    claim: Claim
    renew_at: timedelta
    lost: bool = False


class Owner:
    """A process: its LazyCron, its clock, and the slow runs it is busy with."""

    def __init__(self, url: URL, folder: Path, skew: float, version: int) -> None:
        self.clock = ManualClock(START)
        self.clock.jump(timedelta(seconds=skew))
        self.cron = LazyCron(
            url, state_file=folder / f"{id(self)}.json", clock=self.clock, lease=LEASE, keep_runs=10
        )
        for name, every in VERSIONS[version].items():
            self.cron.task(every=every, name=name, first_run=0)(lambda: None)
        self.held: list[Held] = []

    def begin(self, name: str | None, renew_at: timedelta) -> None:
        """Claim what is due, or this task due or not, and be busy with it."""
        now, store = self.clock.now(), self.cron._parts.store
        stamp = Stamp(due=now, start=now, token=new_token(), by="o:1", trigger="cli", floor=EPOCH)
        claim = store.claim(stamp) if name is None else store.claim_by_name(name, stamp)
        if claim is not None:
            self.held.append(Held(claim, renew_at))

    def renew(self, held: Held) -> bool:
        """Renew a lease, as its thread does each third of it."""
        return self.cron._parts.store.renew(held.claim, self.clock.now() + LEASE)

    def finish(self, held: Held, status: Status) -> bool:
        """Record a run; tells whether it was."""
        self.held.remove(held)
        recorded = self.cron._parts.runner.running.recorder.record(
            held.claim,
            Outcome(status=status, ms=1, error="as told" if status is Status.FAILED else None),
            earliest=held.claim.started_at,
            give_up_at=self.clock.monotonic(),
            then=None,
        )
        return recorded is not None


class World(RuleBasedStateMachine):
    """Three processes on one host, whose clock may jump, and an operator."""

    def __init__(self, fresh: Callable[[], URL]) -> None:
        super().__init__()
        self.url = fresh()
        self.folder = Path(tempfile.mkdtemp())
        self.engine = open_engine(self.url)
        self.passed = timedelta(0)
        self.jumped = timedelta(0)
        self.jumped_ahead_at = timedelta(days=-1)
        self.owners: list[Owner] = []

    @initialize(skews=st.lists(st.floats(-2, 2), min_size=3, max_size=3))
    def start(self, skews: list[float]) -> None:
        """Start three processes, whose clocks differ by seconds at most."""
        self.skews = skews
        self.owners = [self.new_owner(number, 0) for number in range(3)]

    def new_owner(self, number: int, version: int) -> Owner:
        """Start a process in this one's place."""
        owner = Owner(self.url, self.folder, self.skews[number], version)
        owner.clock.tick(self.passed)
        owner.clock.jump(self.jumped)
        owner.cron.sync()
        return owner

    def row(self, name: str) -> Any:  # noqa: ANN401 - a row
        """Read a task's row."""
        with self.engine.connect() as connection:
            found = select(scheduled_task).where(scheduled_task.c.name == name)
            return connection.execute(found).one()

    # what happens

    @rule(seconds=st.sampled_from([1, 19, 61, 600]) | st.integers(1, 600))
    def let_time_pass(self, seconds: int) -> None:
        """Let time pass, in which the living renew their leases."""
        until = self.passed + timedelta(seconds=seconds)
        while self.passed < until:
            held = [(owner, one) for owner in self.owners for one in owner.held]
            step = min([until, *(one.renew_at for _, one in held)]) - self.passed
            self.passed += step
            for owner in self.owners:
                owner.clock.tick(step)
            for owner, one in held:
                if one.renew_at <= self.passed:
                    one.renew_at += THIRD
                    assert owner.renew(one) is not one.lost, "a live lease was taken away"

    @rule(number=owners)
    def tick(self, number: int) -> None:
        """Let a process look."""
        report = self.owners[number].cron.run_due(budget=Budget(3, 20))
        assert len({run.task for run in report.runs}) == len(report.runs), "twice in a tick"
        assert all(run.status == "ok" for run in report.runs)

    @rule(number=owners)
    def look_twice(self, number: int) -> None:
        """Let a process look, and again a moment later: what it takes to bury on SQLite."""
        self.tick(number)
        self.let_time_pass(1)
        self.tick(number)

    @rule(number=owners, name=names | st.none())
    def begin(self, number: int, name: str | None) -> None:
        """Let a process begin a slow run."""
        self.owners[number].begin(name, self.passed + THIRD)

    @precondition(lambda self: any(owner.held for owner in self.owners))
    @rule(data=st.data(), status=st.sampled_from([Status.OK, Status.FAILED, Status.POSTPONED]))
    def finish(self, data: st.DataObject, status: Status) -> None:
        """Let a slow run end; a late one changes nothing."""
        busy = [owner for owner in self.owners if owner.held]
        owner = data.draw(st.sampled_from(busy), "owner")
        held = data.draw(st.sampled_from(owner.held), "run")
        before = self.row(held.claim.name)
        assert owner.finish(held, status) is not held.lost
        if held.lost:
            assert self.row(held.claim.name) == before

    @rule(number=owners, version=st.integers(0, 1))
    def crash(self, number: int, version: int) -> None:
        """Let a process die and another come up in its place, maybe with other code.

        A process that starts between a step of the clock ahead and the renewals after it cannot
        know of the step, and takes the living for dead: that much is not promised.
        """
        if self.passed - self.jumped_ahead_at <= THIRD:
            self.let_time_pass(21)
        self.owners[number].cron.close(timeout=0)
        self.owners[number] = self.new_owner(number, version)

    @rule(seconds=st.sampled_from([-3600, -70, 70, 3600]) | st.integers(-7200, 7200))
    def jump(self, seconds: int) -> None:
        """Put the host's clock ahead or back, unknown to anybody."""
        length = timedelta(seconds=seconds)
        self.jumped += length
        if seconds > 0:
            # Each has looked at the clock before: at its start, or in a tick.
            self.jumped_ahead_at = self.passed
        for owner in self.owners:
            owner.cron._parts.runner.look_at_clock()
            owner.clock.jump(length)

    # what an operator does

    @rule(number=owners, name=names, verb=st.sampled_from(VERBS), minutes=st.integers(1, 600))
    def operate(self, number: int, name: str, verb: str, minutes: int) -> None:
        """Let an operator do something, through any of the processes."""
        cron = self.owners[number].cron
        if verb == "set_interval":
            cron.set_interval(name, f"{minutes}m")
        elif verb == "release":
            self.release(cron, name)
        elif verb == "run_now":
            self.run_now(cron, name)
        else:
            getattr(cron, verb)(name)

    def release(self, cron: LazyCron, name: str) -> None:
        """End whatever claim there is by force."""
        token = self.row(name).lock_token
        assert cron.release(name, force=True) is (token is not None)
        for owner in self.owners:
            for held in owner.held:
                held.lost = held.lost or held.claim.token == token

    def run_now(self, cron: LazyCron, name: str) -> None:
        """Run a task now: never one that is running."""
        live = {held.claim.name for owner in self.owners for held in owner.held if not held.lost}
        result = cron.run_now(name)
        assert result is None or name not in live

    # what holds after each of these

    @invariant()
    def rows_make_sense(self) -> None:
        """Every row has its moments, and a token exactly while it is claimed."""
        if not self.owners:
            return
        with self.engine.connect() as connection:
            rows = connection.execute(select(scheduled_task)).all()
            self.check_history(connection)
        assert {row.name for row in rows} == set(EVERY)
        for row in rows:
            assert row.next_run_at is not None
            assert row.scheduled_for is not None
            assert (row.lock_token is None) is (row.locked_by is None)
            assert min(row.failures, row.losses, row.attempts) >= 0
            live = [
                held.claim.token
                for owner in self.owners
                for held in owner.held
                if held.claim.name == row.name and not held.lost
            ]
            assert len(live) <= 1, "two live claims of one row"
            assert live in ([], [row.lock_token]), "a live claim is not on its row"

    def check_history(self, connection: Connection) -> None:
        """No run has lasted less than no time, and none is recorded twice."""
        runs = connection.execute(select(task_run)).all()
        assert all(run.duration_ms is None or run.duration_ms >= 0 for run in runs)
        assert all(run.finished_at >= run.started_at for run in runs if run.status != "lost")
        assert all(run.status in {"ok", "failed", "postponed", "lost"} for run in runs)

    def teardown(self) -> None:
        """Whatever has happened: every enabled task runs, once the living are left to it."""
        if self.owners:
            self.rest()
        for owner in self.owners:
            owner.cron.close(timeout=0)
        self.engine.dispose()
        shutil.rmtree(self.folder, ignore_errors=True)

    def rest(self) -> None:
        """Let the slow runs end, enable everything, and tick for two days."""
        for owner in self.owners:
            for held in list(owner.held):
                owner.finish(held, Status.OK)
        first = self.owners[0]
        for name in EVERY:
            first.cron.enable(name)
            first.cron.reset_schedule(name)
        with self.engine.connect() as connection:
            last = connection.execute(select(task_run.c.id).order_by(task_run.c.id.desc())).first()
        ran: set[str] = set()
        for _ in range(8):
            self.let_time_pass(int((LONGEST_BACKOFF + timedelta(minutes=1)).total_seconds()))
            for _ in range(3):
                ran |= {run.task for run in first.cron.run_due(budget=Budget(10, 20)).runs}
                self.let_time_pass(1)
        assert ran == set(EVERY), f"after run {last} some never ran again"


@pytest.mark.parametrize("seconds", [61, 600, 7200])
def test_a_clock_put_ahead_takes_no_living_run_for_dead(seconds: int, url: URL) -> None:
    """The game that chance plays too seldom: every process looks again and again meanwhile."""
    world = World(lambda: url)
    world.start([0.0, 1.0, -1.0])
    world.begin(0, "hourly")
    world.jump(seconds)
    for _ in range(7):
        for number in range(3):
            world.look_twice(number)
            world.rows_make_sense()
    (held,) = world.owners[0].held
    assert world.owners[0].finish(held, Status.OK)
    world.teardown()


def play(fresh: Callable[[], URL], examples: int, steps: int) -> None:
    """Play random games; the same ones each time, unless rounds are asked for."""
    run_state_machine_as_test(
        partial(World, fresh),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples * rounds(),
            stateful_step_count=steps,
            deadline=None,
            derandomize=rounds() == 1,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate, Phase.shrink],
        ),
    )


def test_no_interleaving_breaks_what_is_promised(sqlite: URL) -> None:
    def fresh() -> URL:
        empty(sqlite)
        return sqlite

    play(fresh, examples=8, steps=30)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_nor_does_one_on_a_server(kind: str, request: pytest.FixtureRequest) -> None:
    url: URL = request.getfixturevalue(kind)

    def fresh() -> URL:
        empty(url)
        return url

    play(fresh, examples=2, steps=25)
