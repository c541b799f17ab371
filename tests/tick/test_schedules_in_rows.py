"""Schedules as rows live them: windows, jitter, missed times, triggers, and what moves a row."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, event

from lazycron import Budget, Every, LazyCron, Postpone
from lazycron.errors import ConfigurationError, ScheduleError
from lazycron.model.report import RunResult, Trigger
from lazycron.testing import ManualClock, tick_through
from tests.conftest import START, MakeCron
from tests.scenes import claim, row_of, statuses
from tests.tables import set_row
from tests.watching import counted_calls

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


def at(text: str) -> datetime:
    """Read an ISO moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=START.tzinfo)


def add(cron: LazyCron, function: Callable[[], Any] = lambda: None, **options: Any) -> None:
    """Register a task and make its row."""
    cron.task(**({"name": "chore"} | options))(function)
    cron.sync()


def next_of(cron: LazyCron) -> datetime:
    """Read when the task's row is due next."""
    return row_of(cron, "chore").next_run_at


def ran(cron: LazyCron, clock: ManualClock, moment: str, trigger: Trigger = "url") -> bool:
    """Tick at a moment; tell whether the task ran."""
    clock.set(at(moment))
    return bool(cron.run_due(trigger).runs)


# options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"missed": "twice"}, r'missed=\'twice\': pass "once" or "skip"'),
        ({"grace": "5m"}, "grace='5m': pass it with missed=\"skip\" only"),
        ({"only_on": ()}, r"only_on=\(\): pass one or more of traffic, admin, url, cli"),
        ({"only_on": ("cli", "cron")}, r"only_on=\('cli', 'cron'\): pass one or more of"),
        ({"only_on": 5}, "only_on=5: pass one or more of"),
    ],
)
def test_an_option_that_cannot_be_meant_is_named(
    options: dict[str, Any], words: str, make_cron: MakeCron, sqlite: URL
) -> None:
    """With what to pass instead."""
    with pytest.raises(ConfigurationError, match=words):
        make_cron(sqlite).task(every="1h", **options)(print)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"between": "02:00-05:00"}, "between='02:00-05:00' goes with a schedule"),
        ({"jitter": "5m"}, "jitter='5m' goes with a schedule"),
        ({"every": "1h", "tz": "Europe/Berlin"}, "goes with crontab= or between="),
        ({"every": "1h", "between": "02:00-05:00", "tz": "Mars/Olympus"}, "is unknown"),
        ({"every": "1h", "jitter": "soon"}, "jitter 'soon' is not accepted"),
        ({"every": "1h", "missed": "skip", "grace": -1}, "grace -1 is not accepted"),
    ],
)
def test_a_shape_that_cannot_be_meant_is_a_schedule_error(
    options: dict[str, Any], words: str, make_cron: MakeCron, sqlite: URL
) -> None:
    """At registration."""
    with pytest.raises(ScheduleError, match=words):
        make_cron(sqlite).task(**options)(print)


def test_one_trigger_may_be_said_without_brackets(make_cron: MakeCron, sqlite: URL) -> None:
    """And several in any order."""
    cron = make_cron(sqlite)
    assert cron.task(every="1h", name="a", only_on="cli")(print).only_on == ("cli",)
    assert cron.task(every="1h", name="b", only_on=["loop", "url"])(print).only_on == (
        "url",
        "loop",
    )


def test_a_zone_configured_later_reaches_windows_too(make_cron: MakeCron, sqlite: URL) -> None:
    """Those whose task named none."""
    cron = make_cron(sqlite)
    between = "02:00-05:00"
    cron.task(name="interval", every="1h", between=between)(print)
    cron.task(name="crontab", crontab="0 3 * * *", between=between)(print)
    cron.task(name="named", every="1h", tz="Asia/Tokyo", between=between)(print)
    cron.configure(tz="Europe/Berlin")
    assert {task.name: task.schedule and task.schedule.text for task in cron.registry} == {
        "interval": "every 1h tz=Europe/Berlin between=02:00-05:00",
        "crontab": "crontab 0 3 * * * tz=Europe/Berlin between=02:00-05:00",
        "named": "every 1h tz=Asia/Tokyo between=02:00-05:00",
    }


