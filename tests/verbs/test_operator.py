"""What an operator does, by name or with the task in hand."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import URL, create_engine, insert

from lazycron import LazyCron
from lazycron.errors import (
    BusyError,
    ConfigurationError,
    ScheduleError,
    UnknownTaskError,
)
from lazycron.schema import once_key
from lazycron.store.recurring import Recurring
from lazycron.testing import ManualClock
from lazycron.verbs.operator import note_action
from tests.conftest import START, MakeCron
from tests.scenes import claim_by_name, row_of, seconds, statuses
from tests.tables import put_rows, set_row

HOUR = timedelta(hours=1)


def test_overview_shows_every_task_at_a_glance(cron: LazyCron, clock: ManualClock) -> None:
    """By name, rows without code included, with what the last run came to."""

    @cron.task(every="hour", label="Count the sheep")
    def count() -> str:
        """Count every sheep.

        Then sleep.
        """
        return "42 sheep."

    cron.task(name="only_enqueued")(lambda: None)
    put_rows(cron._parts.store.engine, ["gone"], due=START + 2 * HOUR)
    cron.sync()
    clock.tick("1h")
    cron.run_due("url")
    clock.tick("10m")
    counted, gone, enqueued = cron.overview()
    assert (counted.name, counted.label, counted.explanation) == (
        "count",
        "Count the sheep",
        "Count every sheep.",
    )
    assert (counted.schedule, counted.enabled, counted.known) == ("every hour", True, True)
    assert (counted.last, counted.next) == (START + HOUR, START + 2 * HOUR)
    assert (counted.status, counted.message, counted.ms) == ("ok", "42 sheep.", 0)
    assert (counted.trigger, counted.failures, counted.counters["runs"]) == ("url", 0, 1)
    assert not any((counted.running, counted.due, counted.late, counted.overridden))
    assert (gone.name, gone.known, gone.schedule) == ("gone", False, "every hour")
    assert (enqueued.name, enqueued.next, enqueued.known) == ("only_enqueued", None, True)


def test_a_task_is_due_then_late_then_running(cron: LazyCron, clock: ManualClock) -> None:
    """Late once it has been due, or running, for more than twice its interval."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()

    def look() -> tuple[bool, bool, bool]:
        (one,) = cron.overview()
        return one.due, one.late, one.running

    found = []
    for at in (59, 60, 180, 181):
        clock.set(START + timedelta(minutes=at))
        found.append(look())
    assert found == [
        (False, False, False),
        (True, False, False),
        (True, False, False),
        (True, True, False),
    ]
    cron.run_due()
    claim_by_name(cron, "hourly", clock.now())
    assert look() == (False, False, True)
    assert cron.overview()[0].next is None
    clock.tick("2h")
    assert look() == (False, False, True)
    clock.tick("1s")
    assert look() == (False, True, True)


def test_disable_and_enable_leave_the_row_due_as_it_was(cron: LazyCron, clock: ManualClock) -> None:
    """A tick passes it by in between; enabled after a month it is due at once, for then."""
    task = cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    cron.disable(task)
    cron.disable("hourly")
    clock.tick("30d")
    decision = cron.run_due().decisions["hourly"]
    assert decision.verdict == "skipped"
    assert "lazycron enable hourly" in decision.reason
    assert row_of(cron, "hourly").next_run_at == START + HOUR
    cron.enable(task)
    cron.enable("hourly")
    (run,) = cron.run_due().runs
    assert run.scheduled_for == START + HOUR


def test_set_interval_takes_a_minute_to_thirty_days(cron: LazyCron) -> None:
    """As a text, a number of seconds or a timedelta."""
    cron.task(every="60d", name="rare")(lambda: None)
    cron.sync()
    for length, due in (("30d", 30 * 86400), ("60s", 60), (60, 60), (timedelta(minutes=1), 60)):
        cron.set_interval("rare", length)
        assert row_of(cron, "rare").next_run_at == START + seconds(due)
        assert cron.overview()[0].overridden


