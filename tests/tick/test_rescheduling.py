"""Where a changed schedule, and a clock that was put right, bring a row: one rule for each."""

import random
from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from lazycron import Crontab, Every, LazyCron, Postpone
from lazycron.testing import ManualClock
from tests.conftest import START, MakeCron
from tests.scenes import claim_by_name, row_of, statuses

HOUR = timedelta(hours=1)


def at(text: str) -> datetime:
    """Read a moment of January 2026 in UTC, or of the month that is named."""
    full = text if text.count("-") else f"01-{text}"
    return datetime.fromisoformat(f"2026-{full}").replace(tzinfo=START.tzinfo)


@pytest.fixture
def serve(url: URL, make_cron: MakeCron, tmp_path: Path) -> Callable[..., LazyCron]:
    """Start a process whose code says so about the task `chore`."""

    def start(function: Callable[..., Any] = lambda: None, **options: Any) -> LazyCron:
        cron = make_cron(url, state_file=tmp_path / "state.json")
        cron.task(**({"name": "chore"} | options))(function)
        return cron

    return start


Serve = Callable[..., LazyCron]


def ran(cron: LazyCron) -> list[str]:
    """Tick; return what its runs came to."""
    return [run.status for run in cron.run_due("url").runs]


CHANGES = [
    # the code before, when it ran, when and with what it is deployed, what is due then, what next
    (
        "an hour later",
        {"crontab": "0 3 * * *"},
        "01 03:00",
        "01 12:00",
        {"crontab": "0 4 * * *"},
        "02 04:00",
    ),
    (
        "an hour later on that day",
        {"crontab": "0 9 * * mon"},
        "05 09:00",
        "10 12:00",
        {"crontab": "0 10 * * mon"},
        "12 10:00",
    ),
    (
        "a day later",
        {"crontab": "0 3 1 * *"},
        "01 03:00",
        "20 12:00",
        {"crontab": "0 3 2 * *"},
        "02-02 03:00",
    ),
    (
        "a zone whose time has passed",
        {"crontab": "0 3 * * *"},
        "01 03:00",
        "01 12:00",
        {"crontab": "0 3 * * *", "tz": "America/New_York"},
        "02 08:00",
    ),
    (
        "a zone whose time is to come",
        {"crontab": "0 3 * * *"},
        "01 03:00",
        "01 12:00",
        {"crontab": "0 3 * * *", "tz": "Asia/Tokyo"},
        "01 18:00",
    ),
    (
        "a window that has passed",
        {"crontab": "0 3 * * *"},
        "01 03:00",
        "01 12:00",
        {"crontab": "0 3 * * *", "between": "05:00-06:00"},
        "02 05:00",
    ),
    (
        "daily to monthly",
        {"crontab": "0 3 * * *"},
        "01 03:00",
        "01 12:00",
        {"crontab": "0 3 1 * *"},
        "02-01 03:00",
    ),
    (
        "monthly to daily",
        {"crontab": "0 3 1 * *"},
        "01 03:00",
        "20 12:00",
        {"crontab": "0 3 * * *"},
        "21 03:00",
    ),
    (
        "with missed=skip",
        {"crontab": "0 3 * * *"},
        "01 03:00",
        "01 12:00",
        {"crontab": "0 4 * * *", "missed": "skip"},
        "02 04:00",
    ),
    (
        "an interval to a crontab",
        {"every": "1h"},
        "01 01:00",
        "01 01:20",
        {"crontab": "0 9 * * *"},
        "01 09:00",
    ),
    (
        "a crontab to an interval",
        {"crontab": "0 3 * * *"},
        "01 03:00",
        "01 12:00",
        {"every": "1d"},
        "02 03:00",
    ),
    (
        "an interval that has passed",
        {"crontab": "0 3 * * *"},
        "01 03:00",
        "01 12:00",
        {"every": "1h"},
        "01 12:00",
    ),
    ("a longer interval", {"every": "1h"}, "01 01:00", "01 01:20", {"every": "5h"}, "01 06:00"),
    (
        "never run, to come",
        {"crontab": "0 3 * * *"},
        None,
        "01 01:00",
        {"crontab": "0 4 * * *"},
        "01 04:00",
    ),
    (
        "never run, passed",
        {"crontab": "0 3 * * *"},
        None,
        "01 01:00",
        {"crontab": "30 0 * * *"},
        "02 00:30",
    ),
    (
        "another spelling",
        {"crontab": "0 3 * * *"},
        "01 03:00",
        "01 12:00",
        {"crontab": "00 03 * * *"},
        "02 03:00",
    ),
]


