"""From a claim and its outcome to the row's next state."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lazycron.durations import MICROSECOND
from lazycron.model.retry import Retry
from lazycron.model.settle import Claim, Outcome, Policy, Settlement, Status, settle
from lazycron.schedules.shaped import Crontab, Every, Schedule

DUE = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
START = DUE + timedelta(seconds=3)
END = START + timedelta(seconds=2)
EARLIEST = START + MICROSECOND

OK = Outcome(status=Status.OK)
FAILED = Outcome(status=Status.FAILED, message="ValueError: no", error="…")
PAUSED = Outcome(status=Status.PAUSED)
LOST = Outcome(status=Status.LOST, ms=None)


def claim(schedule: Schedule | None, **changes: object) -> Claim:
    """Return a claim of a row that was due at noon and begun three seconds later."""
    plain = Claim(
        id=1,
        name="task",
        key="" if schedule else None,
        token="0" * 32,
        schedule=schedule.text if schedule else "",
        scheduled_for=DUE,
        started_at=START,
        lease_until=START + timedelta(minutes=5),
        trigger="traffic",
        attempt=1,
        failures=0,
        losses=0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def settled(
    schedule: Schedule | None,
    outcome: Outcome,
    policy: Policy | None = None,
    now: datetime = END,
    **changes: object,
) -> Settlement:
    """Settle a claim of this schedule."""
    policy = policy or Policy(schedule=schedule, retry=Retry())
    return settle(claim(schedule, **changes), outcome, policy, now=now, earliest=EARLIEST)


def waits(schedule: Schedule | None, outcome: Outcome, what: str, count: int) -> list[float]:
    """Return the seconds after the start, or after the burial, of tries in a row."""
    since = END if outcome is LOST else START
    found = []
    for number in range(count):
        settlement = settled(schedule, outcome, None, END, **{what: number})
        found.append((settlement.next_run_at - since).total_seconds())
    return found


COUNTED = {"ok", "failures", "postponed", "lost", "runs", "retries"}


def shown(counters: Mapping[str, int]) -> dict[str, int]:
    """Return what is counted of outcomes, without the lateness."""
    return {name: count for name, count in counters.items() if name in COUNTED}


def carried(settlement: Settlement) -> dict[str, Any]:
    """Return what the next claim of a paused row reads back."""
    names = ("counters", "goes_on_for", "slices_ms", "slices_began")
    return {name: getattr(settlement, name) for name in names}


# success


def test_a_run_that_was_ok_is_due_an_interval_after_it_was_due() -> None:
    """Due at noon, every five minutes, begun three seconds late: 12:05:00, also nominally."""
    done = settled(Every("5m"), OK)
    assert done.next_run_at == done.scheduled_for == DUE + timedelta(minutes=5)


def test_success_resets_failures_losses_and_attempts() -> None:
    """As if nothing had ever gone wrong."""
    done = settled(Every("5m"), OK, failures=7, losses=2, attempt=10)
    assert (done.failures, done.losses, done.attempts) == (0, 0, 0)


def test_a_crontab_that_was_ok_is_due_at_its_next_time() -> None:
    """Daily at noon."""
    done = settled(Crontab("0 12 * * *"), OK)
    assert done.next_run_at == done.scheduled_for == DUE + timedelta(days=1)


# failures


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("60s", [120, 240, 480, 960, 1920, 3840, 3840]),
        ("10s", [120, 240, 480, 960, 1920, 3840, 3840]),
        ("1h", [7200, 14400, 21600, 21600]),
        ("1d", [21600, 21600]),
        ("3653d", [21600, 21600]),
    ],
)
def test_failures_in_a_row_back_off_from_the_start(interval: str, expected: list[float]) -> None:
    """The interval doubled each time, six times at most; at least a minute, six hours at most."""
    assert waits(Every(interval), FAILED, "failures", len(expected)) == expected


def test_a_failed_job_is_tried_again_after_a_minute() -> None:
    """Base 30 s: 60, 120, 240, 480."""
    assert waits(None, FAILED, "failures", 4) == [60, 120, 240, 480]


def test_a_failure_keeps_the_due_time_that_is_being_worked_off() -> None:
    """`scheduled_for` is the same through retries; the attempt is counted."""
    again = settled(Every("5m"), FAILED, failures=2, attempt=3)
    assert (again.scheduled_for, again.attempts, again.failures) == (DUE, 3, 3)


def test_any_recorded_outcome_resets_losses() -> None:
    """Failed, postponed, paused."""
    postponed = Outcome(status=Status.POSTPONED, again_at=END)
    for outcome in (OK, FAILED, postponed, PAUSED):
        assert settled(Every("5m"), outcome, losses=3).losses == 0


def test_a_crontab_is_tried_again_after_two_minutes() -> None:
    """A minute's base; daily at noon."""
    assert waits(Crontab("0 12 * * *"), FAILED, "failures", 3) == [120, 240, 480]


