"""A run that is paused when its row is taken away leaves a history row all the same."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from sqlalchemy import URL, Engine, create_engine

from lazycron import Budget, LazyCron, Run
from lazycron.model.job import Job
from lazycron.testing import ManualClock
from tests.conftest import START, MakeCron
from tests.tables import set_row, statuses

TWO_PIECES = Budget(1, 2)
MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["with a total", "without one", "without a checkpoint"])
def paused(
    request: pytest.FixtureRequest, cron: LazyCron, clock: ManualClock
) -> tuple[Callable[[], Job], str]:
    """A job that pauses after two pieces: what enqueues it with its key, and what was done."""
    kind = request.param

    @cron.task(name="long")
    def long(run: Run, number: int) -> Iterator[None]:
        assert number < 10
        for n in range(10):
            clock.tick()
            if kind != "without a checkpoint":
                run.checkpoint(n + 1, done=n + 1, total=10 if kind == "with a total" else None)
            yield

    calls = iter(range(10))

    def enqueue() -> Job:
        return long.using(key="one", on_conflict="replace").enqueue(next(calls))

    done = {"with a total": "after 2 of 10.", "without one": "after 2."}
    return enqueue, done.get(kind, "after a pause.")


def test_a_paused_job_that_is_replaced_leaves_what_was_done(
    cron: LazyCron, clock: ManualClock, paused: tuple[Callable[[], Job], str]
) -> None:
    """Once: what is replaced again before it runs was begun by nobody."""
    enqueue, done = paused
    job = enqueue()
    cron.run_due(budget=TWO_PIECES)
    clock.tick(MINUTE)
    assert cron.history() == []
    assert enqueue().id == job.id
    enqueue()

    [run] = cron.history()
    assert (run.status, run.message) == ("paused", f"Replaced by other arguments {done}")
    assert (run.task, run.job_id, run.key, run.attempt) == ("long", job.id, "one", 1)
    assert (run.scheduled_for, run.started_at) == (START, START)
    assert run.finished_at == clock.now()
    assert (run.ms, run.trigger) == (2000, "manual")
    assert job.id is not None
    found = cron.result(job.id)
    assert (found.status, found.message, found.error) == ("waiting", run.message, None)


def test_a_paused_job_that_is_discarded_leaves_what_was_done(
    cron: LazyCron, paused: tuple[Callable[[], Job], str]
) -> None:
    """Its result tells it."""
    enqueue, done = paused
    job = enqueue()
    cron.run_due(budget=TWO_PIECES)
    assert job.id is not None
    cron.discard_job(job.id)
    found = cron.result(job.id)
    assert (found.status, found.message) == ("paused", f"Discarded {done}")


def test_a_replacement_that_is_rolled_back_leaves_nothing(
    cron: LazyCron, clock: ManualClock, url: URL, engine: Engine
) -> None:
    """The history row belongs to the caller's transaction, as the new arguments do."""
    long = cron.task(name="long")(pieces(clock))
    long.using(key="one").enqueue()
    cron.run_due(budget=TWO_PIECES)
    callers = create_engine(url)
    with callers.connect() as connection:
        long.using(key="one", on_conflict="replace", connection=connection).enqueue()
        connection.rollback()
    assert statuses(engine) == []
    with callers.begin() as connection:
        long.using(key="one", on_conflict="replace", connection=connection).enqueue()
    callers.dispose()
    assert statuses(engine) == ["paused"]


def test_a_paused_task_that_is_forgotten_leaves_what_was_done(
    cron: LazyCron, clock: ManualClock, engine: Engine, make_cron: MakeCron
) -> None:
    """Be it by hand, two weeks after its code was last seen, or by losing its schedule."""
    for name in ("by hand", "unseen", "unscheduled"):
        cron.task(name=name, every="1h", first_run=0)(pieces(clock))
    cron.sync()
    for _ in range(3):
        cron.run_due(budget=TWO_PIECES)
    set_row(engine, "unseen", seen_at=START - timedelta(days=20))

    later = make_cron(engine)
    later.task(name="unscheduled")(pieces(clock))
    later.forget("by hand")
    later.sync()
    found = {run.task: (run.status, run.message, run.job_id) for run in later.history()}
    said = ("paused", "Forgotten after a pause.", None)
    assert found == dict.fromkeys(("by hand", "unseen", "unscheduled"), said)


def test_a_claim_that_has_ended_unrenewed_and_is_discarded_is_recorded_as_lost(
    cron: LazyCron, clock: ManualClock, engine: Engine
) -> None:
    """As its burial would have done."""
    job = cron.task(name="long")(pieces(clock)).enqueue()
    set_row(
        engine,
        "long",
        lock_token="dead",
        locked_by="host:1",
        attempts=1,
        last_run_at=START,
        last_trigger="loop",
        next_run_at=START + MINUTE,
    )
    clock.set(START + 2 * MINUTE)
    assert job.id is not None
    cron.discard_job(job.id)
    [run] = cron.history()
    assert (run.status, run.trigger, run.ms, run.attempt) == ("lost", "loop", None, 1)
    assert run.message == "Lost: Discarded after its lease had ended."


def test_what_was_not_begun_leaves_nothing(cron: LazyCron, clock: ManualClock) -> None:
    """Nothing was done of it."""
    job = cron.task(name="long")(pieces(clock)).enqueue()
    assert job.id is not None
    cron.discard_job(job.id)
    assert cron.history() == []
    assert cron.result(job.id).status == "unknown"


def pieces(clock: ManualClock) -> Callable[[], Iterator[None]]:
    """Return a generator that takes ten seconds."""

    def work() -> Iterator[None]:
        for _ in range(10):
            clock.tick()
            yield

    return work