# windows


def test_a_row_is_due_when_its_window_opens(cron: LazyCron) -> None:
    """Made at midnight, every hour by night: first at two, and not after five."""
    add(cron, every="1h", between="02:00-05:00")
    assert next_of(cron) == at("2026-01-01 02:00")
    reports = tick_through(cron, START, START + 2 * DAY, "30m")
    runs = [run.scheduled_for for report in reports for run in report.runs]
    assert [f"{moment:%d %H}" for moment in runs] == [
        "01 02",
        "01 03",
        "01 04",
        "02 02",
        "02 03",
        "02 04",
    ]


def test_a_closed_window_is_not_due(cron: LazyCron, clock: ManualClock) -> None:
    """Nobody came by night: at noon nothing is due, and the next tick looks at two."""
    add(cron, every="1h", between="02:00-05:00")
    clock.set(at("2026-01-01 12:00"))
    report = cron.run_due("traffic")
    assert (report.runs, report.next_due) == ([], at("2026-01-02 02:00"))
    assert cron.state().next == at("2026-01-02 02:00")
    # The due time it is late for stays the same.
    assert row_of(cron, "chore").scheduled_for == at("2026-01-01 02:00")


def test_a_window_that_a_slow_site_hits_only_by_luck(cron: LazyCron, clock: ManualClock) -> None:
    """A visitor every seven hours: one run for each time he comes between two and five."""
    add(cron, every="day", between="02:00-05:00", first_run=0)
    moments, moment = [], at("2026-01-01 00:30")
    for _ in range(100):
        clock.set(moment)
        moments += [moment] * len(cron.run_due("traffic").runs)
        moment += 7 * HOUR
    assert all(2 <= moment.hour < 5 for moment in moments)
    # He comes into the window every seventh time three times, days apart.
    assert 10 <= len(moments) <= 13
    assert statuses(cron) == ["ok"] * len(moments)


def test_whatever_comes_again_waits_for_the_window(cron: LazyCron, clock: ManualClock) -> None:
    """Retries, postponed and lost runs; only run_now does not ask."""

    def fail() -> None:
        raise ValueError

    add(cron, fail, crontab="58 4 * * *", between="02:00-05:00")
    assert ran(cron, clock, "2026-01-01 04:59")
    assert next_of(cron) == at("2026-01-02 02:00")
    cron.task(every="1h", between="02:00-05:00", name="later")(lambda: Postpone("2h"))
    cron.task(every="1h", between="02:00-05:00", name="dead")(lambda: None)
    cron.sync()
    clock.set(at("2026-01-02 04:30"))
    later = cron.run_now("later")
    assert later is not None
    assert later.status == "postponed"
    assert row_of(cron, "later").next_run_at == at("2026-01-03 02:00")
    clock.set(at("2026-01-02 04:59"))
    cron.disable("chore")
    claim(cron, clock.now())
    clock.set(at("2026-01-02 05:10"))
    cron.release("dead", force=True)
    assert row_of(cron, "dead").next_run_at == at("2026-01-03 02:00")
    clock.set(at("2026-01-02 12:00"))
    again = cron.run_now("dead")
    assert again is not None
    assert again.status == "ok"


# jitter


def run_when_due(cron: LazyCron, clock: ManualClock, end: datetime) -> list[RunResult]:
    """Tick a second before each due time, which runs nothing, and at it, until the end."""
    runs: list[RunResult] = []
    while (due := next_of(cron)) < end:
        clock.set(due - timedelta(seconds=1))
        assert cron.run_due().runs == []
        clock.set(due)
        runs += cron.run_due().runs
    return runs