def test_a_failed_crontab_waits_never_longer_than_to_its_next_time() -> None:
    """Every minute: due at 12:01 by the schedule, with the failure counted and attempts anew."""
    again = settled(Crontab("* * * * *"), FAILED, failures=4, attempt=3)
    assert again.next_run_at == again.scheduled_for == DUE + timedelta(minutes=1)
    assert (again.failures, again.attempts) == (5, 0)


def test_a_retry_that_falls_on_the_next_regular_time_is_that_time() -> None:
    """Begun at noon sharp, tried again at 12:02, due at 12:02."""
    again = settled(Crontab("*/2 * * * *"), FAILED, started_at=DUE)
    assert again.next_run_at == again.scheduled_for == DUE + timedelta(minutes=2)
    assert again.attempts == 0


def test_the_tasks_own_retry_counts() -> None:
    """Base ten seconds."""
    policy = Policy(schedule=Every("1h"), retry=Retry(base="10s"))
    again = settled(Every("1h"), FAILED, policy)
    assert again.next_run_at == START + timedelta(seconds=20)


# losses


def test_the_first_loss_is_due_at_once_and_the_next_ones_back_off_from_the_burial() -> None:
    """Every five minutes: at once, then 600, 1200, 2400 s."""
    assert waits(Every("5m"), LOST, "losses", 4) == [0, 600, 1200, 2400]


@pytest.mark.parametrize("schedule", [Every("10s"), Crontab("0 12 * * *")])
def test_losses_have_the_same_base_as_failures(schedule: Schedule) -> None:
    """At least a minute; a crontab a minute."""
    assert waits(schedule, LOST, "losses", 8) == [0, 120, 240, 480, 960, 1920, 3840, 3840]


def test_a_lost_job_has_a_base_of_thirty_seconds_and_its_loss_is_an_attempt() -> None:
    """At once, then a minute, then two."""
    assert waits(None, LOST, "losses", 3) == [0, 60, 120]
    assert settled(None, LOST, attempt=2).attempts == 2


def test_a_loss_leaves_failures_and_keeps_the_due_time() -> None:
    """Two failures remain two."""
    again = settled(Every("5m"), LOST, failures=2, losses=1)
    assert (again.failures, again.losses, again.scheduled_for) == (2, 2, DUE)


@pytest.mark.parametrize(
    ("schedule", "following"),
    [
        (Every("5m"), END + timedelta(minutes=5)),
        (Crontab("0 12 * * *"), DUE + timedelta(days=1)),
    ],
)
def test_a_lost_task_that_is_to_skip_goes_to_its_next_regular_time(
    schedule: Schedule, following: datetime
) -> None:
    """Never the same due time again."""
    policy = Policy(schedule=schedule, retry=Retry(), on_lost="skip")
    again = settled(schedule, LOST, policy, attempt=1, losses=1)
    assert again.next_run_at == again.scheduled_for == following
    assert (again.attempts, again.losses) == (0, 2)


def test_a_lost_job_is_run_again_whatever_its_task_says_about_skipping() -> None:
    """A job has no next regular time."""
    policy = Policy(schedule=None, retry=Retry(), on_lost="skip")
    assert settled(None, LOST, policy).next_run_at == END


# jobs


def test_a_job_that_is_done_goes_and_a_recurring_row_stays() -> None:
    """The row runs once."""
    assert settled(None, OK).ending == "goes"
    assert settled(Every("5m"), OK).ending == "stays"