def test_set_interval_refuses_what_is_out_of_bounds(cron: LazyCron) -> None:
    """A ValueError, and the row is as it was."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    for length in ("59s", 59.999, "31d", 30 * 86400 + 1, 0, -5, "", "soonish", float("nan")):
        with pytest.raises(ValueError, match="interval") as caught:
            cron.set_interval("hourly", length)
        assert isinstance(caught.value, ScheduleError)
    assert row_of(cron, "hourly").schedule_override is None


def test_set_interval_looks_again_at_a_row_that_changed_meanwhile(
    cron: LazyCron, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claimed between the look and the write: the lease is left alone."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    looked = Recurring.of
    looks = []

    def of(rows: Recurring, name: str) -> object:
        found = looked(rows, name)
        looks.append(found)
        if len(looks) == 1:
            claim_by_name(cron, "hourly", clock.now())
        return found

    monkeypatch.setattr(Recurring, "of", of)
    cron.set_interval("hourly", "2m")
    monkeypatch.undo()
    assert len(looks) == 2
    found = row_of(cron, "hourly")
    assert (found.next_run_at, found.schedule_override) == (START + seconds(300), "every 2m")


def test_reset_of_a_row_whose_schedule_a_hand_has_garbled_uses_the_code(cron: LazyCron) -> None:
    """Such a row runs by the code's schedule meanwhile, and stops nobody."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    set_row(cron._parts.store.engine, "hourly", schedule="now and then", counters="[", progress="{")
    assert cron.run_now("hourly") is not None
    assert row_of(cron, "hourly").next_run_at == START + HOUR
    assert cron.overview()[0].schedule == "now and then"
    cron.set_interval("hourly", "10m")
    cron.reset_schedule("hourly")
    assert row_of(cron, "hourly").schedule_override is None


def test_release_needs_force_for_a_claim_renewed_lately(cron: LazyCron, clock: ManualClock) -> None:
    """Within half a lease; the run is lost in the history and the row is due at once."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    assert cron.release("hourly") is False
    held = claim_by_name(cron, "hourly", clock.now())
    clock.tick("149s")
    with pytest.raises(BusyError, match="host:1, which renewed its lease lately; force=True"):
        cron.release("hourly")
    cron._parts.store.renew(held, clock.now() + seconds(300))
    clock.tick("149s")
    with pytest.raises(BusyError):
        cron.release("hourly")
    clock.tick("1s")
    assert cron.release("hourly") is True
    clock.tick(1)
    assert len(cron.run_due().runs) == 1
    claim_by_name(cron, "hourly", clock.now())
    assert cron.release("hourly", force=True) is True
    assert statuses(cron) == ["lost", "ok", "lost"]
    assert cron.history()[0].message == "Lost: released by hand."


def test_forget_refuses_known_and_running_tasks(cron: LazyCron) -> None:
    """A known one would come back; a running one has to be released first."""
    task = cron.task(every="hour", name="known")(lambda: None)
    put_rows(cron._parts.store.engine, ["gone", "held"], due=START)
    cron.sync()
    set_row(cron._parts.store.engine, "held", lock_token="0" * 32, locked_by="host:1")
    with pytest.raises(ConfigurationError, match="disable it instead"):
        cron.forget(task)
    with pytest.raises(BusyError, match="release it first"):
        cron.forget("held")
    cron.forget("gone")
    with pytest.raises(UnknownTaskError):
        cron.forget("gone")
    assert {row.name for row in cron._parts.store.recurring.all()} == {"held", "known"}


TYPOS: list[Callable[[LazyCron], object]] = [
    lambda cron: cron.enable("typo"),
    lambda cron: cron.disable("typo"),
    lambda cron: cron.set_interval("typo", "1h"),
    lambda cron: cron.reset_schedule("typo"),
    lambda cron: cron.release("typo"),
    lambda cron: cron.forget("typo"),
    lambda cron: cron.run_now("typo"),
    lambda cron: cron.history("typo"),
    lambda cron: cron.enable(42),  # type: ignore[arg-type]
    lambda cron: cron.run_now(None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    "act",
    [
        lambda cron: cron.disable("chore"),
        lambda cron: cron.set_interval("chore", "2h"),
        lambda cron: cron.release("chore", force=True),
        lambda cron: cron.prune(),
        lambda cron: cron.set_triggers(traffic=False),
        lambda cron: cron.discard_job(2),
        lambda cron: cron.sync(),
    ],
    ids=["disable", "set_interval", "release", "prune", "set_triggers", "discard_job", "sync"],
)
def test_a_held_lock_is_a_busy_error_for_every_verb_that_writes(
    sqlite: URL, make_cron: MakeCron, act: Callable[[LazyCron], object]
) -> None:
    """On SQLite somebody may write for longer than one waits; the verb can be said again."""
    engine = create_engine(sqlite, connect_args={"timeout": 0})
    cron = make_cron(engine)
    cron.task(every="hour", name="chore")(lambda: None)
    job = cron.task(name="job")(lambda: None)
    cron.sync()
    assert job.enqueue().id == 2
    held = {"lock_token": "0" * 32, "locked_by": "host:1"}
    set_row(engine, "chore", **held, last_run_at=START, last_trigger="url")
    cron.task(every="hour", name="new")(lambda: None)
    with engine.begin() as connection:
        connection.execute(
            insert(once_key).values(key="k", created_at=START, expires_at=START - HOUR)
        )
    with engine.connect() as holder:
        holder.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(BusyError, match=r"lock.*try again"):
            act(cron)
    act(cron)
    engine.dispose()


def test_a_name_that_nothing_has_is_an_unknown_task(cron: LazyCron) -> None:
    """A KeyError whose text is a sentence."""
    for verb in TYPOS:
        with pytest.raises(UnknownTaskError) as caught:
            verb(cron)
        assert isinstance(caught.value, KeyError)
        assert "typo" in str(caught.value) or "pass a task's name" in str(caught.value)


def test_history_is_newest_first_and_bounded(cron: LazyCron, clock: ManualClock) -> None:
    """Of one task or of all; of a known task that never ran it is empty."""
    for name in ("a", "b"):
        cron.task(every="hour", name=name)(lambda: None)
    never = cron.task(every="hour", name="never")(lambda: None)
    for _ in range(3):
        clock.tick(1)
        cron.run_now("a")
        cron.run_now("b")
    assert [run.task for run in cron.history(limit=3)] == ["b", "a", "b"]
    assert [run.task for run in cron.history("a")] == ["a", "a", "a"]
    assert cron.history(never) == []
    for limit in (0, -1, True, 1.5, "3"):
        with pytest.raises(ValueError, match="whole number"):
            cron.history(limit=limit)  # type: ignore[arg-type]


def test_the_triggers_survive_a_state_file_that_was_deleted(cron: LazyCron) -> None:
    """They are the database's; the file only mirrors them."""
    assert (cron.state().traffic, cron.state().admin) == (True, True)
    cron.set_triggers(traffic=False)
    assert (cron.state().traffic, cron.state().admin) == (False, True)
    cron._parts.statefile.path.unlink()
    assert (cron.state().traffic, cron.state().admin) == (False, True)
    cron.set_triggers(traffic=True, admin=False)
    assert (cron.state().traffic, cron.state().admin) == (True, False)
    with pytest.raises(ConfigurationError):
        cron.set_triggers(traffic="off")  # type: ignore[arg-type]


