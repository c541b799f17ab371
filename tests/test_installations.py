"""Whose a state file is: no process goes by another installation's, whatever they share."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine, delete, text

from lazycron import LazyCron
from lazycron.files import private_folder
from lazycron.schema import lazycron_setting
from lazycron.testing import ManualClock
from tests.conftest import MakeCron


def problems(cron: LazyCron) -> dict[str, str]:
    """Return what `check` found, by name."""
    return {problem.name: problem.text for problem in cron.check()}


def add_hourly(cron: LazyCron) -> None:
    """Register a task that is due each hour, and look once."""
    cron.task(every="1h", name="hourly")(lambda: None)
    cron.run_due()


def add_quick(cron: LazyCron) -> None:
    """Register a task that is due each minute, and look once."""
    cron.task(every="1m", name="quick")(lambda: None)
    cron.run_due()


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temp folder of the test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return private_folder()


@pytest.fixture
def schemas(postgresql: URL) -> Iterator[list[str]]:
    """Two schemas in one PostgreSQL database."""
    admin = create_engine(postgresql, isolation_level="AUTOCOMMIT")
    names = ["first", "second"]
    with admin.connect() as connection:
        for name in names:
            connection.execute(text(f"CREATE SCHEMA {name}"))
    yield names
    with admin.connect() as connection:
        for name in names:
            connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
    admin.dispose()


@pytest.fixture(params=["connect_args", "PGOPTIONS"])
def in_schema(
    request: pytest.FixtureRequest, postgresql: URL, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], URL | Engine]:
    """Return what opens a schema of the database, by an engine or by the environment."""

    def database(schema: str) -> URL | Engine:
        option = f"-csearch_path={schema}"
        if request.param == "connect_args":
            return create_engine(postgresql, connect_args={"options": option})
        monkeypatch.setenv("PGOPTIONS", option)
        return postgresql

    return database


def test_two_installations_in_one_database_have_a_state_file_each(
    in_schema: Callable[[str], URL | Engine],
    schemas: list[str],
    temp: Path,
    make_cron: MakeCron,
    clock: ManualClock,
) -> None:
    """Their URLs are the same, and only the server knows the schema."""
    crons = []
    for schema in schemas:
        crons.append(make_cron(in_schema(schema), state_file=None, create_tables=True))
        crons[-1].migrate()  # connects while the environment says so
        (add_quick if schema == "first" else add_hourly)(crons[-1])
    quick, hourly = (cron._parts.statefile for cron in crons)
    assert quick.path != hourly.path
    assert quick.path.parent == hourly.path.parent == temp
    state, other = quick.read(clock.now()), hourly.read(clock.now())
    assert state is not None
    assert other is not None
    assert state.next != other.next
    assert state.installation != other.installation
    # The log is found without the database, so they share it.
    assert crons[0]._parts.logfile.path == crons[1]._parts.logfile.path
    assert problems(crons[0]) == problems(crons[1]) == {}


def test_processes_of_one_installation_share_one_state_file(
    url: URL, temp: Path, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Each goes by it once it has asked the database whose it is."""
    one, two = make_cron(url, state_file=None), make_cron(url, state_file=None)
    add_hourly(one)
    assert two._parts.statefile.read(clock.now()) is None
    two._parts.refresh.know_installation(clock.now())
    assert two._parts.statefile.path == one._parts.statefile.path
    found = two._parts.statefile.read(clock.now())
    assert found is not None
    assert found == one._parts.statefile.read(clock.now())
    assert not temp.exists() or len(list(temp.glob("*.json"))) == 1


def test_two_databases_with_one_state_file_are_told_apart(
    url: URL, sqlite_template: Path, tmp_path: Path, make_cron: MakeCron, clock: ManualClock
) -> None:
    """The first keeps it; the second goes by its own memory, and `check` says so."""
    one = make_cron(url)
    add_hourly(one)
    before = one._parts.statefile.path.read_bytes()
    shutil.copyfile(sqlite_template, tmp_path / "other.db")
    two = make_cron(f"sqlite:///{tmp_path}/other.db")
    add_quick(two)
    assert one._parts.statefile.path.read_bytes() == before
    assert "another installation uses it" in problems(two)["state_file"]
    found, other = (cron._parts.statefile.read(clock.now()) for cron in (one, two))
    assert found is not None
    assert other is not None
    assert found.next != other.next
    assert problems(one) == {}


