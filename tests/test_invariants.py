"""A long life at random: whatever happens in whatever order, the rows stay what they must be."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from sqlalchemy import URL

from lazycron import Budget, LazyCron, Postpone
from lazycron.errors import BusyError
from lazycron.model.settle import Claim, Status
from lazycron.store import TaskRow
from lazycron.testing import ManualClock
from tests.conftest import MakeCron
from tests.processes import rounds
from tests.scenes import seconds, settled, stamp_at, statuses

NAMES = ("a", "b", "c")
LEASE = seconds(300)
# The longest backoff: six hours; the longest interval that anybody sets here is less.
LONGEST = timedelta(hours=6)


@dataclass
class Life:
    """Two processes on one database, claims of processes that died, and a pair of dice."""

    crons: list[LazyCron]
    make: Callable[[], LazyCron]
    clock: ManualClock
    dice: random.Random
    running: Counter[str] = field(default_factory=Counter)
    ran: int = 0
    dead: list[Claim] = field(default_factory=list)

    def task(self, name: str) -> object:
        """Run for a while; succeed, fail, or ask for another time."""
        self.running[name] += 1
        assert self.running[name] == 1, f"{name} runs twice at once"
        self.ran += 1
        self.clock.tick(seconds(self.dice.choice([0, 0, 1, 30])))
        self.running[name] -= 1
        if self.dice.random() < 0.2:
            raise RuntimeError(name)
        return Postpone("5m") if self.dice.random() < 0.1 else None

    def code(self, cron: LazyCron) -> LazyCron:
        """Register the tasks with intervals of this version of the code."""
        for name in NAMES:
            every = self.dice.choice(["1m", "5m", "1h"])
            skip = self.dice.random() < 0.3
            cron.task(every=every, name=name, on_lost="skip" if skip else "rerun")(
                lambda name=name: self.task(name)
            )
        return cron

    # What may happen

    def passes(self) -> None:
        self.clock.tick(seconds(self.dice.choice([0.5, 1, 20, 61, 600, 4000])))

    def tick(self) -> None:
        budget = Budget(tasks=self.dice.choice([1, 3, None]))
        self.dice.choice(self.crons).run_due(budget=budget)

    def run_now(self) -> None:
        self.dice.choice(self.crons).run_now(self.dice.choice(NAMES))

    def claim_and_die(self) -> None:
        store = self.dice.choice(self.crons)._parts.store
        claim = store.claim_by_name(self.dice.choice(NAMES), stamp_at(self.clock.now()))
        self.dead += [claim] if claim else []

    def come_back_late(self) -> None:
        """A process that was only slow records what it was at, whoever has the row by now."""
        if not self.dead:
            return
        claim = self.dead.pop(self.dice.randrange(len(self.dead)))
        cron = self.dice.choice(self.crons)
        before = cron._parts.store.recurring.of(claim.name)
        history = len(statuses(cron))
        status = self.dice.choice([Status.OK, Status.FAILED])
        cron._parts.store.record(settled(cron, claim, status, self.clock.now()), None)
        assert before is not None
        if before.lock_token != claim.token:
            assert cron._parts.store.recurring.of(claim.name) == before
            assert len(statuses(cron)) == history

    def switch(self) -> None:
        cron, name = self.dice.choice(self.crons), self.dice.choice(NAMES)
        self.dice.choice([cron.disable, cron.enable, cron.enable])(name)

    def change(self) -> None:
        cron, name = self.dice.choice(self.crons), self.dice.choice(NAMES)
        if self.dice.random() < 0.5:
            cron.set_interval(name, self.dice.choice(["1m", "10m", "2h"]))
        else:
            cron.reset_schedule(name)

    def release(self) -> None:
        cron, name = self.dice.choice(self.crons), self.dice.choice(NAMES)
        with suppress(BusyError):
            cron.release(name, force=self.dice.random() < 0.3)

    def deploy(self) -> None:
        number = self.dice.randrange(2)
        self.crons[number].close()
        self.crons[number] = self.code(self.make())
        self.crons[number].sync()

    def step(self) -> None:
        """Let one thing happen, time passing most often."""
        happenings = [self.passes] * 4 + [self.tick] * 4 + [self.run_now, self.switch, self.change]
        happenings += [self.claim_and_die, self.come_back_late, self.release]
        happenings += [self.deploy] if self.dice.random() < 0.2 else []
        self.dice.choice(happenings)()


def check(row: TaskRow, clock: ManualClock) -> None:
    """What is true of every row at every moment."""
    now = clock.now()
    assert row.running == (row.locked_by is not None)
    assert row.last_run_at is None or row.last_run_at <= now
    if row.running:
        assert row.next_run_at <= now + LEASE
        assert row.last_run_at is not None
        assert row.attempts >= 1
    else:
        assert row.next_run_at <= now + LONGEST
        assert row.last_duration_ms is None or row.last_duration_ms >= 0
    assert row.scheduled_for <= max(row.next_run_at, now)
    assert min(row.failures, row.losses, row.attempts) >= 0


@pytest.mark.parametrize("seed", range(rounds()))
def test_a_long_life_at_random(
    url: URL, make_cron: MakeCron, clock: ManualClock, seed: int
) -> None:
    """No row is ever lost, doubled, stuck or asleep, and all that ran is in the history."""
    dice = random.Random(seed)

    def make() -> LazyCron:
        return make_cron(url, keep_runs=100_000, keep_age="3650d")

    life = Life([], make, clock, dice)
    life.crons = [life.code(make()) for _ in range(2)]
    for cron in life.crons:
        cron.sync()
    for _ in range(150):
        life.step()
        rows = life.crons[0]._parts.store.recurring.all()
        assert [row.name for row in rows] == list(NAMES)
        for row in rows:
            check(row, clock)
    # At last everything is switched on, the dead are buried, and each task runs again.
    for name in NAMES:
        life.crons[0].enable(name)
    before = life.ran
    for _ in range(16):
        clock.tick("30m")
        for _ in range(3):
            life.crons[0].run_due(budget=Budget(tasks=None, seconds=None))
            clock.tick(1)
    assert not any(row.running for row in life.crons[0]._parts.store.recurring.all())
    assert life.ran >= before + len(NAMES)
    found = Counter(statuses(life.crons[0]))
    assert sum(found.values()) - found["lost"] >= life.ran
    assert found["lost"] > 0
