"""Clocks that differ, step and are set back: the server's is the reference, where there is one."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import URL

from lazycron import LazyCron
from lazycron.clock import EPOCH, Moments, Reference, SystemClock
from lazycron.model.settle import OnLost
from lazycron.testing import ManualClock
from lazycron.tick.rescheduling import Standing, after_setback
from tests.conftest import START, MakeCron, empty
from tests.scenes import claim_by_name, row_of, seconds, statuses

TEN_MINUTES = timedelta(minutes=10)
HOURS = timedelta(hours=5)


class Shifted(SystemClock):
    """A host's clock that is wrong by so much."""

    def __init__(self, shift: timedelta) -> None:
        self.shift = shift

    def now(self) -> datetime:
        return super().now() + self.shift


class Frozen(SystemClock):
    """A system's clock whose two hands are moved by hand."""

    def __init__(self, moment: datetime) -> None:
        self.wall = moment
        self.hand = 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.hand

    def pass_by(self, length: float) -> None:
        self.hand += length
        self.wall += seconds(length)


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> URL:
    """The databases with a clock of their own."""
    found: URL = request.getfixturevalue(request.param)
    empty(found)
    return found


@pytest.mark.parametrize("shift", [TEN_MINUTES, -TEN_MINUTES], ids=["ahead", "behind"])
def test_hosts_ten_minutes_apart_agree_about_what_is_due(
    server: URL, make_cron: MakeCron, shift: timedelta
) -> None:
    """A row made by one is due an hour later for the other as well, and is stamped alike."""
    right, wrong = make_cron(server, clock=SystemClock()), make_cron(server, clock=Shifted(shift))
    for cron in (wrong, right):
        cron.task(every="hour", name="hourly")(lambda: None)
        cron.sync()
    made = row_of(right, "hourly").created_at
    assert abs(made - SystemClock().now()) < seconds(5)
    assert wrong.run_due().runs == []
    wrong.run_now("hourly")
    ran = row_of(right, "hourly")
    assert ran.last_run_at is not None
    assert abs(ran.last_run_at - SystemClock().now()) < seconds(5)
    assert right.run_due().runs == []
    # Each host's state file speaks in that host's own time.
    for cron, off in ((right, timedelta(0)), (wrong, shift)):
        said = cron.state().next
        assert said is not None
        assert abs(said - off - ran.next_run_at) < seconds(1)
        report = cron.run_due()
        assert report.next_due == ran.next_run_at


def test_hosts_ten_minutes_apart_never_run_a_task_twice_at_once(
    server: URL, make_cron: MakeCron
) -> None:
    """The one ahead does not take the other's live lease for an expired one."""
    crons = [
        make_cron(server, clock=Shifted(shift)) for shift in (TEN_MINUTES, timedelta(0), -HOURS)
    ]
    inside, entered, go_on = [0], threading.Event(), threading.Event()
    most = []

    def chore() -> None:
        inside[0] += 1
        most.append(inside[0])
        entered.set()
        assert go_on.wait(10)
        inside[0] -= 1

    for cron in crons:
        cron.task(every="minute", lease="1m", name="chore")(chore)
        cron.sync()
    runner = threading.Thread(target=lambda: crons[1].run_now("chore"))
    runner.start()
    assert entered.wait(10)
    for cron in (crons[0], crons[2]):
        assert cron.run_due().runs == []
        assert cron.run_now("chore") is None
    go_on.set()
    runner.join(10)
    assert most == [1]
    assert statuses(crons[0]) == ["ok"]


@pytest.mark.parametrize("shift", [TEN_MINUTES, -TEN_MINUTES], ids=["ahead", "behind"])
def test_check_names_how_far_a_hosts_clock_is_off(
    server: URL, make_cron: MakeCron, shift: timedelta
) -> None:
    """Above a second, that is."""
    (problem,) = [
        one for one in make_cron(server, clock=Shifted(shift)).check() if one.name == "clock"
    ]
    way = "ahead of" if shift > timedelta(0) else "behind"
    assert problem.text.startswith(f"this host's clock is {600.0:.1f} s {way} the database server")
    fine = make_cron(server, clock=Shifted(timedelta(milliseconds=500)))
    assert not [one for one in fine.check() if one.name.startswith("clock")]


# The reference alone


def test_a_server_reference_is_carried_by_the_monotonic_clock() -> None:
    """A host's wall clock that jumps changes nothing, in either direction."""
    clock = Frozen(START)
    reference = Reference(clock, asks_server=True)
    assert reference.wants_sample
    reference.sample(START + TEN_MINUTES, clock.hand, clock.hand)
    assert reference.now() == START + TEN_MINUTES
    assert reference.offset == TEN_MINUTES
    assert reference.to_host(START + TEN_MINUTES) == START
    clock.pass_by(60)
    for jump in (HOURS, -2 * HOURS):
        clock.wall += jump
        assert reference.now() == START + TEN_MINUTES + seconds(60)
    # The host's two clocks have moved apart: perhaps it slept, so the server is asked again.
    assert reference.wants_sample


