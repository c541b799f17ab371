"""What `check`, `list` and `why` say of tasks and jobs that need a person."""

from datetime import timedelta

import pytest
from sqlalchemy import URL

from lazycron import LazyCron, Retry
from lazycron.schema import scheduled_task
from lazycron.testing import ManualClock
from lazycron.tick.why import Reason
from lazycron.verbs.check import Problem
from lazycron.verbs.overview import TaskStatus
from tests.conftest import MakeCron
from tests.scenes import claim, claim_by_name
from tests.tables import set_row

NAME = "chore"


def fail() -> None:
    """Fail as a task does whose mailbox is gone."""
    message = "no such mailbox"
    raise RuntimeError(message)


def hourly(cron: LazyCron, every: str = "1h", name: str = NAME, **options: object) -> LazyCron:
    """Register an hourly task and make its row."""
    cron.task(every=every, name=name, **options)(lambda: None)  # type: ignore[call-overload]
    cron.sync()
    return cron


def found(cron: LazyCron) -> dict[str, Problem]:
    """Return what check says, by name."""
    return {one.name: one for one in cron.check()}


def status(cron: LazyCron, name: str = NAME) -> TaskStatus:
    """Return one task's status."""
    return next(one for one in cron.overview() if one.name == name)


def renew(cron: LazyCron, clock: ManualClock) -> None:
    """Renew a claim's lease, as a live run does after each third of it."""
    until = clock.now() + timedelta(minutes=5)
    set_row(cron._parts.store.engine, NAME, next_run_at=until)


@pytest.mark.parametrize("schedule", [{"every": "1h"}, {"crontab": "0 * * * *"}])
def test_a_task_that_has_been_due_for_more_than_twice_its_interval_is_late(
    cron: LazyCron, clock: ManualClock, schedule: dict[str, str]
) -> None:
    """Not at twice the interval yet; a disabled one never."""
    cron.task(name=NAME, **schedule)(lambda: None)  # type: ignore[call-overload]
    cron.sync()
    due = status(cron).next
    assert due is not None
    clock.set(due + timedelta(hours=2))
    assert (status(cron).late, found(cron)) == (False, {})
    clock.set(due + timedelta(days=3))
    assert status(cron).late
    (problem,) = cron.check()
    assert (problem.name, problem.severity) == ("late", "error")
    assert problem.text.startswith("chore is late: it has been due for 3 days, since 2026-01-01 ")
    cron.disable(NAME)
    assert (status(cron).late, found(cron)) == (False, {})


def test_a_weekends_gap_is_not_late(cron: LazyCron, clock: ManualClock) -> None:
    """Twice the gap that follows the due time: Friday's is three days long."""
    cron.task(crontab="0 9 * * mon-fri", name=NAME)(lambda: None)
    clock.tick("12h")  # Thursday noon: due on Friday, at 9
    cron.sync()
    clock.tick("5d")
    assert not status(cron).late
    clock.tick("3d")
    assert status(cron).late


