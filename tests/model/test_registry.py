"""The tasks a process knows."""

import threading
from datetime import UTC, datetime

import pytest

from lazycron.errors import DuplicateTaskError, UnknownTaskError
from lazycron.model.registry import Registry
from lazycron.model.retry import Retry
from lazycron.model.settle import Claim
from lazycron.model.task import Task, make_task
from lazycron.schedules.shaped import Every, Schedule

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def work() -> None:
    """Work."""


def task(name: str, schedule: Schedule | None = None, retry: Retry | None = None) -> Task:
    """Make a task of this name."""
    return make_task(
        work,
        schedule=schedule,
        name=name,
        label=None,
        explanation=None,
        first_run=None,
        enabled=True,
        retry=retry or Retry(),
        lease=None,
        on_lost="rerun",
        timeout=None,
    )


def claim(name: str, key: str | None, schedule: str) -> Claim:
    """Return a claim of a row."""
    return Claim(
        id=1,
        name=name,
        key=key,
        token="0" * 32,
        schedule=schedule,
        scheduled_for=NOW,
        started_at=NOW,
        lease_until=NOW,
        trigger="manual",
        attempt=1,
        failures=0,
        losses=0,
    )


def test_a_task_is_found_by_its_name() -> None:
    """And by nothing else."""
    registry, one = Registry(), task("one")
    registry.add(one)
    assert registry["one"] is registry.get("one") is one
    assert "one" in registry
    assert list(registry) == [one]
    assert registry.get("two") is None
    assert "two" not in registry


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    """In order; a KeyError too."""
    registry = Registry()
    with pytest.raises(UnknownTaskError, match="no task is named 'x'; known are: none"):
        registry["x"]
    for name in ("b", "a"):
        registry.add(task(name))
    with pytest.raises(KeyError) as caught:
        registry["x"]
    assert str(caught.value) == "no task is named 'x'; known are: a, b"


def test_a_name_is_registered_once() -> None:
    """The error names both places and says what to do; the first one stays."""
    registry, first = Registry(), task("one")
    registry.add(first)
    with pytest.raises(DuplicateTaskError) as caught:
        registry.add(task("one"))
    place = f"{work.__module__}.work"
    expected = f"task name 'one' is taken by {place}; give {place} another name=. A task is"
    assert str(caught.value) == (
        f"{expected} registered once, where its code is imported; a request enqueues a job of it "
        "instead"
    )
    assert list(registry) == [first]


def test_the_version_changes_with_every_registration() -> None:
    """So that a look at the rows is due."""
    registry = Registry()
    versions = [registry.version]
    for name in ("a", "b"):
        registry.add(task(name))
        versions.append(registry.version)
    assert len(set(versions)) == 3


def test_a_task_may_be_registered_while_another_thread_goes_through_them() -> None:
    """Whoever iterates sees the tasks there were."""
    registry = Registry()
    registry.add(task("a"))
    seen = []
    for one in registry:
        registry.add(task("b"))
        seen.append(one.name)
    assert seen == ["a"]


def test_of_many_threads_that_register_one_name_one_wins() -> None:
    """The others are told."""
    registry, barrier, refused = Registry(), threading.Barrier(8), []

    def register() -> None:
        one = task("one")
        barrier.wait()
        try:
            registry.add(one)
        except DuplicateTaskError as error:
            refused.append(error)

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(refused), registry.version) == (7, 1)


def test_a_run_is_settled_by_the_schedule_its_row_was_claimed_with() -> None:
    """An operator's interval, say."""
    registry = Registry()
    registry.add(task("one", Every("1h")))
    assert registry.policy_of(claim("one", "", "every 5m")).schedule == Every("5m")
    assert registry.policy_of(claim("one", "", "every 1h")).schedule == Every("1h")


def test_a_row_whose_schedule_cannot_be_read_goes_by_the_code() -> None:
    """A later version's row, or a hand-made one."""
    registry = Registry()
    registry.add(task("one", Every("1h")))
    assert registry.policy_of(claim("one", "", "lunar 3")).schedule == Every("1h")


def test_a_job_has_no_schedule_but_its_tasks_retry() -> None:
    """Also where the task is scheduled."""
    registry, retry = Registry(), Retry(limit=2)
    registry.add(task("one", Every("1h"), retry))
    policy = registry.policy_of(claim("one", None, ""))
    assert (policy.schedule, policy.retry) == (None, retry)
