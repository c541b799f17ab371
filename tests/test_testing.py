"""The clock that is a variable, and ticks along it."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lazycron import LazyCron
from lazycron.errors import ConfigurationError, LazyCronError, ScheduleError
from lazycron.testing import ManualClock, drain, repeat, tick_through
from tests.conftest import START, MakeCron


def test_the_clock_stands_still_until_it_is_told() -> None:
    """Both readings."""
    clock = ManualClock(START)
    assert clock.now() == clock.now() == START
    assert clock.monotonic() == clock.monotonic()


def test_the_clock_takes_what_now_takes() -> None:
    """An aware datetime of any zone, or whole epoch seconds; nothing naive."""
    assert ManualClock(1767225600).now() == START
    assert ManualClock(1767225600).now().tzinfo is UTC
    with pytest.raises(ValueError, match="no time zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001


def test_time_passes_by_a_second_or_any_duration() -> None:
    """On both clocks."""
    clock = ManualClock(START)
    before = clock.monotonic()
    clock.tick()
    clock.tick("1m30s")
    clock.tick(0.5)
    assert clock.now() == START + timedelta(seconds=91.5)
    assert clock.monotonic() - before == 91.5


def test_time_does_not_pass_backwards() -> None:
    """A negative duration is none."""
    clock = ManualClock(START)
    with pytest.raises(ScheduleError, match=r"^tick -1 is not accepted"):
        clock.tick(-1)
    assert clock.now() == START


def test_setting_the_clock_ahead_lets_time_pass() -> None:
    """On both clocks."""
    clock = ManualClock(START)
    before = clock.monotonic()
    clock.set(START + timedelta(hours=1))
    assert clock.monotonic() - before == 3600


def test_setting_the_clock_back_leaves_the_monotonic_clock() -> None:
    """Which never goes back."""
    clock = ManualClock(START)
    before = clock.monotonic()
    clock.set(START - timedelta(hours=1))
    assert clock.now() == START - timedelta(hours=1)
    assert clock.monotonic() == before


def test_a_jump_moves_the_wall_clock_alone() -> None:
    """As a time server's correction does, in either direction."""
    clock = ManualClock(START)
    before = clock.monotonic()
    clock.jump(timedelta(hours=2))
    clock.jump(timedelta(hours=-1))
    assert clock.now() == START + timedelta(hours=1)
    assert clock.monotonic() == before


def test_ticks_of_several_threads_all_count() -> None:
    """None is lost."""
    clock = ManualClock(START)
    barrier = threading.Barrier(4)

    def tick() -> None:
        barrier.wait()
        for _ in range(250):
            clock.tick()

    threads = [threading.Thread(target=tick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == START + timedelta(seconds=1000)


@pytest.fixture
def local(make_cron: MakeCron, tmp_path: Path) -> LazyCron:
    """A LazyCron on an SQLite file with the manual clock."""
    return make_cron(f"sqlite:///{tmp_path}/app.db")


def test_ticking_through_includes_both_ends(local: LazyCron, clock: ManualClock) -> None:
    """From midnight to three past, every minute: four ticks, and the clock is there."""
    seen: list[datetime] = []
    local.task(every="1m", first_run=0, name="look")(lambda: seen.append(clock.now()))
    reports = tick_through(local, START, START + timedelta(minutes=3), "1m")
    assert len(reports) == 4
    # The first tick makes the row, the second runs it.
    assert seen == [START + timedelta(minutes=n) for n in (1, 2, 3)]
    assert clock.now() == START + timedelta(minutes=3)


def test_ticking_through_a_step_that_does_not_fit_stops_before_the_end(local: LazyCron) -> None:
    """At 0, 2 and 4 of 5 minutes."""
    assert len(tick_through(local, START, START + timedelta(minutes=5), 120)) == 3


def test_ticking_through_nothing_ticks_once(local: LazyCron) -> None:
    """At its start; and not at all where the end comes first."""
    assert len(tick_through(local, START, START, "1s")) == 1
    assert tick_through(local, START, START - timedelta(seconds=1), "1s") == []


def test_a_step_of_nothing_is_refused(local: LazyCron) -> None:
    """It would never end."""
    with pytest.raises(ScheduleError, match=r"^step 0 is not accepted"):
        tick_through(local, START, START, 0)


def test_ticking_through_with_the_systems_clock_hands_each_tick_its_moment(
    make_cron: MakeCron, tmp_path: Path
) -> None:
    """An app under test need not be built for the manual clock."""
    cron = make_cron(f"sqlite:///{tmp_path}/app.db", clock=None)
    cron.task(every="1h", name="hourly")(lambda: None)
    reports = tick_through(cron, START, START + timedelta(hours=3), "1h")
    assert [len(report.runs) for report in reports] == [0, 1, 1, 1]


# drain and repeat: see test_once.py too


def test_drain_ticks_until_nothing_is_due(local: LazyCron, clock: ManualClock) -> None:
    """What jobs enqueue meanwhile included; what is due later waits."""
    ran = []

    @local.task
    def chain(n: int) -> None:
        ran.append(n)
        if n:
            chain.enqueue(n - 1)

    chain.enqueue(5)
    chain.using(delay="1h").enqueue(0)
    reports = drain(local)
    assert ran == [5, 4, 3, 2, 1, 0]
    assert sum(len(report.runs) for report in reports) == 6
    assert clock.now() - START < timedelta(seconds=1)
    assert len(local.jobs("waiting")) == 1
    assert [report.runs for report in drain(local)] == [[]]


def test_drain_ends_though_something_is_always_due(local: LazyCron) -> None:
    """With an error that says so."""

    @local.task
    def again() -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(LazyCronError, match="still due after 7 ticks"):
        drain(local, most=7)


def test_repeat_takes_the_waiting_job_and_leaves_none(local: LazyCron) -> None:
    """Or enqueues one; a recurring task takes no arguments."""
    got: list[object] = []
    local.task(name="work")(got.append)
    local.enqueue("work", "waiting")
    assert repeat(local, "work", lambda: len(got)) == [1, 2, 4, 6]
    assert set(got) == {"waiting"}
    repeat(local, "work", lambda: None, "given")
    assert set(got) == {"waiting", "given"}
    assert local.jobs() == []
    local.task(every="1h", name="hourly")(lambda: None)
    with pytest.raises(ConfigurationError, match="takes no arguments"):
        repeat(local, "hourly", lambda: None, 1)


def test_repeat_says_that_a_run_did_not_end_well(local: LazyCron) -> None:
    """There is nothing to compare then."""
    local.task(name="broken")(lambda: 1 / 0)
    with pytest.raises(LazyCronError, match="broken was to be run, but failed: ZeroDivision"):
        repeat(local, "broken", lambda: None)
