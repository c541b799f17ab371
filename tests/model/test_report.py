"""What a tick may take, and what it tells."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lazycron.errors import ConfigurationError, ScheduleError
from lazycron.model.report import Budget, Decision, Decisions, TickReport, to_result, to_trigger
from lazycron.model.settle import Claim, Outcome, Status

DUE = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def test_a_budget_is_three_runs_and_twenty_seconds() -> None:
    """Where nothing else is said."""
    assert (Budget().tasks, Budget().length) == (3, timedelta(seconds=20))


def test_a_budget_without_limits_is_longer_than_any_tick() -> None:
    """None for runs, None for seconds."""
    assert Budget(tasks=None, seconds=None).length > timedelta(days=36_000)


def test_a_budgets_seconds_are_any_duration() -> None:
    """A text, say."""
    assert Budget(seconds="1m30s").length == timedelta(seconds=90)


@pytest.mark.parametrize("tasks", [0, -1, True, 1.5, "3", float("nan")])
def test_a_number_of_runs_below_one_is_refused(tasks: Any) -> None:  # noqa: ANN401 - wrong ones
    """The error names it."""
    with pytest.raises(ConfigurationError) as caught:
        Budget(tasks=tasks)
    assert str(caught.value) == f"Budget(tasks={tasks!r}): pass a whole number from 1 up, or None"


@pytest.mark.parametrize("seconds", [-1, "soonish", float("nan"), True])
def test_seconds_that_are_no_duration_are_refused(seconds: Any) -> None:  # noqa: ANN401 - wrong ones
    """The error names them."""
    with pytest.raises(ScheduleError, match=r"^Budget\(seconds\) .* is not accepted"):
        Budget(seconds=seconds)


@pytest.mark.parametrize("word", ["traffic", "admin", "url", "cli", "loop", "manual"])
def test_there_are_six_triggers(word: str) -> None:
    """What made us look."""
    assert to_trigger(word) == word


@pytest.mark.parametrize("word", ["", "cron", "URL", None, 5])
def test_any_other_trigger_is_refused(word: str) -> None:
    """The error lists the words."""
    with pytest.raises(ConfigurationError) as caught:
        to_trigger(word)
    expected = f"trigger {word!r} is none of traffic, admin, url, cli, loop, manual"
    assert str(caught.value) == expected


def test_an_unknown_name_reads_unbound() -> None:
    """Without becoming a key."""
    decisions = Decisions({"known": Decision("ran", "ok: Done.")}, frozenset({"known", "idle"}))
    assert decisions["known"].verdict == "ran"
    assert decisions["stranger"] == Decision("unbound", "no task is registered as 'stranger'")
    assert decisions["idle"].verdict == "skipped"
    assert list(decisions) == ["known"]


def run(key: str | None) -> Claim:
    """Return the claim of a run."""
    return Claim(
        id=7,
        name="nightly",
        key=key,
        token="0" * 32,
        schedule="every 5m",
        scheduled_for=DUE,
        started_at=DUE,
        lease_until=DUE,
        trigger="url",
        attempt=2,
        failures=1,
        losses=0,
    )


def test_a_recurring_tasks_run_has_no_job_id_and_a_jobs_run_has() -> None:
    """A job without a key and one with a key."""
    outcome = Outcome(status=Status.OK, ms=12)
    assert [to_result(run(key), outcome).job_id for key in ("", None, "k")] == [None, 7, 7]


def test_a_report_is_json_with_moments_in_utc() -> None:
    """What the cron URL answers."""
    report = TickReport(
        runs=[to_result(run(""), Outcome(status=Status.FAILED, message="ValueError: no", ms=12))],
        decisions=Decisions({"nightly": Decision("ran", "failed: ValueError: no")}),
        next_due=DUE + timedelta(minutes=5),
        stopped_by="tasks",
        seconds=0.12345,
    )
    assert json.loads(json.dumps(report.as_json())) == {
        "runs": [
            {
                "task": "nightly",
                "job_id": None,
                "status": "failed",
                "message": "ValueError: no",
                "ms": 12,
                "attempt": 2,
                "scheduled_for": "2026-01-01T12:00:00+00:00",
                "trigger": "url",
            }
        ],
        "decisions": {"nightly": {"verdict": "ran", "reason": "failed: ValueError: no"}},
        "next_due": "2026-01-01T12:05:00+00:00",
        "stopped_by": "tasks",
        "seconds": 0.123,
    }


def test_an_empty_report_is_json_too() -> None:
    """A database without tables."""
    assert TickReport().as_json() == {
        "runs": [],
        "decisions": {},
        "next_due": None,
        "stopped_by": "done",
        "seconds": 0.0,
    }
