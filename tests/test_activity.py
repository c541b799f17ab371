"""What a process is busy with: ticks to wait for, runs that hang."""

import threading
from datetime import timedelta

from lazycron.activity import Activity
from lazycron.testing import ManualClock
from tests.conftest import START

BUDGET = timedelta(seconds=20)


def test_a_tick_is_waited_for() -> None:
    """As long as it takes, and no longer than was said."""
    activity = Activity(ManualClock(START).monotonic)
    entered, go_on = threading.Event(), threading.Event()

    def tick() -> None:
        with activity.in_a_tick():
            entered.set()
            go_on.wait(10)

    assert activity.wait_idle(0)
    thread = threading.Thread(target=tick)
    thread.start()
    assert entered.wait(10)
    assert activity.is_busy
    assert not activity.wait_idle(0)
    go_on.set()
    assert activity.wait_idle(10)
    assert not activity.is_busy
    thread.join()


def test_a_thread_hangs_once_its_run_has_taken_longer_than_the_budget(clock: ManualClock) -> None:
    """A thread that is in no run does not."""
    activity = Activity(clock.monotonic)
    me = threading.get_ident()
    assert not activity.is_hanging(None, BUDGET)
    assert not activity.is_hanging(me, BUDGET)
    with activity.in_a_run():
        clock.tick("20s")
        assert not activity.is_hanging(me, BUDGET)
        clock.tick(1)
        assert activity.is_hanging(me, BUDGET)
    assert not activity.is_hanging(me, BUDGET)


def test_a_run_within_a_run_counts_from_the_outer_ones_beginning(clock: ManualClock) -> None:
    """And does not end it."""
    activity = Activity(clock.monotonic)
    me = threading.get_ident()
    with activity.in_a_run():
        clock.tick("21s")
        with activity.in_a_run():
            assert activity.is_hanging(me, BUDGET)
        assert activity.is_hanging(me, BUDGET)
    assert not activity.is_hanging(me, BUDGET)