@pytest.mark.parametrize(
    ("before", "run_at", "deployed", "after", "due"),
    [case[1:] for case in CHANGES],
    ids=[case[0] for case in CHANGES],
)
def test_a_changed_schedule_counts_from_the_moment_it_is_noticed(  # noqa: PLR0917 - by name
    before: dict[str, Any],
    run_at: str | None,
    deployed: str,
    after: dict[str, Any],
    due: str,
    serve: Serve,
    clock: ManualClock,
) -> None:
    """It runs at its own first time from then on, and not at the deploy."""
    old = serve(**before)
    old.sync()
    if run_at is not None:
        clock.set(at(run_at))
        assert ran(old) == ["ok"]
    clock.set(at(deployed))
    new = serve(**after)
    expected = ["ok"] if at(due) == at(deployed) else []
    assert ran(new) == expected
    if not expected:
        row = row_of(new, "chore")
        assert (row.next_run_at, row.scheduled_for) == (at(due),) * 2
        clock.set(at(due) - timedelta(seconds=1))
        assert ran(new) == []
        clock.set(at(due))
        assert ran(new) == ["ok"]


def test_added_jitter_does_not_repeat_the_time_that_has_run(
    serve: Serve, clock: ManualClock
) -> None:
    """Five minutes after three o'clock, which jitter would put off by up to half an hour."""
    old = serve(crontab="0 3 * * *")
    old.sync()
    clock.set(at("01 03:00"))
    assert ran(old) == ["ok"]
    clock.set(at("01 03:00:01"))
    new = serve(crontab="0 3 * * *", jitter="30m")
    assert ran(new) == []
    row = row_of(new, "chore")
    assert row.scheduled_for == at("02 03:00") <= row.next_run_at < at("02 03:30")


def test_changed_jitter_keeps_the_time_that_still_waits_for_it(
    serve: Serve, clock: ManualClock
) -> None:
    """Today's run is not lost, and comes when it was to come."""
    old = serve(crontab="0 3 * * *", jitter="1h")
    old.sync()
    due = row_of(old, "chore").next_run_at
    assert due > at("01 03:00:01")
    clock.set(at("01 03:00:01"))
    new = serve(crontab="0 3 * * *", jitter="2h")
    new.sync()
    assert row_of(new, "chore").next_run_at == due
    clock.set(due)
    assert ran(new) == ["ok"]
    assert row_of(new, "chore").scheduled_for == at("02 03:00")


@pytest.mark.parametrize(
    ("options", "runs"), [({}, ["ok"]), ({"missed": "skip", "grace": "10m"}, [])]
)
def test_what_was_due_already_is_still_owed_once(
    options: dict[str, Any], runs: list[str], serve: Serve, clock: ManualClock
) -> None:
    """Whether it is run is for `missed` to say; then the new schedule counts."""
    serve(crontab="0 3 * * *", **options).sync()
    clock.set(at("01 12:00"))
    new = serve(crontab="0 4 * * *", **options)
    new.sync()
    assert row_of(new, "chore").scheduled_for == at("01 03:00")
    assert ran(new) == runs
    assert row_of(new, "chore").next_run_at == at("02 04:00")
    assert ran(new) == []


def test_there_and_back_again(serve: Serve, clock: ManualClock) -> None:
    """An interval becomes a crontab, and is one again before that came: nothing has happened."""
    old = serve(every="1h")
    old.sync()
    clock.set(at("01 01:00"))
    assert ran(old) == ["ok"]
    clock.set(at("01 01:20"))
    assert ran(serve(crontab="0 9 * * *")) == []
    clock.set(at("01 01:30"))
    back = serve(every="1h")
    assert ran(back) == []
    assert row_of(back, "chore").next_run_at == at("01 02:00")