def test_thirty_days_of_a_jittered_daily_task_are_thirty_runs(
    cron: LazyCron, clock: ManualClock
) -> None:
    """One on each day, at a different minute of the hour."""
    add(cron, crontab="30 3 * * *", jitter="1h")
    runs = run_when_due(cron, clock, START + 30 * DAY)
    regular = [at("2026-01-01 03:30") + n * DAY for n in range(30)]
    assert [run.scheduled_for for run in runs] == regular
    started = [run.started_at for run in reversed(cron.history("chore"))]
    delays = [start - due for start, due in zip(started, regular, strict=True)]
    assert len(set(delays)) > 20
    assert all(timedelta(0) <= delay < HOUR for delay in delays)


def test_thirty_days_of_a_jittered_interval_are_thirty_runs(
    cron: LazyCron, clock: ManualClock
) -> None:
    """It keeps its phase, and is never due sooner than nine tenths of it."""
    add(cron, every="day", jitter="2h")
    run_when_due(cron, clock, START + 31 * DAY)
    started = [run.started_at for run in reversed(cron.history("chore"))]
    assert len(started) == 30
    assert all(second - first >= 0.9 * DAY for first, second in pairwise(started))


def test_jitter_is_the_installations_own(make_cron: MakeCron, url: URL, tmp_path: Path) -> None:
    """All processes of one agree; another name or another installation differs."""
    one, two = make_cron(url), make_cron(url, state_file=tmp_path / "other.json")
    for cron in (one, two):
        cron.task(crontab="30 3 * * *", jitter="1h", name="chore")(print)
        cron.task(crontab="30 3 * * *", jitter="1h", name="errand")(print)
    one.sync()
    two.sync()
    assert one.registry.installation == two.registry.installation != ""
    assert row_of(one, "chore").next_run_at != row_of(one, "errand").next_run_at
    due = row_of(one, "chore").next_run_at
    schedule = two.registry.schedule_of("chore", row_of(two, "chore").schedule_now)
    assert schedule.next_after(START) == due
    two.registry.installation = "another"
    assert two.registry.schedule_of("chore", schedule.text).next_after(START) != due


# missed


@pytest.mark.parametrize("late", [DAY, 3653 * DAY], ids=["a day", "ten years"])
@pytest.mark.parametrize("schedule", [{"every": "1m"}, {"crontab": "* * * * *"}], ids=str)
def test_missed_once_is_one_run_however_late(
    late: timedelta, schedule: dict[str, Any], cron: LazyCron, clock: ManualClock
) -> None:
    """The default, and no more work for ten years than for a day."""
    add(cron, **schedule)
    clock.set(START + MINUTE + late)
    with counted_calls() as calls:
        assert len(cron.run_due().runs) == 1
    assert calls[0] < 200_000
    assert statuses(cron) == ["ok"]
    assert clock.now() < next_of(cron) <= clock.now() + MINUTE


@pytest.mark.parametrize("late", [DAY, 3653 * DAY], ids=["a day", "ten years"])
@pytest.mark.parametrize("schedule", [{"every": "1m"}, {"crontab": "* * * * *"}], ids=str)
def test_missed_skip_is_no_run_and_one_note_however_late(
    late: timedelta, schedule: dict[str, Any], cron: LazyCron, clock: ManualClock
) -> None:
    """Counted once, noted in the row, and not in the history; the next regular time comes."""
    add(cron, missed="skip", grace="10m", **schedule)
    clock.set(START + MINUTE + late + 30 * timedelta(seconds=1))
    with counted_calls() as calls:
        report = cron.run_due()
    assert calls[0] < 200_000
    row = row_of(cron, "chore")
    assert (report.runs, statuses(cron)) == ([], [])
    assert report.decisions["chore"].verdict == "skipped"
    assert (row.last_status, row.counters, row.last_run_at) == ("missed", {"missed": 1}, None)
    assert row.last_message is not None
    assert row.last_message.startswith("Missed: due at 2026-01-01 00:01:00 UTC, found ")
    assert row.last_message.endswith("later; more than 10 minutes is too late.")
    assert clock.now() < row.next_run_at <= clock.now() + MINUTE
    # In the phase it had.
    assert row.next_run_at.second == 0
    clock.set(row.next_run_at)
    assert len(cron.run_due().runs) == 1
    assert row_of(cron, "chore").counters["missed"] == 1


