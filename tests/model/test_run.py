"""What a task is handed about its own run, and Postpone."""

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lazycron.errors import ArgumentsError, LeaseLostError, ScheduleError
from lazycron.model.run import Callbacks, Postpone, Run
from lazycron.model.settle import Claim

DUE = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CLAIM = Claim(
    id=7,
    name="nightly",
    key="",
    token="0" * 32,
    schedule="every 5m",
    scheduled_for=DUE,
    started_at=DUE + timedelta(seconds=1),
    lease_until=DUE + timedelta(minutes=5),
    trigger="url",
    attempt=2,
    failures=1,
    losses=0,
)


class World:
    """What a run does to it."""

    def __init__(self) -> None:
        self.saved: list[tuple[str, int | None, int | None]] = []
        self.keeps = True
        self.stops = False
        self.installation = "here"

    def save(self, text: str, done: int | None, total: int | None) -> bool:
        """Keep a checkpoint, if the row is still ours."""
        self.saved.append((text, done, total))
        return self.keeps

    def run(self, **changes: Any) -> Run:
        """Hand a run out."""
        callbacks = Callbacks(
            save=self.save, stopping=lambda: self.stops, identify=lambda: self.installation
        )
        return Run(replace(CLAIM, **changes), callbacks, DUE + timedelta(minutes=1))


def test_a_run_says_what_is_being_worked_off() -> None:
    """Its row's id, task, attempt, trigger, due time and deadline."""
    run = World().run()
    assert (run.id, run.task, run.attempt, run.trigger) == (7, "nightly", 2, "url")
    assert (run.scheduled_for, run.deadline) == (DUE, DUE + timedelta(minutes=1))


# progress


def test_a_checkpoint_is_stored_as_json_and_becomes_the_progress() -> None:
    """With how much is done of how much."""
    world = World()
    run = world.run()
    assert run.progress is None
    run.checkpoint({"page": 3}, done=3, total=10)
    assert world.saved == [('{"page":3}', 3, 10)]
    assert run.progress == {"page": 3}


def test_a_later_attempt_finds_the_last_checkpoint() -> None:
    """As the row has it."""
    assert World().run(progress='{"page":3}').progress == {"page": 3}


def test_the_progress_is_what_was_stored_not_what_was_changed_since() -> None:
    """A list that goes on growing is not stored by growing."""
    run, pages = World().run(), [1]
    run.checkpoint(pages)
    pages.append(2)
    run.progress.append(3)
    assert run.progress == [1]


def test_an_async_checkpoint_does_the_same() -> None:
    """From a coroutine."""
    world = World()
    run = world.run()
    asyncio.run(run.acheckpoint("half", done=1, total=2))
    assert (world.saved, run.progress) == ([('"half"', 1, 2)], "half")


def test_a_checkpoint_on_a_row_that_is_somebody_elses_ends_the_run() -> None:
    """The progress stays what it was."""
    world = World()
    world.keeps = False
    run = world.run(progress="1")
    with pytest.raises(LeaseLostError, match="lease has ended"):
        run.checkpoint(2)
    assert run.progress == 1


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, {1: 2}, {"a": b"x"}])
def test_a_checkpoint_that_would_come_back_changed_is_refused_at_the_call(value: object) -> None:
    """Nothing is stored."""
    world = World()
    with pytest.raises(ArgumentsError, match="a checkpoint may be text, numbers"):
        world.run().checkpoint(value)
    assert world.saved == []


def test_a_checkpoint_of_more_than_64_kib_is_refused_at_the_call() -> None:
    """The error says how large it was."""
    world = World()
    world.run().checkpoint("x" * 65_534)
    with pytest.raises(ArgumentsError, match="takes 65537 bytes as JSON, more than 65536"):
        world.run().checkpoint("x" * 65_535)
    assert len(world.saved) == 1


def test_a_row_whose_progress_is_no_json_is_its_tasks_failure_alone() -> None:
    """Making the run raises nothing; asking for its progress does."""
    run = World().run(progress="{half")
    with pytest.raises(ValueError, match="Expecting"):
        _ = run.progress


# stopping


def test_a_run_is_told_when_to_stop() -> None:
    """By those who know."""
    world = World()
    run = world.run()
    assert not run.should_stop()
    world.stops = True
    assert run.should_stop()


# the key for payment services


def test_the_idempotency_key_is_the_same_for_every_attempt_of_one_due_time() -> None:
    """32 hexadecimal digits, fixed for ever by what they are made of."""
    keys = {World().run(attempt=n, token=f"{n:032}").idempotency_key for n in (1, 2, 3)}
    assert keys == {"3f83af1378ac9b236c10a7da4db3882b"}
    assert re.fullmatch("[0-9a-f]{32}", keys.pop())


def test_the_idempotency_key_differs_for_all_else() -> None:
    """Installation, task, row, due time."""
    other = World()
    other.installation = "there"
    keys = {
        World().run().idempotency_key,
        other.run().idempotency_key,
        World().run(name="other").idempotency_key,
        World().run(id=8).idempotency_key,
        World().run(scheduled_for=DUE + timedelta(microseconds=1)).idempotency_key,
        World().run(name="nightly\x1f7", id=7).idempotency_key,
    }
    assert len(keys) == 6


# Postpone


@pytest.mark.parametrize(
    ("delay", "seconds"), [("10m", 600), (0, 0), ("0s", 0), (timedelta(days=1), 86400)]
)
def test_postpone_takes_any_duration_zero_included(delay: Any, seconds: int) -> None:  # noqa: ANN401 - a duration
    """Zero means at once."""
    assert Postpone(delay).delay == timedelta(seconds=seconds)


@pytest.mark.parametrize("delay", [-1, "soonish", float("nan"), True, None])
def test_a_delay_that_cannot_be_read_is_refused(delay: Any) -> None:  # noqa: ANN401 - wrong ones
    """The error names Postpone and the value."""
    with pytest.raises(ScheduleError) as caught:
        Postpone(delay)
    assert str(caught.value).startswith(f"Postpone {delay!r} is not accepted")


def test_a_reason_is_a_text_for_people() -> None:
    """Whatever was passed."""
    assert Postpone(1, reason="the shop is closed").reason == "the shop is closed"
    reason: Any = 404
    assert Postpone(1, reason=reason).reason == "404"
    assert str(Postpone(1)) == "postponed"