def test_an_operators_interval_and_its_end_go_by_the_same_rule(
    serve: Serve, clock: ManualClock
) -> None:
    """`set_interval` counts from the last run; `reset_schedule` waits for the crontab's time."""
    cron = serve(crontab="0 3 * * *")
    cron.sync()
    clock.set(at("01 03:00"))
    assert ran(cron) == ["ok"]
    cron.set_interval("chore", "12h")
    assert row_of(cron, "chore").next_run_at == at("01 15:00")
    clock.set(at("01 14:00"))
    cron.reset_schedule("chore")
    assert row_of(cron, "chore").next_run_at == at("02 03:00")
    cron.set_interval("chore", "5d")
    assert row_of(cron, "chore").next_run_at == at("06 03:00")


def test_a_failed_run_is_tried_again_as_it_would_have_been(
    serve: Serve, clock: ManualClock
) -> None:
    """At most until the new schedule's next time, which then stands for itself."""
    old = serve(lambda: 1 / 0, crontab="0 3 * * *")
    old.sync()
    clock.set(at("01 03:00"))
    assert ran(old) == ["failed"]
    again = row_of(old, "chore").next_run_at
    clock.set(at("01 03:01"))
    new = serve(crontab="0 4 * * *")
    assert ran(new) == []
    row = row_of(new, "chore")
    assert (row.next_run_at, row.scheduled_for, row.attempts) == (again, at("01 03:00"), 1)
    newer = serve(crontab="2-59 3 * * *")
    clock.set(at("01 03:01:01"))
    newer.sync()
    row = row_of(newer, "chore")
    assert again > at("01 03:01:01")
    assert row.next_run_at == min(again, at("01 03:02"))
    clock.set(at("01 03:02"))
    assert ran(newer) == ["ok"]


def test_a_postponed_run_keeps_the_moment_it_asked_for(serve: Serve, clock: ManualClock) -> None:
    """It has begun: its due time is worked off before the new schedule's next one."""

    def wait() -> None:
        raise Postpone(9 * HOUR)

    old = serve(wait, crontab="0 3 * * *")
    old.sync()
    clock.set(at("01 03:00"))
    assert ran(old) == ["postponed"]
    clock.set(at("01 11:00"))
    new = serve(crontab="0 4 * * *")
    assert ran(new) == []
    row = row_of(new, "chore")
    assert (row.next_run_at, row.scheduled_for) == (at("01 12:00"), at("01 03:00"))
    clock.set(at("01 12:00"))
    assert ran(new) == ["ok"]
    assert row_of(new, "chore").next_run_at == at("02 04:00")


def test_a_paused_run_goes_on(serve: Serve, clock: ManualClock) -> None:
    """Its next slice is due as it was."""

    def pieces() -> Generator[None, None, None]:
        yield
        clock.tick("1h")
        yield

    old = serve(pieces, crontab="0 3 * * *")
    old.sync()
    clock.set(at("01 03:00"))
    old.run_due("url", budget=None)
    before = row_of(old, "chore")
    new = serve(pieces, crontab="0 4 * * *")
    new.sync()
    after = row_of(new, "chore")
    assert (after.next_run_at, after.scheduled_for) == (before.next_run_at, before.scheduled_for)


def test_a_disabled_row_is_not_due_and_owes_nothing(serve: Serve, clock: ManualClock) -> None:
    """Enabled later, it runs at the new schedule's time."""
    old = serve(crontab="0 3 * * *")
    old.sync()
    old.disable("chore")
    clock.set(at("01 12:00"))
    new = serve(crontab="0 4 * * *")
    new.sync()
    new.enable("chore")
    assert ran(new) == []
    assert row_of(new, "chore").next_run_at == at("02 04:00")


def test_a_first_run_that_is_to_come_stays(serve: Serve, clock: ManualClock) -> None:
    """Unless the new schedule comes sooner."""
    serve(crontab="0 3 * * *", first_run="30m").sync()
    clock.set(at("01 00:10"))
    new = serve(crontab="0 4 * * *", first_run="30m")
    new.sync()
    assert row_of(new, "chore").next_run_at == at("01 00:30")
    sooner = serve(crontab="20 * * * *", first_run="30m")
    sooner.sync()
    assert row_of(sooner, "chore").next_run_at == at("01 00:20")