def test_a_copy_of_an_sqlite_file_is_another_installation(
    sqlite: URL, tmp_path: Path, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Although it holds the same id: a staging system, say."""
    one = make_cron(sqlite)
    add_hourly(one)
    one.close()
    shutil.copyfile(str(sqlite.database), tmp_path / "copy.db")
    two = make_cron(f"sqlite:///{tmp_path}/copy.db")
    two._parts.refresh.know_installation(clock.now())
    assert two._parts.statefile.read(clock.now()) is None


def test_tables_that_were_made_again_are_another_installation(
    url: URL, engine: Engine, make_cron: MakeCron, clock: ManualClock
) -> None:
    """A process that goes on finds it out when it reads the switches again."""
    cron = make_cron(url)
    add_hourly(cron)
    before = cron._parts.statefile.installation
    with engine.begin() as connection:
        connection.execute(delete(lazycron_setting))
    clock.tick("31s")
    cron.run_due()
    cron.run_due()
    assert cron._parts.statefile.installation != before
    clock.tick("61s")
    cron.run_due()
    assert cron._parts.statefile.problem is None
    assert cron._parts.statefile.read(clock.now()) is not None


def test_an_sqlite_file_that_was_replaced_is_another_installation(
    sqlite: URL, tmp_path: Path, make_cron: MakeCron
) -> None:
    """Even by a copy of itself: all processes agree on it, those that begin now too."""
    cron = make_cron(sqlite, state_file=None)
    add_hourly(cron)
    before = cron._parts.statefile.installation
    database = Path(str(sqlite.database))
    shutil.copyfile(database, tmp_path / "backup")
    for left in ("-wal", "-shm"):
        database.with_name(database.name + left).unlink(missing_ok=True)
    (tmp_path / "backup").replace(database)
    cron.run_due()
    other = make_cron(sqlite, state_file=None)
    other.run_due()
    found = cron._parts.statefile
    assert other._parts.statefile.installation == found.installation != before


def test_two_apps_in_one_database_are_told_so(
    url: URL,
    tmp_path: Path,
    make_cron: MakeCron,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two default apps in one folder, say: one warning a process, and `check` on both sides."""
    one, two = make_cron(url), make_cron(url, state_file=tmp_path / "two.json")
    add_quick(one)
    add_hourly(two)
    for _ in range(3):
        clock.tick("61s")
        one.run_due()
        two.run_due()
    said = sorted(one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert [text.partition(":")[0] for text in said] == [
        "tasks of other code are in this database (hourly)",
        "tasks of other code are in this database (quick)",
    ]
    assert problems(one)["other_code"] == (
        "tasks of other code are in this database: hourly, seen until 2026-01-01 00:00:00 UTC; if "
        "another app's, give each app a database of its own; if an older version's, `lazycron "
        "forget NAME` removes one"
    )
    assert "quick, seen until 2026-01-01 00:03:03" in problems(two)["other_code"]
    two.disable("hourly")
    assert problems(one) == {}


def test_tasks_of_a_quiet_app_are_still_anothers_after_a_day(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """It stamps them once a day, at its next request: nobody is told to forget them meanwhile."""
    add_quick(make_cron(url))
    clock.tick("47h")
    cron = make_cron(url)
    add_hourly(cron)
    assert list(problems(cron)) == ["other_code"]


def test_tasks_that_no_code_has_had_for_two_days_are_not_said_to_be_anothers(
    url: URL, make_cron: MakeCron, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """They are left over, which `check` says as before."""
    gone = make_cron(url)
    add_quick(gone)
    clock.tick("48h")
    cron = make_cron(url)
    add_hourly(cron)
    assert list(problems(cron)) == ["unknown_tasks"]
    assert caplog.records == []


@pytest.mark.parametrize("kind", ["the database", "a folder", "another app's file"])
def test_what_a_wrong_state_file_names_is_left_alone_and_check_says_so(
    sqlite: URL, tmp_path: Path, make_cron: MakeCron, kind: str
) -> None:
    """Tasks run all the same."""
    path = Path(str(sqlite.database)) if kind == "the database" else tmp_path / "app.json"
    if kind == "a folder":
        path.mkdir()
    if kind == "another app's file":
        path.write_text('{"users": 3}')
        (tmp_path / "app.log").write_text("theirs\n" * 20_000)
    cron = make_cron(sqlite, state_file=path)
    add_hourly(cron)
    assert cron.run_now("hourly") is not None
    assert str(path) in problems(cron)["state_file"]
    assert cron.history("hourly") != []
    if kind == "another app's file":
        assert path.read_text() == '{"users": 3}'
        assert (tmp_path / "app.log").read_text() == "theirs\n" * 20_000
