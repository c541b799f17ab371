"""Rows and code: what a deployment changes in the table, and what it leaves alone."""

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import URL
from sqlalchemy.exc import OperationalError

from lazycron import Every, LazyCron
from lazycron.errors import NotInstalledError
from lazycron.schema import metadata
from lazycron.store import Store
from lazycron.store.driver.engine import open_engine
from lazycron.store.recurring import Recurring
from lazycron.testing import ManualClock
from tests.conftest import START, MakeCron
from tests.scenes import claim_by_name, row_of, seconds, statuses
from tests.tables import put_rows

HOUR = timedelta(hours=1)


def deploy(make_cron: MakeCron, url: URL, every: str, **settings: object) -> LazyCron:
    """Start a process whose code says so about the task `chore`, and let it sync."""
    cron = make_cron(url, **settings)
    cron.task(every=every, name="chore")(lambda: None)
    assert cron.sync()
    return cron


def test_restarting_unchanged_code_moves_nothing(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Not a column, however often and whenever."""
    cron = deploy(make_cron, url, "1h")
    clock.tick("10m")
    cron.run_now("chore")
    before = row_of(cron, "chore")
    for passed in ("1s", "10m", "3h"):
        clock.tick(passed)
        assert row_of(deploy(make_cron, url, "1h"), "chore") == before


@pytest.mark.parametrize(
    ("every", "at_and_next"),
    [("30m", (60, 1800)), ("30m", (2400, 2400)), ("2h", (60, 7200)), ("10s", (5, 10))],
)
def test_a_changed_interval_moves_a_row_that_never_ran(
    url: URL, make_cron: MakeCron, clock: ManualClock, every: str, at_and_next: tuple[int, int]
) -> None:
    """From its creation on, sooner or later, never before now."""
    at, next_at = at_and_next
    cron = deploy(make_cron, url, "1h")
    clock.set(START + seconds(at))
    deploy(make_cron, url, every)
    row = row_of(cron, "chore")
    assert (row.next_run_at, row.scheduled_for) == (START + seconds(next_at),) * 2
    assert row.schedule == Every(every).text


def test_a_changed_interval_counts_from_the_last_run(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Ran at 600, every 30 minutes from now on: due at 2400."""
    cron = deploy(make_cron, url, "1h")
    clock.tick("10m")
    cron.run_now("chore")
    clock.tick("1m")
    deploy(make_cron, url, "30m")
    assert row_of(cron, "chore").next_run_at == START + seconds(2400)


def test_a_process_brings_its_schedule_in_once(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Two versions of the code that run side by side do not fight over the row."""
    old = deploy(make_cron, url, "1h")
    new = deploy(make_cron, url, "2h")
    for _ in range(5):
        clock.tick("61s")
        for cron in (old, new):
            cron.sync()
            cron.run_due()
    assert row_of(old, "chore").schedule == "every 2h"
    assert row_of(deploy(make_cron, url, "1h"), "chore").schedule == "every 1h"


def test_what_the_database_refused_is_brought_in_at_the_next_look(
    url: URL, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A locked file at the first look does not leave the old schedule in force."""
    deploy(make_cron, url, "1h")
    cron = make_cron(url)
    cron.task(every="2h", name="chore")(lambda: None)

    def refuse(*_: object, **__: object) -> bool:
        raise OperationalError("UPDATE", {}, Exception("locked"))  # noqa: EM101

    with monkeypatch.context() as broken:
        broken.setattr(Recurring, "bring_in", refuse)
        with pytest.raises(OperationalError):
            cron.sync()
    assert cron.sync()
    assert row_of(cron, "chore").schedule == "every 2h"


def test_an_operators_interval_stands_until_it_is_reset(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """New code is stored beneath it and moves nothing; the reset brings the newest code in."""
    cron = deploy(make_cron, url, "1h")
    cron.set_interval("chore", "20m")
    assert row_of(cron, "chore").next_run_at == START + seconds(1200)
    new = deploy(make_cron, url, "10m")
    row = row_of(cron, "chore")
    assert (row.schedule, row.schedule_override) == ("every 10m", "every 20m")
    assert row.next_run_at == START + seconds(1200)
    clock.tick("20m")
    assert [run.task for run in new.run_due().runs] == ["chore"]
    assert row_of(cron, "chore").next_run_at == START + seconds(2400)
    cron.reset_schedule("chore")
    row = row_of(cron, "chore")
    assert (row.schedule_override, row.next_run_at) == (None, START + seconds(1800))


def test_a_changed_interval_leaves_a_running_claim_alone(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """The run in flight is recorded with the interval that counts at its end."""
    cron = make_cron(url)

    @cron.task(every="1h")
    def chore() -> None:
        deploy(make_cron, url, "2h")
        assert row_of(cron, "chore").next_run_at == clock.now() + seconds(300)
        cron.set_interval("chore", "3h")
        assert row_of(cron, "chore").next_run_at == clock.now() + seconds(300)

    cron.run_due()
    clock.tick("1h")
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    row = row_of(cron, "chore")
    assert (row.next_run_at, row.schedule, row.schedule_override) == (
        START + 4 * HOUR,
        "every 2h",
        "every 3h",
    )


def test_a_task_that_lost_its_schedule_loses_its_row(url: URL, make_cron: MakeCron) -> None:
    """It is only enqueued from now on."""
    deploy(make_cron, url, "1h")
    cron = make_cron(url)
    cron.task(name="chore")(lambda: None)
    assert cron.sync()
    assert cron._parts.store.recurring.of("chore") is None


def test_enabled_is_the_first_value_only(url: URL, make_cron: MakeCron) -> None:
    """Afterwards it is the operator's."""
    cron = make_cron(url)
    cron.task(every="1h", name="chore", enabled=False)(lambda: None)
    cron.sync()
    assert not row_of(cron, "chore").enabled
    cron.enable("chore")
    again = make_cron(url)
    again.task(every="1h", name="chore", enabled=False)(lambda: None)
    again.sync()
    assert row_of(again, "chore").enabled


def test_two_processes_that_make_a_row_at_once_make_one(
    url: URL, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either wrote; the second is refused by the unique constraint, quietly."""
    deploy(make_cron, url, "1h")
    late = make_cron(url)
    late.task(every="1h", name="chore")(lambda: None)
    with monkeypatch.context() as blind:
        blind.setattr(Store, "known_rows", lambda _: [])
        assert late.sync()
    assert [row.name for row in late._parts.store.recurring.all()] == ["chore"]


# Rows nobody's code knows


def test_a_row_without_code_is_kept_listed_and_runs_again_when_its_code_is_back(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Neither run nor moved meanwhile, and first in line it stops nobody."""
    deploy(make_cron, url, "1h")
    without = make_cron(url)
    without.task(every="2h", name="known")(lambda: None)
    without.sync()
    before = row_of(without, "chore")
    clock.tick("3h")
    assert [run.task for run in without.run_due().runs] == ["known"]
    assert row_of(without, "chore") == before
    listed = {one.name: one.known for one in without.overview()}
    assert listed == {"chore": False, "known": True}
    assert without.run_due().decisions["chore"].verdict == "unbound"
    assert any(problem.name == "other_code" for problem in without.check())
    back = deploy(make_cron, url, "1h")
    assert [run.task for run in back.run_due().runs] == ["chore"]


def test_a_row_that_nobody_has_known_for_fourteen_days_is_forgotten(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Not a day sooner, by whoever ticks then; a disabled one too, a claimed one not."""
    first = deploy(make_cron, url, "1h")
    first.task(every="1h", name="held")(lambda: None)
    first.sync()
    claim_by_name(first, "held", clock.now())
    first.disable("chore")
    other = make_cron(url)
    other.task(every="1h", name="known")(lambda: None)
    other.sync()
    clock.tick("13d")
    other.run_due("traffic")
    assert {row.name for row in other._parts.store.recurring.all()} == {"chore", "held", "known"}
    clock.tick("25h")
    other.run_due("traffic")
    assert {row.name for row in other._parts.store.recurring.all()} == {"held", "known"}


def test_a_process_never_forgets_what_it_knows(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Asleep for a month, it stamps its own rows before it forgets any."""
    cron = deploy(make_cron, url, "90d")
    clock.tick("30d")
    cron.run_due()
    row = row_of(cron, "chore")
    assert row.seen_at == START + timedelta(days=30)
    assert row.created_at == START


def test_seen_at_is_stamped_once_a_day(url: URL, make_cron: MakeCron, clock: ManualClock) -> None:
    """Every other tick only reads."""
    cron = deploy(make_cron, url, "1h")
    seen = set()
    for _ in range(49):
        cron.run_due()
        seen.add(row_of(cron, "chore").seen_at)
        clock.tick("1h")
    assert seen == {START, START + timedelta(hours=25)}


def test_two_apps_on_one_database_never_touch_each_others_rows(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Each runs its own, in time, with every tick of the other's in between."""
    ran: list[str] = []
    apps = []
    for name in ("red", "blue"):
        cron = make_cron(url)
        cron.task(every="minute", name=name)(lambda name=name: ran.append(name))
        cron.run_due()
        apps.append(cron)
    for _ in range(10):
        clock.tick("60s")
        for cron in apps:
            cron.run_due("traffic")
    assert (ran.count("red"), ran.count("blue")) == (10, 10)
    for cron, name in zip(apps, ("red", "blue"), strict=True):
        assert {run.task for run in cron.history()} == {"red", "blue"}
        assert statuses(cron, name) == ["ok"] * 10


# A crowd of unknown rows at the head of the index


def test_a_crowd_of_unknown_rows_is_walked_past_once_a_minute(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """The floor is in every later look's statement; a known row behind the crowd runs in time."""
    cron = make_cron(url)
    ran = []
    cron.task(every="minute", name="known")(lambda: ran.append(clock.now()))
    crowd = 100_000 if cron._parts.store.is_sqlite else 3_000
    put_rows(
        cron._parts.store.engine,
        [f"unknown{number}" for number in range(crowd)],
        due=START - timedelta(days=1),
    )
    cron.run_due()
    facts = cron._parts.facts
    assert facts.unknown_rows
    # The known row is due in a minute: all before now is unknown.
    assert facts.floor_at(clock.monotonic()) == START
    clock.tick("59s")
    assert facts.floor_at(clock.monotonic()) == START
    clock.tick("1s")
    assert facts.floor_at(clock.monotonic()) < START - timedelta(days=1)
    assert [run.task for run in cron.run_due("traffic").runs] == ["known"]
    assert facts.floor_at(clock.monotonic()) == START + seconds(60)
    # Another process that shares the file may know these rows.
    state = cron._parts.statefile.read(clock.now())
    assert state is not None
    assert state.next == clock.now() + seconds(60)
    assert ran == [START + seconds(60)]


def test_the_state_file_says_at_most_a_minute_while_there_are_unknown_rows(
    url: URL, make_cron: MakeCron
) -> None:
    """And the true moment where there are none, or only disabled ones."""
    cron = make_cron(url)
    cron.task(every="2h", name="known")(lambda: None)
    cron.sync()
    assert cron.state().next == START + timedelta(hours=2)
    put_rows(cron._parts.store.engine, ["unknown"], due=START + HOUR)
    cron.sync()
    assert cron.state().next == START + seconds(60)
    cron.disable("unknown")
    cron.sync()
    assert cron.state().next == START + timedelta(hours=2)


def test_a_row_enabled_beneath_the_floor_runs_within_a_minute(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """It stays due as it was, which lies before what this process looks at."""
    cron = make_cron(url)
    cron.task(every="1h", name="known", enabled=False)(lambda: None)
    put_rows(cron._parts.store.engine, ["unknown"], due=START)
    cron.run_due()
    clock.tick("3h")
    cron.run_due()
    cron.enable("known")
    clock.tick("60s")
    assert [run.task for run in cron.run_due().runs] == ["known"]


# Tables that are not there


@pytest.fixture
def bare(url: URL) -> Iterator[URL]:
    """A database without lazycron's tables, which come back for the next test."""
    engine = open_engine(url)
    metadata.drop_all(engine)
    yield url
    metadata.drop_all(engine)
    from lazycron.migrate import migrate

    migrate(engine)
    engine.dispose()


def test_without_tables_nothing_runs_and_nothing_breaks(
    bare: URL, make_cron: MakeCron, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """No runs, no error, one warning; the managing verbs say what is missing."""
    cron = make_cron(bare, create_tables=False)
    task = cron.task(every="minute", name="minute")(lambda: None)
    with caplog.at_level(logging.WARNING, "lazycron"):
        for _ in range(3):
            report = cron.run_due()
            assert (report.runs, report.next_due, report.stopped_by) == ([], None, "done")
            assert report.decisions["minute"].verdict == "skipped"
            assert "lazycron migrate" in report.decisions["minute"].reason
            assert not cron.sync()
    assert [record.message for record in caplog.records] == [
        "lazycron's tables are missing: run `lazycron migrate`"
    ]
    assert cron.why(task).reason == "not_installed"
    assert [problem.name for problem in cron.check()] == ["tables"]
    for verb in (
        lambda: cron.run_now(task),
        cron.overview,
        lambda: cron.enable(task),
        lambda: cron.disable(task),
        lambda: cron.set_interval(task, "1h"),
        lambda: cron.reset_schedule(task),
        lambda: cron.release(task),
        lambda: cron.forget("gone"),
        cron.history,
        cron.state,
        lambda: cron.set_triggers(traffic=False),
        cron.prune,
    ):
        with pytest.raises(NotInstalledError, match="lazycron migrate"):
            verb()
    # And no restart is needed afterwards.
    cron.migrate()
    assert cron.run_due().decisions["minute"].verdict == "deferred"
    clock.tick("60s")
    assert len(cron.run_due().runs) == 1


def test_migrated_by_somebody_else_the_next_tick_works(bare: URL, make_cron: MakeCron) -> None:
    """The process that found nothing looks again at every tick."""
    cron = make_cron(bare, create_tables=False)
    cron.task(every="minute", name="minute")(lambda: None)
    cron.run_due()
    make_cron(bare).migrate()
    assert cron.run_due().decisions["minute"].verdict == "deferred"


def test_create_tables_makes_them_at_the_first_use(bare: URL, make_cron: MakeCron) -> None:
    """On every database; without being told so on SQLite only."""
    cron = make_cron(bare, create_tables=True)
    cron.task(every="minute", name="minute")(lambda: None)
    assert cron.run_due().decisions["minute"].verdict == "deferred"
    metadata.drop_all(cron._parts.store.engine)
    silent = make_cron(bare)
    assert silent.sync() is silent._parts.store.is_sqlite


@pytest.mark.parametrize("create", [True, False])
def test_tables_dropped_under_a_running_process(
    bare: URL, make_cron: MakeCron, clock: ManualClock, *, create: bool
) -> None:
    """A tick says nothing ran; with create_tables they come back with their rows."""
    cron = make_cron(bare, create_tables=create)
    cron.migrate()
    cron.task(every="minute", name="minute")(lambda: None)
    cron.run_due()
    metadata.drop_all(cron._parts.store.engine)
    clock.tick("60s")
    report = cron.run_due()
    assert report.runs == []
    assert "lazycron migrate" in report.decisions["minute"].reason
    verdict = cron.run_due().decisions["minute"].verdict
    assert verdict == ("deferred" if create else "skipped")
    cron.migrate()
    cron.sync()
    for verb in (cron.overview, cron.history, cron.state, lambda: cron.run_now("minute")):
        cron.close()
        cron.sync()
        metadata.drop_all(cron._parts.store.engine)
        cron._parts.statefile.path.unlink()
        with pytest.raises(NotInstalledError):
            verb()
        assert cron.why("minute").reason == ("no_row" if create else "not_installed")
        cron.migrate()


def test_tables_dropped_during_a_run_do_not_hold_it_up(
    bare: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Its outcome goes to the log file at once: no wait will bring the row back."""
    cron = make_cron(bare, create_tables=False)
    cron.migrate()
    cron.task(every="minute", name="minute")(lambda: metadata.drop_all(cron._parts.store.engine))
    cron.run_due()
    clock.tick("60s")
    assert cron.run_due().runs == []
    assert "minute  ok (not recorded)" in cron.log_tail()[0]