@pytest.mark.parametrize("outcome", [FAILED, LOST], ids=["failed", "lost"])
def test_a_job_gives_up_after_as_many_attempts_as_its_limit(outcome: Outcome) -> None:
    """Five, failures and losses together."""
    endings = [settled(None, outcome, attempt=attempt).ending for attempt in (1, 4, 5, 6)]
    assert endings == ["stays", "stays", "dies", "dies"]


@pytest.mark.parametrize("outcome", [FAILED, LOST], ids=["failed", "lost"])
@pytest.mark.parametrize("schedule", [Every("5m"), Crontab("0 12 * * *")], ids=["every", "crontab"])
def test_a_recurring_task_never_gives_up(schedule: Schedule, outcome: Outcome) -> None:
    """Not after a thousand attempts."""
    again = settled(schedule, outcome, attempt=1000, failures=999, losses=999)
    assert again.ending == "stays"


@pytest.mark.parametrize("outcome", [PAUSED, Outcome(status=Status.POSTPONED, again_at=END)])
def test_neither_pausing_nor_postponing_uses_up_a_jobs_limit(outcome: Outcome) -> None:
    """Its precondition may take its time."""
    again = settled(None, outcome, attempt=5)
    assert (again.ending, again.attempts) == ("stays", 4)


@pytest.mark.parametrize("outcome", [OK, FAILED, LOST, PAUSED], ids=lambda one: str(one.status))
def test_a_job_whose_arguments_were_replaced_while_it_ran_is_due_at_once(outcome: Outcome) -> None:
    """As if it had just been enqueued, whatever its run came to."""
    policy = Policy(schedule=None, retry=Retry())
    held = claim(None, attempt=5, failures=4, losses=2, asked_again=END)
    again = settle(held, outcome, policy, now=END, earliest=EARLIEST)
    assert (again.next_run_at, again.scheduled_for, again.ending) == (END, END, "stays")
    assert (again.attempts, again.failures, again.losses) == (0, 0, 0)


# postponed and paused


def test_a_postponed_run_is_due_when_it_asked_to_be() -> None:
    """No failure, no attempt, the same due time."""
    later = START + timedelta(minutes=10)
    outcome = Outcome(status=Status.POSTPONED, again_at=later)
    again = settled(Every("5m"), outcome, failures=2, attempt=3)
    assert (again.next_run_at, again.scheduled_for) == (later, DUE)
    assert (again.failures, again.attempts) == (2, 2)


def test_a_paused_run_is_due_at_once() -> None:
    """At the moment it ended; a slice is no attempt."""
    again = settled(Every("5m"), PAUSED, failures=1, attempt=1)
    assert (again.next_run_at, again.scheduled_for) == (END, DUE)
    assert (again.failures, again.attempts) == (1, 0)


# "at once"


@pytest.mark.parametrize(
    "outcome",
    [Outcome(status=Status.POSTPONED, again_at=START), PAUSED, LOST],
    ids=["postponed", "paused", "lost"],
)
def test_at_once_is_a_microsecond_after_the_ticks_start_at_the_earliest(outcome: Outcome) -> None:
    """A row runs at most once in a tick, even when no time has passed."""
    again = settled(Every("5m"), outcome, now=START)
    assert again.next_run_at == START + MICROSECOND


def test_no_outcome_makes_a_row_due_within_its_own_tick() -> None:
    """A tick that has taken longer than the interval: due just after the tick's start."""
    policy = Policy(schedule=Every(1), retry=Retry())
    late = START + timedelta(hours=1)
    done = settle(claim(Every(1)), OK, policy, now=late, earliest=late + MICROSECOND)
    assert done.next_run_at == late + MICROSECOND


# counters


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [
        (OK, {"ok": 1, "runs": 1}),
        (FAILED, {"failures": 1, "runs": 1}),
        (LOST, {"lost": 1, "runs": 1}),
        (Outcome(status=Status.POSTPONED, again_at=END), {"postponed": 1, "runs": 1}),
        (PAUSED, {}),
    ],
    ids=lambda value: value.status if isinstance(value, Outcome) else "",
)
def test_each_outcome_is_counted(outcome: Outcome, counted: dict[str, int]) -> None:
    """Slices of a paused run are one run."""
    assert shown(settled(Every("5m"), outcome).counters) == counted