def test_another_host_hears_of_the_triggers_within_half_a_minute(
    url: URL, make_cron: MakeCron, clock: ManualClock, tmp_path: object
) -> None:
    """With a state file of its own, by its next looks at the database."""
    here, there = make_cron(url), make_cron(url, state_file=f"{tmp_path}/there.json")
    for cron in (here, there):
        cron.sync()
    here.set_triggers(traffic=False)
    clock.tick("30s")
    there.run_due()
    assert not there.state().traffic


def test_prune_deletes_at_once_what_is_beyond_the_limits(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """The last `keep_runs` of each recurring task stay, and nothing older than `keep_age`."""
    many = make_cron(url)
    for name in ("a", "b"):
        many.task(every="hour", name=name)(lambda: None)
    for _ in range(5):
        many.run_now("a")
    many.run_now("b")
    few = make_cron(url, keep_runs=2, keep_age="1d")
    assert few.prune() == 3
    assert statuses(few, "a") == ["ok", "ok"]
    clock.tick("25h")
    assert few.prune() == 3
    assert statuses(few) == []


def test_who_did_what_is_noted(cron: LazyCron) -> None:
    """For the doors that know who asked."""
    from sqlalchemy import select

    from lazycron.schema import lazycron_action

    cron.sync()
    note_action(cron._parts, "cli:root", "disable", "hourly", "for the night")
    with cron._parts.store.engine.connect() as connection:
        (row,) = connection.execute(select(lazycron_action)).all()
    assert (row.who, row.verb, row.name, row.detail, row.at) == (
        "cli:root",
        "disable",
        "hourly",
        "for the night",
        START,
    )
