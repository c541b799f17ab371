"""What a process last saw, and what it is busy with: ticks to wait for, runs that hang."""

import threading
from datetime import UTC, datetime, timedelta

from lazycron.clock import EPOCH
from lazycron.process import Activity, Facts
from lazycron.testing import ManualClock
from tests.conftest import START

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUDGET = timedelta(seconds=20)


def test_a_database_that_could_not_be_asked_is_left_alone_for_half_a_minute() -> None:
    """Attempts are spaced out; the outage began with the first."""
    facts = Facts()
    assert facts.may_ask(1000.0)
    facts.out_of_order("OperationalError", NOW, 1000.0)
    assert not facts.may_ask(1029.9)
    assert facts.may_ask(1030.0)
    facts.out_of_order("OperationalError", NOW + timedelta(seconds=30), 1030.0)
    assert facts.outage is not None
    assert (facts.outage.since, facts.outage.error) == (NOW, "OperationalError")
    assert not facts.may_ask(1059.9)


def test_an_outage_that_is_over_holds_nobody_back() -> None:
    """The next one is a new one."""
    facts = Facts()
    facts.out_of_order("OperationalError", NOW, 1000.0)
    facts.outage = None
    assert facts.may_ask(1000.0)
    facts.out_of_order("TimeoutError", NOW + timedelta(hours=1), 4600.0)
    assert facts.outage is not None
    assert facts.outage.since == NOW + timedelta(hours=1)


def test_the_floor_is_forgotten_once_a_minute() -> None:
    """However often it is raised in between: rows may have become known."""
    facts = Facts()
    assert facts.floor_at(1000.0) == EPOCH
    facts.raise_floor(NOW, 1000.0)
    facts.raise_floor(NOW + timedelta(seconds=50), 1050.0)
    assert facts.floor_at(1059.9) == NOW + timedelta(seconds=50)
    assert facts.floor_at(1060.0) == EPOCH
    facts.raise_floor(NOW, 1060.0)
    assert facts.floor_at(1119.9) == NOW


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


def test_the_last_one_out_closes_what_was_closed_before() -> None:
    """A tick that outlives the drain opens connections again, and so does a renewal beside it."""
    activity, closed = Activity(ManualClock(START).monotonic), list[str]()
    with activity.in_a_tick(), activity.in_use():
        activity.close_behind(lambda: closed.append("closed"))
        assert closed == []
    assert closed == ["closed"]
    with activity.in_use():
        pass
    assert closed == ["closed", "closed"]
