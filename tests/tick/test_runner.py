"""Ticks on a clock that is a variable, on every database."""

import inspect
import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from sqlalchemy import URL

from lazycron import Budget, Every, LazyCron, Postpone, Run
from lazycron.errors import ConfigurationError, ScheduleError, UnknownTaskError
from lazycron.testing import ManualClock, tick_through
from lazycron.tick.tick import Door
from tests.conftest import START, MakeCron
from tests.scenes import row_of, seconds, statuses

# When things are due


def test_a_minute_task_runs_at_sixty_seconds_and_once(cron: LazyCron, clock: ManualClock) -> None:
    """Ticks at 30, 59, 60, 60, 61 seconds run a minute task only at the first 60."""

    @cron.task(every="minute")
    def minute() -> None:
        pass

    verdicts = {}
    cron.run_due()
    for number, at in enumerate((30, 59, 60, 60, 61)):
        clock.set(START + seconds(at))
        verdicts[number, at] = cron.run_due().decisions["minute"].verdict
    assert verdicts == {
        (0, 30): "skipped",
        (1, 59): "skipped",
        (2, 60): "ran",
        (3, 60): "skipped",
        (4, 61): "skipped",
    }


@pytest.mark.parametrize(
    ("step", "times"), [("60s", (120, 2, 0)), ("300s", (24, 2, 0))], ids=["60s", "300s"]
)
def test_two_hours_of_ticks_run_each_task_as_often_as_its_interval(
    cron: LazyCron, step: str, times: tuple[int, int, int]
) -> None:
    """A minute, an hour and a day: 120, 2 and 0 times every 60 s, 24, 2 and 0 every 300 s."""
    for name in ("minute", "hour", "day"):
        cron.task(every=name, name=name)(lambda: None)
    cron.run_due()
    reports = tick_through(cron, START, START + timedelta(hours=2), step)
    runs = [run.task for report in reports for run in report.runs]
    assert (runs.count("minute"), runs.count("hour"), runs.count("day")) == times


@pytest.mark.parametrize("late", [timedelta(days=1), timedelta(days=3653)], ids=["day", "decade"])
def test_missed_beats_are_not_made_up_for(
    cron: LazyCron, clock: ManualClock, late: timedelta
) -> None:
    """A day late, ten years late: one run, and the next one at nine tenths of the interval."""
    cron.task(every="minute", name="minute")(lambda: None)
    cron.run_due()
    clock.set(START + late)
    assert [len(cron.run_due().runs) for _ in range(3)] == [1, 0, 0]
    assert row_of(cron, "minute").next_run_at == START + late + seconds(54)


def beats(number: int) -> Iterator[datetime]:
    """Yield so many beats of 300 s, each up to half a second early or late."""
    luck = random.Random(7)
    for beat in range(1, number + 1):
        yield START + seconds(300 * beat + luck.uniform(-0.5, 0.5))


def test_the_rule_serves_a_five_minute_task_at_every_beat_of_five_minutes() -> None:
    """2,000 beats of 300 s, half a second early or late: at least 1,990 runs."""
    schedule = Every("5m")
    due, runs = START + seconds(300), 0
    for beat in beats(2000):
        if due <= beat:
            due = schedule.after_run(due, beat)
            runs += 1
    assert 1990 <= runs <= 2000


