"""SQL statements and transactions counted, and the plans they are answered by."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine, insert, text

from lazycron import LazyCron
from lazycron.schema import once_key, scheduled_task
from lazycron.testing import ManualClock
from tests.conftest import START, MakeCron
from tests.tables import put_rows
from tests.watching import Watched, watch

HOUR = timedelta(hours=1)


def settle(cron: LazyCron, clock: ManualClock, tasks: int) -> None:
    """Register as many hourly tasks, due, and leave all that is done once a minute behind."""
    for number in range(5):
        cron.task(every="hour" if number < tasks else "day", name=f"task{number}")(lambda: None)
    cron.run_due("traffic")
    clock.tick("1h")
    for number in range(tasks):
        cron.run_now(f"task{number}")
    clock.tick("1h")
    cron.sync()
    cron._parts.runner.pruning.by_age_at = clock.monotonic() + 60


def tick(cron: LazyCron) -> Watched:
    """Watch a visitor's tick."""
    with watch(cron._parts.store.engine) as found:
        cron.run_due("traffic")
    return found


# Statements and transactions of a visitor's tick that finds so many rows due, within the minute
# in which rows and tasks were compared and old history was looked for.
COUNTED = {
    ("sqlite", 0): (3, 3),
    ("sqlite", 1): (8, 6),
    ("sqlite", 3): (15, 10),
    ("postgresql", 0): (3, 3),
    ("postgresql", 1): (6, 6),
    ("postgresql", 3): (10, 10),
    ("mariadb", 0): (3, 3),
    ("mariadb", 1): (9, 6),
    ("mariadb", 3): (18, 10),
}


@pytest.mark.parametrize("due", [0, 1, 3])
def test_the_statements_and_transactions_of_a_tick(
    cron: LazyCron, clock: ManualClock, due: int
) -> None:
    """As the documentation counts them."""
    settle(cron, clock, due)
    found = tick(cron)
    dialect = cron._parts.store.engine.dialect.name
    assert found.counted == COUNTED[dialect, due], "\n\n".join(found.statements)


def test_what_is_done_once_a_minute_is_counted_too(cron: LazyCron, clock: ManualClock) -> None:
    """Rows compared (2), jobs looked for, old history, old once keys, and the switches read."""
    settle(cron, clock, 0)
    clock.tick("61s")
    minutely = tick(cron)
    assert len(minutely.statements) == 3 + 6, "\n\n".join(minutely.statements)
    assert len(tick(cron).statements) == 3
    assert len(minutely.of("FROM task_run", "started_at")) == 1
    assert len(minutely.of("lazycron_setting")) == 1


def test_an_operators_tick_reads_all_rows_for_its_decisions(
    cron: LazyCron, clock: ManualClock
) -> None:
    """One statement more than a visitor's: what is due without code is asked only where it is."""
    settle(cron, clock, 0)
    with watch(cron._parts.store.engine) as found:
        cron.run_due("url")
    assert len(found.statements) == 4


# History


def test_each_recurring_task_keeps_its_last_runs(url: URL, make_cron: MakeCron) -> None:
    """One indexed look for each that a tick ran, and a DELETE only where there is too much."""
    cron = make_cron(url, keep_runs=3)
    for name in ("busy", "quiet"):
        cron.task(every="hour", name=name)(lambda: None)
    cron.run_now("quiet")
    looks, deletes = [], []
    for _ in range(6):
        with watch(cron._parts.store.engine) as found:
            cron.run_now("busy")
        looks.append(len(found.of("SELECT task_run.id", "name")))
        deletes.append(len(found.of("DELETE FROM task_run")))
    assert looks == [1] * 6
    assert deletes == [0, 0, 0, 1, 1, 1]
    assert [run.task for run in cron.history()] == ["busy"] * 3 + ["quiet"]
    first = cron.history("busy")[-1].id
    cron.run_now("busy")
    assert [run.id > first for run in cron.history("busy")] == [True] * 3


