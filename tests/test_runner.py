"""Ticks on a clock that is a variable, on every database."""

from datetime import timedelta

from lazycron import LazyCron
from lazycron.testing import ManualClock, tick_through
from tests.conftest import START


def test_a_minute_task_runs_at_sixty_seconds_and_once(cron: LazyCron, clock: ManualClock) -> None:
    """Ticks at 30, 59, 60, 60, 61 seconds run a minute task only at the first 60."""

    @cron.task(every="minute")
    def minute() -> None:
        pass

    verdicts = {}
    cron.run_due()
    for number, seconds in enumerate((30, 59, 60, 60, 61)):
        clock.set(START + timedelta(seconds=seconds))
        verdicts[number, seconds] = cron.run_due().decisions["minute"].verdict
    assert verdicts == {
        (0, 30): "skipped",
        (1, 59): "skipped",
        (2, 60): "ran",
        (3, 60): "skipped",
        (4, 61): "skipped",
    }


def test_two_hours_of_minutes_run_each_task_as_often_as_its_interval(cron: LazyCron) -> None:
    """Every 60 s: a minute task 120 times, an hourly one twice, a daily one not at all."""
    for name in ("minute", "hour", "day"):
        cron.task(every=name, name=name)(lambda: None)
    cron.run_due()
    reports = tick_through(cron, START, START + timedelta(hours=2), "60s")
    runs = [run.task for report in reports for run in report.runs]
    assert (runs.count("minute"), runs.count("hour"), runs.count("day")) == (120, 2, 0)