def test_how_late_first_attempts_begin_is_counted() -> None:
    """The last one's and the largest lateness in seconds; late is more than a minute."""
    on_time = settled(Every("5m"), OK, counters={"most_lateness": 40}).counters
    assert (on_time["lateness"], on_time["most_lateness"]) == (3, 40)
    assert "late" not in on_time
    began = DUE + timedelta(seconds=61)
    late = settled(Every("5m"), OK, started_at=began, counters={"late": 1}).counters
    assert (late["lateness"], late["most_lateness"], late["late"]) == (61, 61, 2)
    retried = settled(Every("5m"), OK, started_at=began, attempt=2).counters
    assert "lateness" not in retried


def test_slices_are_one_run_that_is_counted_at_its_end() -> None:
    """Two slices and the last one: one run, not late though the last began long after."""
    first = settled(Every("5m"), replace(PAUSED, ms=20))
    second = settled(Every("5m"), replace(PAUSED, ms=30), **carried(first))
    began = DUE + timedelta(minutes=4)
    last = settled(Every("5m"), OK, started_at=began, **carried(second))
    assert [shown(one.counters) for one in (first, second, last)] == [{}, {}, {"ok": 1, "runs": 1}]
    assert (second.goes_on_for, second.slices_ms, second.slices_began) == (DUE, 50, START)
    assert (last.claim.began_at, last.claim.earlier_ms) == (START, 50)
    assert (last.goes_on_for, last.slices_ms, last.slices_began) == (None, None, None)
    assert "late" not in last.counters


@pytest.mark.parametrize("outcome", [OK, FAILED, LOST], ids=lambda one: str(one.status))
def test_slices_of_another_due_time_are_not_this_runs(outcome: Outcome) -> None:
    """An operator moved the row meanwhile."""
    stale: dict[str, Any] = {
        "goes_on_for": DUE - timedelta(hours=1),
        "slices_ms": 50,
        "slices_began": DUE,
    }
    claimed = settled(Every("5m"), outcome, **stale).claim
    assert (claimed.goes_on, claimed.began_at, claimed.earlier_ms) == (False, START, 0)


def test_a_second_attempt_is_counted_as_a_retry() -> None:
    """On top of what was counted before, which is left as it was."""
    before = {"ok": 3, "runs": 4, "failures": 1}
    done = settled(Every("5m"), OK, attempt=2, counters=before)
    assert done.counters == {"ok": 4, "runs": 5, "failures": 1, "retries": 1}
    assert before == {"ok": 3, "runs": 4, "failures": 1}


def test_a_settlement_carries_claim_and_outcome_and_when_it_ended() -> None:
    """What the history row is made of."""
    done = settled(Every("5m"), OK)
    assert (done.claim.token, done.outcome, done.finished_at) == ("0" * 32, OK, END)


def test_a_loss_after_a_checkpoint_is_no_attempt_up_to_ten_times_the_limit() -> None:
    """A job that comes further each time goes on; one that only says so dies in the end."""
    policy = Policy(schedule=None, retry=Retry(limit=2))
    job, now = claim(None, has_advanced=True), START
    endings, waits = [], []
    for _ in range(30):
        now += timedelta(hours=7)
        step = settle(job, LOST, policy, now=now, earliest=now)
        endings.append(step.ending)
        waits.append((step.next_run_at - now).total_seconds())
        job = replace(
            job,
            attempt=step.attempts + 1,
            losses=step.losses,
            counters=step.counters,
            started_at=now,
        )
        if step.ending != "stays":
            break
    assert endings == ["stays"] * 20 + ["dies"]  # the 20th is the first attempt
    assert waits[:3] == [0, 60, 120]
    assert waits == sorted(waits)


def test_a_loss_after_a_checkpoint_is_one_all_the_same() -> None:
    """Of a recurring task it is another attempt, and what may not be repeated is not."""
    again = settled(Every(timedelta(hours=1)), LOST, has_advanced=True)
    assert (again.attempts, again.losses) == (1, 1)
    skip = Policy(schedule=None, retry=Retry(), on_lost="skip")
    assert settled(None, LOST, skip, has_advanced=True).ending == "dies"
