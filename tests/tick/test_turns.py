"""Whose turn the first run of a tick is: no kind of row starves the other, in any process."""

from collections.abc import Callable

import pytest
from sqlalchemy import URL

from lazycron import Budget, LazyCron
from lazycron.testing import ManualClock
from tests.conftest import MakeCron
from tests.watching import watch

BUDGETS = [Budget(3, 20), Budget(tasks=1)]


@pytest.fixture(params=["one process", "a process for each tick"])
def ticking(
    request: pytest.FixtureRequest, url: URL, make_cron: MakeCron, clock: ManualClock
) -> Callable[[float, int], tuple[LazyCron, list[str], Callable[[Budget], None]]]:
    """Make a regular task that takes so long, due at each visit, and so many jobs."""

    def start(takes: float, jobs: int) -> tuple[LazyCron, list[str], Callable[[Budget], None]]:
        ran: list[str] = []

        def regular() -> None:
            ran.append("regular")
            clock.tick(takes)

        def process() -> LazyCron:
            cron = make_cron(url)
            cron.task(every="20s", name="regular")(regular)
            cron.task(name="job")(lambda: ran.append("job"))
            return cron

        cron = process()
        cron.sync()
        for _ in range(jobs):
            cron.enqueue("job")

        def visit(budget: Budget) -> None:
            clock.tick(30)
            (cron if request.param == "one process" else process()).run_due(budget=budget)

        return cron, ran, visit

    return start


Ticking = Callable[[float, int], tuple[LazyCron, list[str], Callable[[Budget], None]]]


@pytest.mark.parametrize("budget", BUDGETS, ids=["three", "one"])
def test_a_slow_regular_task_starves_no_job(ticking: Ticking, budget: Budget) -> None:
    """It uses up every tick that it begins; every second one begins with the oldest row of all."""
    _, ran, visit = ticking(25, 5)
    for _ in range(10):
        visit(budget)
    assert ran.count("job") == 5
    assert ran.count("regular") >= 5


@pytest.mark.parametrize("budget", BUDGETS, ids=["three", "one"])
def test_a_flood_of_jobs_starves_no_regular_task(ticking: Ticking, budget: Budget) -> None:
    """A quick one that leaves room for jobs has the first run whenever it is due."""
    _, ran, visit = ticking(0, 40)
    for _ in range(6):
        visit(budget)
    assert ran.count("regular") == (6 if budget.tasks == 3 else 3)
    assert ran.count("job") == (12 if budget.tasks == 3 else 3)


def test_whose_turn_it_is_costs_nothing_where_no_job_is_due(
    cron: LazyCron, clock: ManualClock
) -> None:
    """It is written down only where a regular task has used up a tick before due jobs."""
    cron.task(every="10s", name="regular")(lambda: clock.tick(25))
    cron.task(name="job")(lambda: None)
    cron.sync()
    clock.tick(10)
    with watch(cron._parts.store.engine) as found:
        cron.run_due(budget=Budget(tasks=1))
    assert not [one for one in found.statements if "lazycron_setting SET" in one]
    assert cron._parts.store.shared.setting("turn") is None