@pytest.mark.parametrize(("status", "due"), [("ok", "02 04:00"), ("failed", "01 03:02")])
def test_a_claimed_row_is_left_alone_and_settled_by_the_new_schedule(
    status: str, due: str, serve: Serve, clock: ManualClock
) -> None:
    """A time of it that passed while the run went on was never due; a failed run is tried again."""
    seen: list[tuple[object, ...]] = []

    def chore() -> None:
        clock.set(at("01 12:00"))
        before = row_of(cron, "chore")
        serve(crontab="0 4 * * *").sync()
        after = row_of(cron, "chore")
        seen.append((after.lock_token, after.scheduled_for, after.attempts))
        assert seen == [(before.lock_token, before.scheduled_for, before.attempts)]
        clock.set(at("01 12:10"))
        if status == "failed":
            raise ValueError

    cron = serve(chore, crontab="0 3 * * *", lease="1d")
    cron.sync()
    clock.set(at("01 03:00"))
    assert ran(cron) == [status]
    assert len(seen) == 1
    row = row_of(cron, "chore")
    assert (row.schedule, row.next_run_at) == ("crontab 0 4 * * * tz=UTC", at(due))


# a clock that was ahead


AHEAD = 12 * HOUR


def ticked(
    serve: Serve, clock: ManualClock, hours: int, step: int = 3, **options: Any
) -> list[datetime]:
    """Tick every few hours by a new process; return when it ran."""
    found = []
    for _ in range(0, hours, step):
        cron = serve(**options)
        found += [clock.now()] * len(ran(cron))
        cron.close(timeout=1)
        clock.tick(step * HOUR)
    return found


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({"crontab": "0 3 * * *"}, ["01 03:00", "02 03:00"]),
        ({"crontab": "0 3 * * *", "jitter": "10m"}, ["01 06:00", "02 06:00"]),
        ({"crontab": "0 9 * * fri"}, ["02 09:00"]),
        ({"every": "1d"}, ["02 00:00"]),
        ({"every": "10h"}, ["01 12:00", "01 21:00", "02 09:00"]),
        ({"every": "1d", "first_run": "2h"}, ["01 03:00", "02 03:00"]),
    ],
)
def test_a_row_made_while_the_clock_was_ahead_waits_for_its_own_time(
    options: dict[str, Any], runs: list[str], serve: Serve, clock: ManualClock
) -> None:
    """Each look is a new process's, so that nothing is remembered but the row."""
    clock.jump(AHEAD)
    serve(**options).sync()
    clock.jump(-AHEAD)
    assert ticked(serve, clock, 36, **options) == [at(run) for run in runs]


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({"crontab": "0 3 * * *"}, ["02 05:00", "03 05:00"]),
        ({"crontab": "0 20 * * mon"}, ["05 20:00"]),
        ({"every": "1d"}, ["02 20:00"]),
    ],
)
def test_a_row_run_while_the_clock_was_ahead_waits_for_its_own_time(
    options: dict[str, Any], runs: list[str], serve: Serve, clock: ManualClock
) -> None:
    """Not for less each time it is looked at."""
    serve(**options).sync()
    clock.set(at("01 20:00"))
    clock.jump(AHEAD)
    cron = serve(**options)
    cron.run_now("chore")
    clock.jump(-AHEAD)
    hours = 100 if "mon" in str(options) else 37
    assert ticked(serve, clock, hours, **options) == [at(run) for run in runs]


def test_a_failed_run_of_a_time_that_has_not_come_waits_for_it(
    serve: Serve, clock: ManualClock
) -> None:
    """A try before three o'clock would be off the schedule, and three o'clock would be left out."""
    serve(crontab="0 3 * * *").sync()
    clock.set(at("01 20:00"))
    cron = serve(crontab="0 3 * * *")
    assert ran(cron) == ["ok"]
    clock.jump(AHEAD)
    assert ran(serve(lambda: 1 / 0, crontab="0 3 * * *")) == ["failed"]
    clock.jump(-AHEAD)
    assert ticked(serve, clock, 36, crontab="0 3 * * *") == [at("02 05:00"), at("03 05:00")]


def test_a_backoff_from_the_future_is_no_longer_than_it_should_be(
    serve: Serve, clock: ManualClock
) -> None:
    """An hourly task's first one is two hours."""
    cron = serve(lambda: 1 / 0, every="1h")
    cron.sync()
    clock.jump(AHEAD)
    assert ran(cron) == ["failed"]
    clock.jump(-AHEAD)
    assert ticked(serve, clock, 3, 1, every="1h") == [at("01 02:00")]