def test_of_the_last_samples_the_one_with_the_shortest_trip_counts() -> None:
    """A slow answer says little about when it was given."""
    clock = Frozen(START)
    reference = Reference(clock, asks_server=True)
    reference.sample(START + seconds(0.5), 1000.0, 1000.002)
    clock.pass_by(1)
    reference.sample(START + seconds(1.9), 1001.0, 1002.0)
    clock.pass_by(1)
    assert reference.now() == START + seconds(2.499)
    assert reference.last_step is None


@pytest.mark.parametrize("step", [HOURS, -HOURS], ids=["forward", "back"])
def test_a_step_of_the_servers_clock_is_adopted_at_once_and_remembered(step: timedelta) -> None:
    """For as long as a lease, burial is patient."""
    clock = Frozen(START)
    reference = Reference(clock, asks_server=True)
    reference.sample(START, 1000.0, 1000.0)
    clock.pass_by(10)
    reference.sample(START + seconds(10) + step, 1010.0, 1010.0)
    assert reference.now() == START + seconds(10) + step
    assert reference.last_step == step
    assert reference.stepped_within(timedelta(minutes=5))
    clock.pass_by(301)
    assert not reference.stepped_within(timedelta(minutes=5))


def test_clocks_that_drift_are_no_step() -> None:
    """Fifty parts in a million for a day are four seconds."""
    clock = Frozen(START)
    reference = Reference(clock, asks_server=True)
    reference.sample(START, 1000.0, 1000.0)
    clock.pass_by(86_400)
    reference.sample(START + seconds(86_404), clock.hand, clock.hand)
    assert reference.last_step is None