def test_nothing_older_than_keep_age_is_kept(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Looked for once a minute at most, whichever task's it was."""
    cron = make_cron(url, keep_age="1h")
    for name in ("old", "new"):
        cron.task(every="7d", name=name)(lambda: None)
    cron.run_now("old")
    clock.tick("61m")
    looks = []
    for _ in range(4):
        with watch(cron._parts.store.engine) as found:
            cron.run_now("new")
        looks.append(len(found.of("SELECT task_run.id", "started_at")))
        clock.tick("20s")
    assert looks == [1, 0, 0, 1]
    assert {run.task for run in cron.history()} == {"new"}


# Plans


Sent = tuple[Any, ...] | dict[str, Any]


def plan(engine: Engine, statement: str, parameters: Sent) -> str:
    """Ask a database how it would answer a statement."""
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"{explain} {statement}", parameters).all()
    return "\n".join(" ".join(str(value) for value in row) for row in rows)


def explained(engine: Engine, found: Watched, *words: str) -> str:
    """Return the plan of the first watched statement that holds these words."""
    statement = found.of(*words)[0]
    return plan(engine, statement, found.parameters[found.statements.index(statement)])


@pytest.fixture
def crowded(cron: LazyCron, clock: ManualClock) -> LazyCron:
    """Ten thousand rows, of which three are due; the databases have counted them.

    One in twenty is disabled and lies in the past, which no planner can tell from due ones.
    """
    settle(cron, clock, 3)
    engine = cron._parts.store.engine
    put_rows(engine, [f"later{number}" for number in range(9_500)], due=START + 1000 * HOUR)
    put_rows(engine, [f"off{number}" for number in range(500)], due=START - 1000 * HOUR)
    with engine.begin() as connection:
        connection.execute(text("UPDATE scheduled_task SET enabled = false WHERE name LIKE 'off%'"))
    count_rows(engine, "scheduled_task")
    return cron


def test_claims_and_the_next_due_instant_come_from_the_index(crowded: LazyCron) -> None:
    """Among ten thousand rows, sorted by it as well."""
    index = "ix_scheduled_task_enabled_next_run_at_id"
    engine = crowded._parts.store.engine
    found = tick(crowded)
    claim = (
        ("FOR UPDATE",) if engine.dialect.name == "mariadb" else ("UPDATE", "lock_token IS NULL")
    )
    claimed = explained(engine, found, *claim)
    next_due = explained(engine, found, "SELECT scheduled_task.next_run_at")
    lost = explained(engine, found, "lock_token IS NOT NULL")
    for one in (claimed, next_due, lost):
        assert index in one, one
    for one in (claimed, next_due):
        for bad in ("SCAN", "Seq Scan", "filesort", "Sort", "TEMP B-TREE", "ALL"):
            assert bad not in one, one


def test_whether_any_job_is_due_comes_from_the_index_too(
    crowded: LazyCron, clock: ManualClock
) -> None:
    """Asked once a minute, however many jobs wait for later or for code that knows them."""
    engine = crowded._parts.store.engine
    with engine.begin() as connection:
        connection.execute(text("UPDATE scheduled_task SET enabled = true"))
        later = "UPDATE scheduled_task SET {} = NULL WHERE name LIKE 'later%'"
        key = connection.dialect.identifier_preparer.quote("key")
        connection.execute(text(later.format(key)))
    clock.tick("61s")
    found = explained(engine, tick(crowded), "EXISTS")
    assert "ix_scheduled_task_enabled_next_run_at_id" in found, found
    for bad in ("SCAN scheduled_task", "Seq Scan", "ALL"):
        assert bad not in found, found


def count_rows(engine: Engine, name: str) -> None:
    """Let the database count a table's rows, as it does by itself now and then."""
    with engine.connect() as connection:
        table = " TABLE" if engine.dialect.name == "mariadb" else ""
        connection.exec_driver_sql(f"ANALYZE{table} {name}")
        connection.commit()