def test_a_run_that_renews_its_lease_is_long_and_not_hanging(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Longer than the budget; nobody is told to end it."""
    hourly(cron)
    claim_by_name(cron, NAME, clock.now())
    clock.tick("30s")
    said = cron.why(NAME)
    assert said.reason is Reason.RUNNING
    assert str(said) == (
        "running for 30 seconds, longer than a tick's budget of 20 seconds, since 2026-01-01 "
        "00:00:00 UTC in host:1; its lease is renewed until 2026-01-01 00:05:00 UTC, and its next "
        "run comes after this one"
    )
    assert cron.check() == []
    assert not status(cron).hanging


def test_a_run_that_has_ceased_to_renew_its_lease_hangs(cron: LazyCron, clock: ManualClock) -> None:
    """Then, and only then, is a way to end it named, with its price."""
    hourly(cron)
    claim_by_name(cron, NAME, clock.now())
    clock.tick("149s")
    assert not status(cron).hanging
    clock.tick("1s")
    assert status(cron).hanging
    said = cron.why(NAME)
    assert said.reason is Reason.HANGING
    assert "its lease was not renewed after 2026-01-01 00:00:00 UTC" in str(said)
    assert "`lazycron release chore --force` frees it now, but if its process is still" in str(said)
    (problem,) = cron.check()
    assert (problem.name, problem.text) == ("hanging", f"chore: {said}")
    clock.tick("6h")
    (problem,) = cron.check()
    assert problem.name == "hanging"
    assert "its lease ended at 2026-01-01 00:05:00 UTC; the next tick records" in problem.text


def test_a_run_of_hours_is_named(cron: LazyCron, clock: ManualClock) -> None:
    """Late after twice its interval; before that it is a warning that it lasts."""
    hourly(cron, every="6h")
    claim_by_name(cron, NAME, clock.now())
    clock.tick("2h")
    renew(cron, clock)
    (problem,) = cron.check()
    assert (problem.name, problem.severity) == ("long_run", "warning")
    assert problem.text.startswith("chore: running for 2 hours, longer than a tick's budget")
    assert "force" not in problem.text
    clock.tick("11h")
    renew(cron, clock)
    (problem,) = cron.check()
    assert (problem.name, problem.severity, status(cron).late) == ("late", "error", True)
    assert "running for 13 hours" in problem.text


def test_three_failures_in_a_row_are_named(cron: LazyCron) -> None:
    """Two are not; a success ends it."""
    fails = [True, True, True, False]

    def chore() -> None:
        if fails.pop(0):
            fail()

    cron.task(every="1h", name=NAME)(chore)
    seen = []
    for _ in range(4):
        cron.run_now(NAME)
        seen.append(sorted(found(cron)))
        if seen[-1]:
            text = found(cron)["failing"].text
            assert text.startswith("chore has failed 3 times in a row, last with RuntimeError: no")
    assert seen == [[], [], ["failing"], []]


def test_jobs_that_hang_are_late_or_fail_are_named(cron: LazyCron, clock: ManualClock) -> None:
    """By `check`, `list` and `why`: since when, and where."""
    mail = cron.task(name=NAME)(lambda: None)
    job = mail.enqueue()
    cron.sync()
    clock.tick("1h")
    assert (status(cron).late, cron.check()) == (False, [])
    clock.tick("1s")
    (problem,) = cron.check()
    assert (problem.name, status(cron).late) == ("late", True)
    assert problem.text.startswith(f"job {job.id} of chore is late: it has been due for 1 hour 1 s")
    claim(cron, clock.now())
    assert (status(cron).late, cron.check()) == (False, [])
    clock.tick("30s")
    said = f"job {job.id}: running for 30 seconds, longer than a tick's budget of 20 seconds, since"
    assert said in str(cron.why(NAME))
    clock.tick("2m")
    assert status(cron).hanging
    assert f"`lazycron release --job {job.id} --force` frees it now" in str(cron.why(NAME))
    assert found(cron)["hanging"].text.startswith(f"job {job.id} of chore: hanging: it has been")
    clock.tick("2h")
    renew(cron, clock)
    assert (status(cron).late, status(cron).hanging) == (True, False)
    assert sorted(found(cron)) == ["late"]
    assert [one.started_at for one in cron.jobs()] == [
        clock.now() - timedelta(hours=2, seconds=150)
    ]


def test_jobs_that_fail_and_die_are_named(cron: LazyCron, clock: ManualClock) -> None:
    """From the third failure on, and as dead once the limit is reached."""
    job = cron.task(name=NAME, retry=Retry(limit=4, base="1s", factor=1))(fail).enqueue()
    seen = []
    for _ in range(4):
        cron.run_due()
        seen.append(sorted(found(cron)))
        clock.tick("1m")
    assert seen == [[], [], ["failing"], ["dead_jobs"]]
    assert found(cron)["dead_jobs"].text.startswith(
        f"chore has 1 dead job ({job.id}), the first with RuntimeError: no such mailbox"
    )


def test_many_dead_jobs_hide_no_other(cron: LazyCron, clock: ManualClock) -> None:
    """Ten ids are enough."""
    mail = cron.task(name=NAME)(lambda: None)
    jobs = [mail.enqueue() for _ in range(130)]
    with cron._parts.store.engine.begin() as connection:
        connection.execute(
            scheduled_task.update()
            .where(scheduled_task.c.id != jobs[-1].id)
            .values(state="dead", enabled=False)
        )
    clock.tick("2h")
    assert sorted(found(cron)) == ["dead_jobs", "late"]
    assert found(cron)["dead_jobs"].text.startswith("chore has 129 dead jobs (")


def test_a_severity_is_an_error_unless_it_is_said(sqlite: URL, make_cron: MakeCron) -> None:
    """No secret is a warning: the cron URL is optional. One that is too short is an error."""
    assert Problem("name", "text").severity == "error"
    short, off = make_cron(sqlite, secret="sesame"), make_cron(sqlite, enabled=False)
    assert [one.severity for one in short.check()] == ["error"]
    assert [one.severity for one in off.check()] == ["warning"]