def test_a_clock_of_the_apps_own_is_the_reference_everywhere(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """With a test's clock, and with now=, the server is not asked."""
    cron = make_cron(url)
    cron.task(every="minute", name="minute")(lambda: None)
    cron.run_due()
    assert not cron._parts.reference.asks_server
    assert cron._parts.reference.now() == clock.now() == START
    real = make_cron(url, clock=SystemClock())
    real.task(every="minute", name="minute")(lambda: None)
    assert [run.task for run in real.run_due(now=START + seconds(60)).runs] == ["minute"]
    row = row_of(real, "minute")
    assert (row.last_run_at, row.next_run_at) == (START + seconds(60), START + seconds(120))
    (run,) = real.history()
    assert run.started_at == START + seconds(60)


# Jumps of hours


JUMPS = pytest.mark.parametrize("jump", [HOURS, -HOURS], ids=["forward", "back"])


def alive(cron: LazyCron, jump: Callable[[], None]) -> tuple[int, str]:
    """Run a task in whose middle the clock jumps and somebody else looks for lost runs."""

    def chore() -> None:
        jump()
        for _ in range(3):
            cron.run_due("url")

    cron.task(every="hour", lease="5m", name="chore")(chore)
    result = cron.run_now("chore")
    assert result is not None
    return result.ms or 0, result.status


@JUMPS
def test_a_jump_of_the_clock_buries_no_live_run(
    cron: LazyCron, clock: ManualClock, jump: timedelta
) -> None:
    """It is recorded as if nothing was, with a duration that is not negative."""
    ms, status = alive(cron, lambda: clock.jump(jump))
    assert (ms, status) == (0, "ok")
    assert statuses(cron) == ["ok"]
    (run,) = cron.history()
    assert run.ms is not None
    assert run.finished_at is not None
    assert run.finished_at >= run.started_at


@JUMPS
def test_a_jump_of_the_servers_clock_buries_no_live_run(
    server: URL, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    """Its holder has a third of a lease to renew by the new time."""
    cron = make_cron(server, clock=SystemClock())
    cron.sync()
    store = cron._parts.store
    ask, ask_clock = store.next_due, store.server_now
    shift = [timedelta(0)]

    def next_due(floor: datetime = EPOCH) -> tuple[datetime | None, datetime | None]:
        following, now = ask(floor)
        return following, now and now + shift[0]

    def server_now() -> datetime | None:
        now = ask_clock()
        return now and now + shift[0]

    monkeypatch.setattr(store, "next_due", next_due)
    monkeypatch.setattr(store, "server_now", server_now)
    _, status = alive(cron, lambda: shift.__setitem__(0, jump))
    assert status == "ok"
    assert statuses(cron) == ["ok"]
    assert cron._parts.reference.last_step is not None
    (problem,) = [one for one in cron.check() if one.name == "clock_step"]
    way = "forward" if jump > timedelta(0) else "back"
    assert problem.text.startswith(f"the database server's clock was set {way} by 1800")


@pytest.mark.parametrize("every", ["minute", "hour", "day"])
def test_nothing_sleeps_longer_than_its_schedule_after_the_clock_was_set_back(
    cron: LazyCron, clock: ManualClock, every: str
) -> None:
    """Run while the clock was years ahead, a task is due one interval after it was put right."""
    task = cron.task(every=every, name="chore")(lambda: None)
    cron.run_due()
    clock.jump(timedelta(days=1000))
    assert len(cron.run_due().runs) == 1
    clock.jump(timedelta(days=-1000))
    clock.tick("61s")
    cron.run_due()
    assert task.schedule is not None
    interval = task.schedule.next_after(START) - START
    assert row_of(cron, "chore").next_run_at <= clock.now() + interval
    assert {one.name for one in cron.check()} >= {"clock_step", "clock_set_back"}
    clock.tick(interval)
    assert len(cron.run_due().runs) == 1


def test_a_crontab_row_from_the_future_waits_for_its_next_regular_time(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Not for the regular time after the one that never came."""
    cron.task(crontab="0 3 * * *", name="nightly")(lambda: None)
    cron.run_due()
    clock.jump(timedelta(days=1000))
    cron.run_due()
    clock.jump(timedelta(days=-1000))
    clock.tick("61s")
    cron.run_due()
    assert row_of(cron, "nightly").next_run_at == START + timedelta(hours=3)


def test_a_claim_from_the_future_ends_a_lease_from_now(cron: LazyCron, clock: ManualClock) -> None:
    """Its process died while the clock was ahead; nobody waits for that moment to come again."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.run_due()
    clock.jump(HOURS)
    claim_by_name(cron, "hourly", clock.now())
    clock.jump(-HOURS)
    clock.tick("61s")
    cron.run_due()
    assert row_of(cron, "hourly").next_run_at == clock.now() + seconds(300)
    clock.tick("5m")
    for _ in range(2):
        cron.run_due()
        clock.tick("0.5s")
    assert statuses(cron)[0] == "lost"


@pytest.mark.parametrize(("on_lost", "due"), [("rerun", 0), ("skip", 3600)])
def test_a_run_lost_while_the_clock_was_ahead_is_not_put_off_until_then(
    cron: LazyCron, clock: ManualClock, on_lost: OnLost, due: int
) -> None:
    """Its row bears the stamp of its claim, from before the clock went wrong."""
    cron.task(every="hour", name="hourly", on_lost=on_lost)(lambda: None)
    cron.run_due()
    claim_by_name(cron, "hourly", clock.now())
    clock.tick("1m")
    clock.jump(HOURS)
    for _ in range(2):
        cron._parts.runner.burial.look(clock.now(), EPOCH)
        clock.tick("0.5s")
    assert statuses(cron) == ["lost"]
    clock.jump(-HOURS)
    clock.tick("61s")
    cron._parts.sync.bring_in(clock.now())
    row = row_of(cron, "hourly")
    assert row.next_run_at == clock.now() + seconds(due)
    # A run that is repeated is worked off for the same due time: its effects are keyed by that.
    assert row.scheduled_for == (START if on_lost == "rerun" else row.next_run_at)
    assert cron._parts.facts.set_back_at == clock.now()


def test_a_row_that_waits_after_a_loss_is_not_mended(cron: LazyCron, clock: ManualClock) -> None:
    """It waits as long as it should from its burial on."""
    task = cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    for _ in range(2):
        claim_by_name(cron, "hourly", clock.now())
        cron.release("hourly", force=True)
    row = row_of(cron, "hourly")
    assert row.next_run_at == clock.now() + timedelta(hours=2)
    standing = Standing(row, task.schedule)
    assert after_setback(standing, task.policy, clock.now(), seconds(300)) is None


def test_a_row_that_is_as_it_should_be_is_not_mended(cron: LazyCron, clock: ManualClock) -> None:
    """A second ahead is what clocks are; a failed row keeps its wait."""
    task = cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    standing = Standing(row_of(cron, "hourly"), task.schedule)
    for early in (timedelta(0), seconds(1)):
        assert after_setback(standing, task.policy, clock.now() - early, seconds(300)) is None
    place = after_setback(standing, task.policy, clock.now() - seconds(2), seconds(300))
    assert place is not None
    assert place.next_run_at == START + timedelta(hours=1) - seconds(2)


def test_moments_that_were_handed_in_are_taken_throughout(clock: ManualClock) -> None:
    """The reference is asked only where no moment was given."""
    reference = Reference(clock, asks_server=False)
    assert Moments(reference).now() == START
    assert Moments(reference, START + HOURS).now() == START + HOURS