def test_ticks_serve_a_five_minute_task_at_every_beat_of_five_minutes(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """The same by real ticks, a tenth of them."""
    cron = make_cron(sqlite)
    cron.task(every="5m", name="five")(lambda: None)
    cron.run_due()
    runs = 0
    for beat in beats(200):
        clock.set(beat)
        runs += len(cron.run_due("traffic").runs)
    assert 199 <= runs <= 200


@pytest.mark.parametrize("word", ["fortnight", "", "soonish", "0", "-5", "nan", "inf", "1e308"])
def test_an_unknown_word_is_refused_at_registration(make_cron: MakeCron, word: str) -> None:
    """The error is a ValueError that lists what is accepted."""
    cron = make_cron("sqlite:///never-opened.db")
    with pytest.raises(ScheduleError, match="minute, hour, day, week") as caught:
        cron.task(every=word)(lambda: None)
    assert isinstance(caught.value, ValueError)
    assert not cron.is_used


# Decisions


def test_a_decision_goes_from_unbound_to_ran(cron: LazyCron, clock: ManualClock) -> None:
    """Unbound before registration, deferred after it, skipped until it is due, then ran."""
    before = cron.run_due().decisions["minute"]
    cron.task(every="minute", name="minute")(lambda: None)
    made = cron.run_due().decisions["minute"]
    clock.tick("30s")
    early = cron.run_due().decisions["minute"]
    clock.tick("30s")
    ran = cron.run_due().decisions["minute"]
    assert [one.verdict for one in (before, made, early, ran)] == [
        "unbound",
        "deferred",
        "skipped",
        "ran",
    ]
    assert "'minute'" in before.reason
    assert early.reason.startswith("not due until 2026-01-01 00:01:00 UTC; ")
    assert ran.reason == "ok: Done."


def test_a_row_made_in_a_tick_runs_in_a_later_one(cron: LazyCron) -> None:
    """Due at once, it is deferred all the same."""
    cron.task(every="minute", name="eager", first_run=0)(lambda: None)
    assert cron.run_due().decisions["eager"].verdict == "deferred"
    assert cron.run_due().decisions["eager"].verdict == "ran"


def test_a_visitors_tick_names_only_what_it_touched(cron: LazyCron, clock: ManualClock) -> None:
    """No rows are read for the sake of decisions that nobody sees."""
    for name in ("minute", "hour"):
        cron.task(every=name, name=name)(lambda: None)
    cron.run_due()
    clock.tick("60s")
    assert list(cron.run_due("traffic").decisions) == ["minute"]
    assert set(cron.run_due("url").decisions) == {"minute", "hour"}


# Failures


def test_a_failing_task_backs_off_and_never_stops(cron: LazyCron, clock: ManualClock) -> None:
    """Tries again after 2, 4, 8, 16, 32, 64 and 64 minutes; a success sets it back to normal."""
    works = False

    @cron.task(every="minute")
    def flaky() -> None:
        if not works:
            message = "out of paper"
            raise RuntimeError(message)

    cron.run_due()
    clock.tick("60s")
    waits = []
    for failures in range(1, 8):
        start = clock.now()
        (run,) = cron.run_due().runs
        row = row_of(cron, "flaky")
        assert (run.status, row.failures, row.scheduled_for) == (
            "failed",
            failures,
            START + seconds(60),
        )
        waits.append((row.next_run_at - start) / timedelta(minutes=1))
        clock.set(row.next_run_at - seconds(1))
        assert not cron.run_due().runs
        clock.set(row.next_run_at)
    assert waits == [2, 4, 8, 16, 32, 64, 64]
    works = True
    start = clock.now()
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    row = row_of(cron, "flaky")
    assert (row.failures, row.attempts, row.next_run_at - start) == (0, 0, seconds(54))
    assert statuses(cron) == ["failed"] * 7 + ["ok"]


def test_a_failures_message_ends_with_file_and_line(cron: LazyCron, clock: ManualClock) -> None:
    """`Kind: text (file.py:12)`, in the report, the row and the history, with the traceback."""

    @cron.task(every="minute")
    def failing() -> None:
        raise KeyError("paper")  # noqa: EM101

    cron.run_due()
    clock.tick("60s")
    (run,) = cron.run_due().runs
    line = inspect.getsourcelines(failing.function)[1] + 2
    assert run.message == f"KeyError: 'paper' (test_runner.py:{line})"
    assert row_of(cron, "failing").last_message == run.message
    (record,) = cron.history()
    assert record.message == run.message
    assert record.error is not None
    assert re.search(r'raise KeyError\("paper"\)', record.error)


def test_the_row_is_stamped_before_its_function_runs(cron: LazyCron, clock: ManualClock) -> None:
    """A task that looks at its own row sees the claim, the lease's end and its own start."""
    found = []

    @cron.task(every="minute", lease="2m")
    def curious() -> None:
        found.append(row_of(cron, "curious"))

    cron.run_due()
    clock.tick("61s")
    cron.run_due("url")
    (row,) = found
    assert (row.running, row.last_run_at, row.last_trigger) == (True, START + seconds(61), "url")
    assert row.next_run_at == START + seconds(181)
    assert (row.attempts, row.last_status, row.scheduled_for) == (1, None, START + seconds(60))
    assert not row_of(cron, "curious").running


def test_postponing_is_no_failure(cron: LazyCron, clock: ManualClock) -> None:
    """Due again when it asked for, with the same due time, attempt and failures."""

    @cron.task(every="hour")
    def patient() -> Postpone:
        return Postpone("10m", reason="the file is not there yet")

    cron.run_due()
    clock.tick("1h")
    assert [run.status for run in cron.run_due().runs] == ["postponed"]
    row = row_of(cron, "patient")
    assert (row.failures, row.attempts) == (0, 0)
    assert row.next_run_at == START + timedelta(minutes=70)
    assert row.scheduled_for == START + timedelta(hours=1)


# The budget


def test_three_runs_are_a_ticks_share(make_cron: MakeCron, url: URL, clock: ManualClock) -> None:
    """Budget(tasks=3, seconds=20) is the default; five due tasks take two ticks."""
    cron = make_cron(url)
    assert cron.settings.budget == Budget(tasks=3, seconds=20)
    for number in range(5):
        cron.task(every="minute", name=f"task{number}")(lambda: None)
    cron.run_due()
    clock.tick("60s")
    first, second, third = (cron.run_due() for _ in range(3))
    assert [len(one.runs) for one in (first, second, third)] == [3, 2, 0]
    assert [one.stopped_by for one in (first, second, third)] == ["tasks", "done", "done"]
    assert first.decisions["task4"].verdict == "skipped"
    assert "due since 2026-01-01 00:01:00 UTC" in first.decisions["task4"].reason
    # Oldest first, then by id: rows of one moment in the order in which they were made.
    assert [run.task for run in first.runs] == ["task0", "task1", "task2"]


def test_a_task_that_outlasts_the_budget_is_finished_and_is_the_last(
    cron: LazyCron, clock: ManualClock
) -> None:
    """21 seconds of 20: its run is recorded, then the tick stops."""
    cron.task(every="minute", name="long")(lambda: clock.tick("21s"))
    cron.task(every="minute", name="next")(lambda: None)
    cron.run_due()
    clock.tick("60s")
    report = cron.run_due()
    assert [(run.task, run.status, run.ms) for run in report.runs] == [("long", "ok", 21000)]
    assert report.stopped_by == "seconds"
    assert report.seconds == 21
    assert [run.task for run in cron.run_due().runs] == ["next"]


def test_a_tick_that_used_up_its_seconds_with_nothing_left_is_done(
    cron: LazyCron, clock: ManualClock
) -> None:
    """`stopped_by` tells that due rows were left behind."""
    cron.task(every="minute", name="long")(lambda: clock.tick("21s"))
    cron.run_due()
    clock.tick("60s")
    assert cron.run_due().stopped_by == "done"


def test_two_tasks_always_due_take_turns(cron: LazyCron, clock: ManualClock) -> None:
    """One run a tick, ten ticks: five runs each."""
    for name in ("a", "b"):
        cron.task(every=1, name=name)(lambda: None)
    cron.run_due()
    clock.tick("1h")
    runs: Counter[str] = Counter()
    for _ in range(10):
        runs.update(run.task for run in cron.run_due(budget=Budget(tasks=1)).runs)
        clock.tick("1h")
    assert runs == {"a": 5, "b": 5}


def test_a_row_runs_at_most_once_in_a_tick(cron: LazyCron, clock: ManualClock) -> None:
    """Not even one that is due again before the tick ends, or that asks for it."""

    @cron.task(every=1)
    def slow() -> None:
        clock.tick("10s")

    @cron.task(every="minute")
    def again() -> Postpone:
        return Postpone(0)

    cron.run_due()
    clock.tick("60s")
    report = cron.run_due(budget=Budget(tasks=None, seconds=None))
    assert [run.task for run in report.runs] == ["slow", "again"]
    clock.tick(1)
    assert {run.task for run in cron.run_due().runs} == {"slow", "again"}


def test_a_tick_without_limits_runs_everything(cron: LazyCron, clock: ManualClock) -> None:
    """Twelve due tasks, one tick."""
    for number in range(12):
        cron.task(every="minute", name=f"task{number}")(lambda: None)
    cron.run_due()
    clock.tick("60s")
    report = cron.run_due(budget=Budget(tasks=None, seconds=None))
    assert (len(report.runs), report.stopped_by) == (12, "done")


def test_next_due_is_the_rows_own_moment(cron: LazyCron, clock: ManualClock) -> None:
    """None where nothing will ever be due."""
    assert cron.run_due().next_due is None
    cron.task(every="minute", name="minute")(lambda: None)
    assert cron.run_due().next_due == START + seconds(60)
    clock.tick("61s")
    assert cron.run_due().next_due == START + seconds(120)


# run_now


def test_run_now_runs_what_is_not_due_and_what_is_disabled(
    cron: LazyCron, clock: ManualClock
) -> None:
    """The run is worked off for its own start, and the interval goes on from there."""
    task = cron.task(every="hour", name="hourly")(lambda: "Rang.")
    cron.sync()
    cron.disable(task)
    clock.tick("10m")
    result = cron.run_now(task, trigger="cli")
    assert result is not None
    assert (result.status, result.message, result.trigger) == ("ok", "Rang.", "cli")
    assert result.scheduled_for == START + timedelta(minutes=10)
    row = row_of(cron, "hourly")
    assert row.next_run_at == START + timedelta(minutes=70)
    assert not row.enabled


def test_run_now_of_a_due_row_keeps_its_due_time(cron: LazyCron, clock: ManualClock) -> None:
    """So the idempotency key is the one that a visitor's tick would have used."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    clock.tick("70m")
    result = cron.run_now("hourly")
    assert result is not None
    assert result.scheduled_for == START + timedelta(hours=1)


def test_run_now_never_runs_what_is_running(cron: LazyCron) -> None:
    """None, also from inside the very run."""
    inner = []

    @cron.task(every="minute")
    def nested() -> None:
        inner.append(cron.run_now("nested"))

    assert cron.run_now("nested") is not None
    assert inner == [None]
    assert statuses(cron) == ["ok"]


def test_a_task_may_run_another_task(cron: LazyCron) -> None:
    """In its own thread; both are recorded."""
    cron.task(every="minute", name="inner")(lambda: None)

    @cron.task(every="minute")
    def outer() -> None:
        cron.run_now("inner")

    assert cron.run_now("outer") is not None
    assert [(run.task, run.status) for run in cron.history()] == [("outer", "ok"), ("inner", "ok")]
    assert not cron._parts.runner.activity._run_began


def test_run_now_says_what_it_cannot_run(cron: LazyCron) -> None:
    """An unknown name, and a task without a schedule, which has no row."""
    cron.task(name="only_enqueued")(lambda: None)
    with pytest.raises(UnknownTaskError, match="no task is named 'typo'; known are: only_enqueued"):
        cron.run_now("typo")
    with pytest.raises(ConfigurationError, match="enqueue one"):
        cron.run_now("only_enqueued")


def test_run_now_makes_a_row_that_somebody_forgot(cron: LazyCron, clock: ManualClock) -> None:
    """Within the minute in which this process does not compare rows and tasks."""
    cron.task(every="minute", name="minute")(lambda: None)
    cron.run_due()
    assert cron._parts.store.recurring.forget("minute", START)
    clock.tick(1)
    result = cron.run_now("minute")
    assert result is not None
    assert result.status == "ok"


def test_run_now_says_that_its_row_was_lost_meanwhile(cron: LazyCron) -> None:
    """Released while it ran: it is lost in the history, and nobody is told that it ran in vain."""

    @cron.task(every="minute")
    def released() -> None:
        assert cron.release("released", force=True)

    result = cron.run_now("released")
    assert result is not None
    assert (result.status, result.ms) == ("lost", None)
    assert statuses(cron) == ["lost"]


def test_a_task_that_releases_itself_does_not_run_again_in_the_same_tick(
    cron: LazyCron, clock: ManualClock
) -> None:
    """At once means after this tick's start."""
    runs = []

    @cron.task(every="minute")
    def released(run: Run) -> None:
        runs.append(run.attempt)
        cron.release("released", force=True)

    cron.run_due()
    clock.tick("60s")
    assert cron.run_due(budget=Budget(tasks=None)).runs == []
    assert runs == [1]


def test_run_now_of_a_task_without_a_schedule_runs_its_oldest_waiting_job(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Due or not, and never one that runs; the idempotency key is the same for each attempt."""
    keys: dict[str, set[str]] = {"a": set(), "b": set()}
    inside = []

    @cron.task
    def job(run: Run, name: str) -> None:
        keys[name].add(run.idempotency_key)
        if name == "a" and run.attempt == 1:
            inside.append(cron.run_now("job"))
            raise RuntimeError

    with pytest.raises(ConfigurationError, match="no job of it waits"):
        cron.run_now(job)
    second = job.using(delay="2h").enqueue("b")
    first = job.using(delay="1h").enqueue("a")
    failed = cron.run_now(job)
    assert failed is not None
    assert (failed.job_id, failed.status, failed.attempt) == (first.id, "failed", 1)
    assert failed.scheduled_for == first.run_at
    assert [one and (one.job_id, one.status) for one in inside] == [(second.id, "ok")]
    clock.tick(1)
    again = cron.run_now("job", trigger="cli")
    assert again is not None
    assert (again.job_id, again.status, again.attempt) == (first.id, "ok", 2)
    assert [len(found) for found in keys.values()] == [1, 1]
    assert keys["a"] != keys["b"]
    with pytest.raises(ConfigurationError, match="no job of it waits"):
        cron.run_now(job)


def test_the_door_is_told_of_each_stored_checkpoint(cron: LazyCron) -> None:
    """With the task's name, and how far it has come if it says so."""
    told: list[tuple[str, int | None, int | None]] = []

    @cron.task(every="minute")
    def walk(run: Run) -> Iterator[int]:
        run.checkpoint("a", done=1, total=2)
        yield 2

    door = Door(
        trigger="cli", budget=Budget(None, None), progressed=lambda *what: told.append(what)
    )
    cron._parts.runner.run_now("walk", door)
    assert told == [("walk", 1, 2), ("walk", None, None)]
