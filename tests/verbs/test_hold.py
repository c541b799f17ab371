"""A disabled task without a schedule: its jobs wait until it is enabled."""

import pytest
from sqlalchemy import URL

from lazycron import LazyCron
from lazycron.testing import ManualClock, drain
from tests.conftest import MakeCron


@pytest.fixture
def done(cron: LazyCron) -> list[int]:
    """What the task `work` was run with."""
    found: list[int] = []
    cron.task(name="work")(found.append)
    cron.sync()
    return found


def test_jobs_of_a_disabled_task_wait_and_go_on_when_it_is_enabled(
    cron: LazyCron, done: list[int], url: URL, make_cron: MakeCron
) -> None:
    """Those that were there and those that come, from another process too."""
    other = make_cron(url)
    other.task(name="work")(done.append)
    cron.enqueue("work", 1)
    cron.disable("work")
    other.enqueue("work", 2)
    other.using("work", key="k").enqueue(3)
    assert cron.run_due().runs == other.run_due().runs == []
    for one in (cron, other):
        found = one.why("work")
        assert found.reason == "disabled"
        assert "`lazycron enable work`" in found.text
        assert "3 waiting" in found.text
        [status] = one.overview()
        assert not status.enabled
        assert not status.due
    cron.enable("work")
    drain(other)
    assert sorted(done) == [1, 2, 3]
    [status] = cron.overview()
    assert status.enabled
    cron.enqueue("work", 4)
    drain(cron)
    assert done[-1] == 4


def test_one_held_job_can_be_run_by_hand(cron: LazyCron, done: list[int]) -> None:
    """The oldest; the others go on waiting."""
    cron.disable("work")
    cron.enqueue("work", 1)
    cron.enqueue("work", 2)
    result = cron.run_now("work")
    assert result is not None
    drain(cron)
    assert done == [1]


def test_a_dead_job_that_is_started_again_is_held_too(cron: LazyCron, clock: ManualClock) -> None:
    """And a dead one that nobody starts again stays dead when its task is enabled."""
    done: list[int] = []

    def fail(number: int) -> None:
        if not done:
            raise ValueError(number)

    cron.task(name="fails", retry=None)(fail)
    jobs = [cron.enqueue("fails", number).id for number in (1, 2)]
    while cron.jobs("waiting"):
        drain(cron)
        clock.tick("1h")
    done.append(0)
    cron.disable("fails")
    assert jobs[0] is not None
    cron.retry_job(jobs[0])
    drain(cron)
    assert [job.id for job in cron.jobs("waiting")] == [jobs[0]]
    cron.enable("fails")
    drain(cron)
    assert [(job.id, job.status) for job in cron.jobs()] == [(jobs[1], "dead")]
