"""What `check` complains of, and that it is silent where nothing is wrong."""

from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine, update

from lazycron import LazyCron
from lazycron.migrate import HEAD
from lazycron.schema import lazycron_version, metadata, once_key, scheduled_task, task_run
from lazycron.testing import ManualClock
from tests.conftest import START, MakeCron
from tests.tables import put_rows


def names(cron: LazyCron) -> list[str]:
    """Return the problems' names."""
    return [problem.name for problem in cron.check()]


def test_nothing_is_wrong_with_a_fresh_installation(cron: LazyCron) -> None:
    """On any database."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    assert cron.check() == []


def test_a_missing_or_short_secret_is_named(
    sqlite: URL, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ever showing it."""
    monkeypatch.delenv("LAZYCRON_SECRET", raising=False)
    (missing,) = make_cron(sqlite, secret=None).check()
    assert str(missing).startswith("a secret is missing, so the cron URL is off: set secret=")
    (short,) = make_cron(sqlite, secret="sesame").check()
    assert short.text.startswith("a secret is too short, so the cron URL is off")
    assert "sesame" not in short.text
    (second,) = make_cron(sqlite, secret=["long enough a secret", "sesame"]).check()
    assert second.text.startswith("a secret is too short: set")


def test_a_database_that_cannot_be_used_is_named(make_cron: MakeCron) -> None:
    """By the kind of error: its text may hold a password."""
    cron = make_cron("postgresql+psycopg://postgres:sesame@127.0.0.1:1/nothing")
    (problem,) = cron.check()
    assert (problem.name, "sesame" in problem.text) == ("database", False)
    assert "OperationalError" in problem.text


def test_an_sqlite_file_that_cannot_be_used_is_told_in_its_own_words(
    tmp_path: Path, make_cron: MakeCron
) -> None:
    """They hold no secret."""
    cron = make_cron(f"sqlite:///{tmp_path}/away/app.db")
    (problem,) = cron.check()
    assert problem.text == (
        "the database cannot be used (OperationalError: unable to open database file: "
        f"the folder {tmp_path}/away does not exist)"
    )


def test_an_apps_own_sqlite_engine_gets_advice(tmp_path: Path, make_cron: MakeCron) -> None:
    """Its settings are kept as they are."""
    engine = create_engine(f"sqlite:///{tmp_path}/app.db", connect_args={"timeout": 0.1})
    cron = make_cron(engine)
    texts = [problem.text for problem in cron.check()]
    assert texts == [
        "journal_mode is delete; with WAL readers do not wait for writers",
        "busy_timeout is 100 ms; with 5000 a writer waits for its turn",
    ]
    engine.dispose()


def test_missing_tables_are_named(url: URL, make_cron: MakeCron) -> None:
    """All of them by no name, some by theirs; `migrate` makes them."""
    cron = make_cron(url, create_tables=False)
    cron.sync()
    engine = cron._parts.store.engine
    try:
        task_run.drop(engine)
        once_key.drop(engine)
        (problem,) = cron.check()
        assert problem.text == "tables are missing (once_key, task_run): run `lazycron migrate`"
        assert str(make_cron(url, create_tables=False).check()[0]) == problem.text
        cron.migrate()
        assert cron.check() == []
        metadata.drop_all(engine)
        (problem,) = cron.check()
        assert problem.text == "the tables are missing: run `lazycron migrate`"
    finally:
        cron.migrate()


@pytest.mark.parametrize(
    ("revision", "what"),
    [("0000", "run `lazycron migrate`"), ("9999", "install the newer lazycron here, too")],
)
def test_tables_of_another_version_are_named(
    url: URL, make_cron: MakeCron, revision: str, what: str
) -> None:
    """After an upgrade that nobody has migrated, and after a deployment that was rolled back."""
    cron = make_cron(url, create_tables=False)
    cron.migrate()
    assert cron.check() == []
    engine = cron._parts.store.engine
    with engine.begin() as connection:
        connection.execute(update(lazycron_version).values(version_num=revision))
    try:
        (problem,) = cron.check()
        assert problem.name == "revision"
        assert problem.text == (
            f"the tables are at revision {revision}, this version of lazycron needs {HEAD}: {what}"
        )
    finally:
        with engine.begin() as connection:
            connection.execute(update(lazycron_version).values(version_num=HEAD))


def test_a_missing_table_is_made_anew_where_lazycron_makes_its_tables(
    url: URL, make_cron: MakeCron
) -> None:
    """At a process's first use, and after an error that says so."""
    cron = make_cron(url, create_tables=True)
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    scheduled_task.drop(cron._parts.store.engine)
    assert names(make_cron(url, create_tables=True)) == []
    scheduled_task.drop(cron._parts.store.engine)
    cron.run_due()
    assert cron.run_due().decisions["hourly"].verdict == "deferred"
    assert cron.check() == []


def test_rows_without_code_are_named(cron: LazyCron) -> None:
    """Enabled ones."""
    put_rows(cron._parts.store.engine, ["gone", "off"], due=START)
    cron.disable("off")
    (problem,) = cron.check()
    assert problem.text == "rows without code here: gone; `lazycron forget NAME` removes one"


def test_a_process_that_is_switched_off_is_named(sqlite: URL, make_cron: MakeCron) -> None:
    """Whoever wonders why nothing runs looks here first."""
    assert names(make_cron(sqlite, enabled=False)) == ["off"]


def test_files_that_cannot_be_written_are_named(sqlite: URL, make_cron: MakeCron) -> None:
    """The state file and the log file each."""
    cron = make_cron(sqlite, state_file="/proc/nowhere/state.json")
    cron.task(every="hour", name="hourly")(lambda: None)
    assert cron.run_now("hourly") is not None
    assert names(cron) == ["state_file", "log_file"]


def test_a_clock_that_was_set_back_is_named(cron: LazyCron, clock: ManualClock) -> None:
    """With the rows it had stamped."""
    from datetime import timedelta

    cron.task(every="hour", name="hourly")(lambda: None)
    cron.run_due()
    clock.jump(timedelta(hours=-2))
    clock.tick("61s")
    cron.run_due()
    found = {problem.name: problem.text for problem in cron.check()}
    assert found["clock_step"] == "the clock was set back by 7200.0 s while this process ran"
    assert "moved at 2025-12-31 22:01:01 UTC" in found["clock_set_back"]