def test_what_is_no_later_than_the_grace_is_run(cron: LazyCron, clock: ManualClock) -> None:
    """To the microsecond."""
    add(cron, crontab="0 3 * * *", missed="skip", grace="10m")
    assert ran(cron, clock, "2026-01-01 03:10:00")
    assert not ran(cron, clock, "2026-01-02 03:10:00.000001")
    assert next_of(cron) == at("2026-01-03 03:00")


def test_without_a_grace_a_tenth_of_the_way_to_the_next_time_is_too_late(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Of a daily task two hours and 24 minutes; of a minute's a minute."""
    add(cron, crontab="0 3 * * *", missed="skip")
    cron.task(every="minute", missed="skip", name="minute")(lambda: None)
    cron.sync()
    clock.set(START + 2 * MINUTE)
    assert [run.task for run in cron.run_due().runs] == ["minute"]
    assert ran(cron, clock, "2026-01-01 05:24:00")
    assert row_of(cron, "minute").counters["missed"] == 1
    clock.set(at("2026-01-02 05:24:01"))
    cron.run_due()
    assert row_of(cron, "chore").last_status == "missed"


def test_what_has_begun_is_not_missed(cron: LazyCron, clock: ManualClock) -> None:
    """Failed, lost and postponed runs come again, however late."""
    come = iter([ValueError("no"), Postpone("5h"), "done"])

    def chore() -> object:
        found = next(come)
        if isinstance(found, Exception):
            raise found
        return found

    add(cron, chore, every="day", missed="skip", grace="1m")
    assert ran(cron, clock, "2026-01-02 00:00")  # fails
    assert ran(cron, clock, "2026-01-05 00:00")  # postponed
    assert ran(cron, clock, "2026-01-09 00:00")
    assert statuses(cron) == ["failed", "postponed", "ok"]
    claim(cron, at("2026-01-09 23:00"))
    clock.set(at("2026-01-10 01:00"))
    cron.release("chore", force=True)
    assert row_of(cron, "chore").last_status == "lost"


def test_run_now_misses_nothing(cron: LazyCron, clock: ManualClock) -> None:
    """Somebody asked."""
    add(cron, crontab="0 3 * * *", missed="skip", grace="1m")
    clock.set(at("2026-01-01 12:00"))
    result = cron.run_now("chore")
    assert result is not None
    assert result.status == "ok"


def test_a_tick_asks_about_missed_times_only_where_a_task_wants_it(cron: LazyCron) -> None:
    """A statement a tick with a window or missed="skip", and none without."""
    statements: list[str] = []

    def count(*values: Any) -> None:
        statements.append(values[2])

    def counted() -> int:
        cron.run_due("traffic")
        statements.clear()
        cron.run_due("traffic")
        return len(statements)

    event.listen(cron._parts.store.engine, "before_cursor_execute", count)
    cron.task(every="1h", name="plain")(print)
    plain = counted()
    cron.task(every="1h", missed="skip", name="chore")(print)
    assert counted() == plain + 1


# only_on


def test_a_task_for_some_triggers_is_run_by_no_other(cron: LazyCron, clock: ManualClock) -> None:
    """Nor does it count as due for them; whoever may run it sees it."""
    add(cron, every="1h", only_on=("cli", "loop", "url"))
    cron.task(every="day", name="other")(lambda: None)
    cron.sync()
    clock.set(START + HOUR)
    for trigger in ("traffic", "admin", "manual"):
        report = cron.run_due(trigger)
        assert (report.runs, report.next_due) == ([], START + DAY)
    state = cron.state()
    assert state.next == START + DAY
    assert [state.is_due(clock.now(), one) for one in ("traffic", "admin", "loop")] == [
        False,
        False,
        True,
    ]
    assert cron._parts.statefile.peek() == state
    report = cron.run_due("loop")
    assert [run.task for run in report.runs] == ["chore"]
    assert cron.state().next_for("loop") == START + 2 * HOUR


def test_a_task_for_admin_paths_only(cron: LazyCron, clock: ManualClock) -> None:
    """Other visitors' requests do not see it."""
    add(cron, every="1h", only_on="admin")
    clock.set(START + HOUR)
    cron.sync()
    state = cron.state()
    assert (state.is_due(clock.now()), state.is_due(clock.now(), "admin")) == (False, True)
    assert cron.run_due("traffic").runs == []
    assert len(cron.run_due("admin").runs) == 1


def test_jobs_of_a_task_for_some_triggers_wait_for_them_too(
    cron: LazyCron, clock: ManualClock
) -> None:
    """The trigger is the task's, be it scheduled or enqueued."""
    task = cron.task(name="chore", only_on="url")(lambda: None)
    task.enqueue()
    clock.tick()
    assert cron.run_due("traffic").runs == []
    assert len(cron.run_due("url").runs) == 1


def test_by_name_a_task_runs_at_any_trigger(cron: LazyCron) -> None:
    """Somebody asked for this very task."""
    add(cron, every="1h", only_on="cli")
    result = cron.run_now("chore")
    assert result is not None
    assert result.status == "ok"


def test_a_budget_is_not_used_up_by_what_a_trigger_may_not_run(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Three heavy tasks are due before a light one: a visitor runs the light one."""
    for name in ("a", "b", "c"):
        cron.task(every="1h", name=name, only_on="cli")(lambda: None)
    cron.task(every="61m", name="light")(lambda: None)
    cron.sync()
    clock.set(START + 2 * HOUR)
    report = cron.run_due("traffic", budget=Budget(tasks=1))
    assert [run.task for run in report.runs] == ["light"]
    assert report.stopped_by == "done"
    assert len(cron.run_due("cli").runs) == 3


# what moves a row

Change = Callable[[LazyCron, Callable[..., LazyCron]], None]


def recoded(**options: Any) -> Change:
    """Change the code, and serve it."""

    def change(cron: LazyCron, deploy: Callable[..., LazyCron]) -> None:
        del cron
        deploy(**options).sync()

    return change


def overridden(length: str) -> Change:
    """Let an operator set an interval."""
    return lambda cron, _: cron.set_interval("chore", length)


def reset(cron: LazyCron, deploy: Callable[..., LazyCron]) -> None:
    """Let an operator set an interval and take it back."""
    cron.set_interval("chore", "5m")
    deploy(every="1h").reset_schedule("chore")


def edited(cron: LazyCron, deploy: Callable[..., LazyCron]) -> None:
    """Change the row's schedule by hand, and run it."""
    del deploy
    set_row(cron._parts.store.engine, "chore", schedule="every 10m")
    cron.run_now("chore")


MOVES: list[tuple[str, Change, str, str]] = [
    # after an hourly task ran at 01:00 and it is 01:20: what next_run_at becomes, and the schedule
    ("restarted", recoded(every="1h"), "01 02:00", "every 1h"),
    ("a shorter interval", recoded(every="30m"), "01 01:30", "every 30m"),
    ("an interval that has passed", recoded(every="10m"), "01 01:20", "every 10m"),
    ("a longer interval", recoded(every="5h"), "01 06:00", "every 5h"),
    (
        "a crontab that comes sooner",
        recoded(crontab="45 * * * *"),
        "01 01:45",
        "crontab 45 * * * * tz=UTC",
    ),
    (
        "a crontab that comes later",
        recoded(crontab="0 9 * * *"),
        "01 09:00",
        "crontab 0 9 * * * tz=UTC",
    ),
    (
        "another zone",
        recoded(crontab="40 1 * * *", tz="Asia/Kolkata"),
        "01 20:10",
        "crontab 40 1 * * * tz=Asia/Kolkata",
    ),
    (
        "a window that is open then",
        recoded(every="1h", between="01:30-05:00"),
        "01 02:00",
        "every 1h tz=UTC between=01:30-05:00",
    ),
    (
        "a window that opens later",
        recoded(every="1h", between="03:00-05:00"),
        "01 03:00",
        "every 1h tz=UTC between=03:00-05:00",
    ),
    (
        "a window of another zone",
        recoded(every="1h", between="08:00-09:00", tz="Asia/Tokyo"),
        "01 23:00",
        "every 1h tz=Asia/Tokyo between=08:00-09:00",
    ),
    ("jitter", recoded(every="1h", jitter="1s"), "01 02:00", "every 1h jitter=1s"),
    ("another policy", recoded(every="1h", missed="skip", grace="5m"), "01 02:00", "every 1h"),
    ("other triggers", recoded(every="1h", only_on="cli"), "01 02:00", "every 1h"),
    ("enabled=False", recoded(every="1h", enabled=False), "01 02:00", "every 1h"),
    ("first_run", recoded(every="1h", first_run=0), "01 02:00", "every 1h"),
    ("an override that comes sooner", overridden("30m"), "01 01:30", "every 30m"),
    ("an override that comes later", overridden("5h"), "01 06:00", "every 5h"),
    ("an override that was taken back", reset, "01 01:20", "every 1h"),
    ("a row changed by hand", edited, "01 01:30", "every 10m"),
]


@pytest.mark.parametrize(
    ("change", "due", "text"), [m[1:] for m in MOVES], ids=[m[0] for m in MOVES]
)
def test_what_becomes_of_a_rows_due_time(  # noqa: PLR0917 - pytest passes them by name
    change: Change,
    due: str,
    text: str,
    url: URL,
    make_cron: MakeCron,
    clock: ManualClock,
    tmp_path: Path,
) -> None:
    """To the new schedule's first time, never into the past, and never out of its window."""
    cron = make_cron(url)
    add(cron, every="1h")
    assert ran(cron, clock, "2026-01-01 01:00")
    clock.set(at("2026-01-01 01:20"))

    def deploy(**options: Any) -> LazyCron:
        served = make_cron(url, state_file=tmp_path / "other.json")
        served.task(name="chore", **options)(lambda: None)
        return served

    change(cron, deploy)
    row = row_of(cron, "chore")
    assert (f"{row.next_run_at:%d %H:%M}", row.schedule_now) == (due, text)
    assert row.enabled


def test_an_override_keeps_window_and_jitter_and_stands_through_changed_code(
    make_cron: MakeCron, url: URL, tmp_path: Path
) -> None:
    """The rhythm is the operator's, the shape the code's; reset brings the code's rhythm back."""
    cron = make_cron(url)
    add(cron, crontab="30 3 * * *", between="02:00-05:00", jitter="5m")
    cron.set_interval("chore", "2h")
    row = row_of(cron, "chore")
    assert row.schedule_now == "every 2h tz=UTC between=02:00-05:00 jitter=5m"
    assert at("2026-01-01 02:00") <= row.next_run_at < at("2026-01-01 02:05")
    status = cron.overview()[0]
    assert status.overridden
    assert status.schedule == "every 2 hours between 02:00 and 05:00 in UTC, up to 5 minutes later"

    served = make_cron(url, state_file=tmp_path / "other.json")
    served.task(crontab="0 9 * * *", between="08:00-10:00", name="chore")(lambda: None)
    served.sync()
    row = row_of(served, "chore")
    assert row.schedule_now == "every 2h tz=UTC between=08:00-10:00"
    assert row.next_run_at == at("2026-01-01 08:00")
    served.reset_schedule("chore")
    row = row_of(served, "chore")
    assert (row.schedule_now, row.schedule_override) == (
        "crontab 0 9 * * * tz=UTC between=08:00-10:00",
        None,
    )


def test_enabled_in_code_is_the_first_value_only(
    make_cron: MakeCron, url: URL, tmp_path: Path
) -> None:
    """What an operator has switched on stays on, whatever the code says at its next start."""
    cron = make_cron(url)
    add(cron, every="1h", enabled=False)
    assert not row_of(cron, "chore").enabled
    cron.enable("chore")
    again = make_cron(url, state_file=tmp_path / "other.json")
    add(again, every="2h", enabled=False)
    assert row_of(again, "chore").enabled


def test_two_versions_side_by_side_do_not_fight(
    make_cron: MakeCron, url: URL, clock: ManualClock, tmp_path: Path
) -> None:
    """Each brings its schedule in once; then the row keeps the newer one's through both."""
    old, new = make_cron(url), make_cron(url, state_file=tmp_path / "other.json")
    add(old, every="1h")
    add(new, every="1h", between="02:00-05:00", jitter="5m")
    text = "every 1h tz=UTC between=02:00-05:00 jitter=5m"
    for number in range(1, 40):
        clock.set(START + number * 20 * MINUTE)
        (old if number % 2 else new).run_due("url")
        assert row_of(new, "chore").schedule_now == text
    assert statuses(new) == ["ok"] * 3


@pytest.mark.parametrize("text", ["every soonish", "lunar 3", ""])
def test_a_row_whose_schedule_a_hand_has_garbled_is_passed_by(
    text: str, cron: LazyCron, clock: ManualClock
) -> None:
    """Nothing is missed for it, and the code's schedule settles it."""
    add(cron, every="1h", missed="skip", grace="1m", between="02:00-05:00")
    set_row(cron._parts.store.engine, "chore", schedule=text)
    assert ran(cron, clock, "2026-01-01 12:00")
    assert next_of(cron) == at("2026-01-02 02:00")


# a preview


def test_what_comes_next_is_told_from_the_row(cron: LazyCron, clock: ManualClock) -> None:
    """Its phase, its override, its window; of a run under way what comes after it."""
    add(cron, every="1h", first_run="20m")
    assert [f"{due:%H:%M}" for due in cron.upcoming("chore", 3)] == ["00:20", "01:20", "02:20"]
    cron.set_interval("chore", "10m")
    assert [f"{due:%H:%M}" for due in cron.upcoming("chore", 3)] == ["00:10", "00:20", "00:30"]
    clock.set(at("2026-01-01 05:00"))
    assert [f"{due:%H:%M}" for due in cron.upcoming("chore", 2)] == ["05:00", "05:09"]
    claim(cron, clock.now())
    assert [f"{due:%H:%M}" for due in cron.upcoming("chore", 2)] == ["05:09", "05:19"]


def test_a_jittered_preview_is_what_then_happens(cron: LazyCron, clock: ManualClock) -> None:
    """The same hash, asked before."""
    add(cron, crontab="30 3 * * *", tz="Europe/Berlin", jitter="2h", between="03:00-04:00")
    expected = cron.upcoming("chore", 5)
    happened = []
    for _ in range(5):
        clock.set(next_of(cron))
        happened += [clock.now()] * len(cron.run_due().runs)
    assert happened == expected
    assert str(cron.zone_of("chore")) == "Europe/Berlin"


def test_schedules_are_shown_in_words(cron: LazyCron) -> None:
    """As `list` and the panel have them."""
    add(cron, crontab="30 3 * * *", tz="Europe/Istanbul")
    assert [one.schedule for one in cron.overview()] == ["at 03:30 in Europe/Istanbul"]
    assert str(Every("15m")) == "every 15 minutes"