def test_a_postponed_run_waits_as_long_as_it_asked_for(serve: Serve, clock: ManualClock) -> None:
    """Counted from the look that finds its stamp in the future."""

    def wait() -> None:
        raise Postpone(2 * HOUR)

    cron = serve(wait, every="1h")
    cron.sync()
    clock.jump(AHEAD)
    assert ran(cron) == ["postponed"]
    clock.jump(-AHEAD)
    assert ticked(serve, clock, 3, 1, every="1h") == [at("01 02:00")]


def test_a_claim_from_the_future_is_buried_after_a_lease(serve: Serve, clock: ManualClock) -> None:
    """Its process died; a look that comes later does not shorten it further."""
    cron = serve(every="1h")
    cron.sync()
    clock.jump(AHEAD)
    claim_by_name(cron, "chore", clock.now())
    clock.jump(-AHEAD)
    for _ in range(3):
        looked = serve(every="1h")
        looked.sync()
        assert row_of(looked, "chore").next_run_at == START + timedelta(minutes=5)
        clock.tick("1m")


# any of it, in any order


SCHEDULES: list[dict[str, Any]] = [
    {"crontab": "0 3 * * *"},
    {"crontab": "0 4 * * *"},
    {"crontab": "0 */5 * * *"},
    {"crontab": "0 9 * * mon"},
    {"crontab": "30 2 1 * *"},
    {"every": "7h"},
    {"every": "1d"},
]


class Model:
    """What a row should do, told in a few lines: by the clock as it is shown."""

    def __init__(self, options: dict[str, Any], now: datetime) -> None:
        self.schedule: Every | Crontab = to_schedule(options)
        self.last = now
        self.due = self.schedule.next_after(now)

    def look(self, options: dict[str, Any], now: datetime) -> int:
        """Put right what a wrong clock did, notice a change, and run what is due; count runs."""
        if self.due > now:
            self.due = min(self.due, self.schedule.next_after(now))
            self.last = min(self.last, now)
        schedule = to_schedule(options)
        if schedule != self.schedule:
            self.schedule = schedule
            if self.due > now:
                from_last = isinstance(schedule, Every)
                self.due = max(now, schedule.next_after(self.last if from_last else now))
        if self.due > now:
            return 0
        before, self.last = self.due, now
        self.due = self.schedule.next_after(now)
        if isinstance(self.schedule, Every):
            interval = self.schedule.interval
            self.due = min(self.due, max(before + interval, now + 0.9 * interval))
        return 1


def to_schedule(options: dict[str, Any]) -> Every | Crontab:
    """Make the schedule that a task's options name."""
    return Crontab(options["crontab"]) if "crontab" in options else Every(options["every"])


@pytest.mark.parametrize("seed", range(3))
def test_any_changes_and_steps_and_restarts(
    seed: int, sqlite: URL, tmp_path: Path, clock: ManualClock
) -> None:
    """Never twice in a period, never off its schedule, never asleep beyond its next time."""
    dice = random.Random(seed)
    options, ahead = dice.choice(SCHEDULES), timedelta(0)

    def start() -> LazyCron:
        cron = LazyCron(sqlite, state_file=tmp_path / "state.json", clock=clock, lease="1h")
        cron.task(name="chore", **options)(lambda: None)
        return cron

    cron = start()
    cron.sync()
    model, runs = Model(options, clock.now()), 0
    for step in range(50):
        event = dice.choice(["wait", "wait", "wait", "change", "clock"])
        clock.tick(timedelta(minutes=dice.choice([1, 59, 60, 180, 600, 2000])))
        if event == "change":
            options = dice.choice(SCHEDULES)
        elif event == "clock":
            clock.jump(-ahead)
            ahead = timedelta(0) if ahead else timedelta(hours=dice.randint(2, 200))
            clock.jump(ahead)
        if event == "change" or dice.random() < 0.3:
            cron.close(timeout=1)
            cron = start()
        clock.tick("61s")  # for a process that has looked at its rows a moment ago
        now = clock.now()
        found = len(cron.run_due("url").runs)
        assert found == model.look(options, now), (step, event, options, now)
        row = row_of(cron, "chore")
        assert row.next_run_at == model.due, (step, event, options, now)
        assert row.next_run_at <= to_schedule(options).next_after(now)
        runs += found
    assert runs > 5
    assert statuses(cron) == ["ok"] * runs
    cron.close(timeout=1)