@pytest.mark.parametrize("counted", [False, True], ids=["new", "analyzed"])
def test_among_ten_thousand_jobs_without_a_key_the_keys_have_an_index(
    cron: LazyCron, clock: ManualClock, *, counted: bool
) -> None:
    """The recurring row's turn, its record, and the job that holds a key."""
    index = "uq_scheduled_task_name_key"
    job = cron.task(name="job")(lambda: None)
    settle(cron, clock, 1)
    engine = cron._parts.store.engine
    held = job.using(key="k").enqueue()
    at = {"next_run_at": START, "scheduled_for": START, "created_at": START}
    with engine.begin() as connection:
        rows = [{"name": "job", "arguments": "{}"} | at for _ in range(10_000)]
        connection.execute(insert(scheduled_task), rows)
    if counted:
        count_rows(engine, "scheduled_task")
    found = tick(cron)
    claim = "FOR UPDATE" if engine.dialect.name == "mariadb" else "UPDATE"
    turn = explained(engine, found, claim, "last_status")
    with watch(engine) as asked:
        assert job.using(key="k").enqueue().id == held.id
    by_key = explained(engine, asked, "SELECT scheduled_task")
    for one in (turn, by_key):
        assert index in one, one


def test_refused_once_keys_are_counted_from_an_index(cron: LazyCron) -> None:
    """Among thousands that are kept for ever, and were never asked for again."""
    cron.task(every="hour", name="chore")(lambda: None)
    cron.sync()
    engine = cron._parts.store.engine
    with engine.begin() as connection:
        kept = [{"key": f"key{number}", "created_at": START} for number in range(5000)]
        connection.execute(insert(once_key), kept)
    with cron.once("key7") as first:
        assert not first
    count_rows(engine, "once_key")
    with watch(engine) as found:
        cron.overview()
    refused = explained(engine, found, "refused > 0")
    assert "ix_once_key_refused_task" in refused, refused


def test_the_floor_stands_in_every_look(crowded: LazyCron, clock: ManualClock) -> None:
    """So that unknown rows in front are walked past once a minute, and not by each statement."""
    engine = crowded._parts.store.engine
    with engine.begin() as connection:
        connection.execute(text("UPDATE scheduled_task SET enabled = true"))
    crowded.sync()
    crowded.run_due()
    clock.tick(1)
    floor = crowded._parts.facts.floor_at(clock.monotonic())
    assert floor == START + 2 * HOUR
    found = tick(crowded)
    looks = [
        parameters
        for statement, parameters in zip(found.statements, found.parameters, strict=True)
        if "next_run_at >=" in statement
    ]
    assert len(looks) == 3
    for parameters in looks:
        values = parameters.values() if isinstance(parameters, dict) else parameters
        assert not [value for value in values if str(value).startswith("1970")]
        assert [value for value in values if str(value).startswith("2026-01-01 02:00:00")]


def test_rows_that_this_trigger_may_not_run_are_walked_past_once_a_minute(
    cron: LazyCron, clock: ManualClock
) -> None:
    """However many wait for another trigger, before the one that this trigger may run."""
    cron.task(every="hour", name="often")(lambda: None)
    cron.task(name="for_cli", only_on=["cli"])(lambda: None)
    cron.sync()
    engine = cron._parts.store.engine
    waiting = {"name": "for_cli", "next_run_at": START, "scheduled_for": START, "created_at": START}
    with engine.begin() as connection:
        connection.execute(insert(scheduled_task), [waiting] * 3000)
    clock.tick("1h")
    cron._parts.sync.look_again()
    assert [run.task for run in cron.run_due("traffic").runs] == ["often"]
    steps: list[int] = []
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.set_progress_handler(lambda: steps.append(1), 1000)
    found = tick(cron)
    assert len(steps) < 3  # in thousands: 3,000 rows take 15 in each look
    looks = [
        parameters
        for statement, parameters in zip(found.statements, found.parameters, strict=True)
        if "next_run_at >=" in statement and "for_cli" not in str(parameters)
    ]
    assert looks  # what visitors may claim, and what is due next for them
    for parameters in looks:
        values = parameters.values() if isinstance(parameters, dict) else parameters
        assert not [value for value in values if str(value).startswith("1970")]
