"""Which file an SQLite URL names, wherever the process goes, and who may read what is made."""

import os
from pathlib import Path
from urllib.parse import unquote

import pytest
from sqlalchemy import URL, create_engine, make_url, select

from lazycron import LazyCron
from lazycron.errors import ConfigurationError
from lazycron.schema import scheduled_task
from lazycron.store.driver.sqlite_path import absolute, file_of
from tests.conftest import MakeCron


@pytest.mark.parametrize(
    ("given", "file", "whole"),
    [
        ("sqlite:///app.db", "app.db", "/here/app.db"),
        ("sqlite:////var/app.db", "/var/app.db", "/var/app.db"),
        ("sqlite:///file:app.db?uri=true", "app.db", "file:/here/app.db"),
        ("sqlite:///file:my%20app.db?uri=true", "my app.db", "file:/here/my%20app.db"),
        ("sqlite:///file:/var/a%20b.db?uri=true&mode=rwc", "/var/a b.db", "file:/var/a b.db"),
        ("sqlite:///file:///var/app.db?uri=1", "/var/app.db", "file:///var/app.db"),
        ("sqlite:///file://localhost/a.db?uri=on", "/a.db", "file://localhost/a.db"),
        ("sqlite:///file:app.db", "file:app.db", "/here/file:app.db"),
        ("sqlite:///file:app.db?uri=false", "file:app.db", "/here/file:app.db"),
    ],
)
def test_a_url_names_one_file(given: str, file: str, whole: str) -> None:
    """A path, or a URI where the query says so."""
    url = make_url(given)
    assert file_of(url) == Path(file)
    # SQLAlchemy 2.1 decodes a URL's path, 2.0 leaves that to SQLite.
    assert unquote(absolute(url, Path("/here")).database or "") == unquote(whole)
    assert absolute(url, Path("/here")).query == url.query


@pytest.mark.parametrize("given", ["sqlite://", "sqlite:///:memory:", "postgresql://me@host/db"])
def test_what_is_no_file_stays_as_it_is(given: str) -> None:
    """An app's own engine may have such a URL."""
    assert absolute(make_url(given), Path("/here")) == make_url(given)


@pytest.mark.parametrize("kind", ["URL", "URI", "engine", "default", "environment"])
def test_a_relative_path_counts_from_the_folder_in_which_the_lazycron_was_made(
    tmp_path: Path, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Neither a change of the folder nor a second beginning opens another file."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    given = "sqlite:///file:lazycron.db?uri=true" if kind == "URI" else "sqlite:///lazycron.db"
    if kind == "environment":
        monkeypatch.setenv("LAZYCRON_DATABASE", given)
    database = {"engine": create_engine(given)}.get(kind, given)
    said = None if kind in ("default", "environment") else database
    cron = make_cron(said, state_file=None)
    cron.task(every="1h", name="hourly")(lambda: None)
    monkeypatch.chdir(there)
    for _ in range(2):
        assert cron.run_now("hourly") is not None
        cron.close()
    assert list(there.iterdir()) == []
    assert {"lazycron.db", "lazycron.db.lazycron.json", "lazycron.db.lazycron.log"} <= {
        one.name for one in here.iterdir()
    }
    assert len(cron.history("hourly")) == 2


def test_a_relative_state_file_counts_from_there_too(
    sqlite: URL, tmp_path: Path, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State, log and lock."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    cron = make_cron(sqlite, state_file="state.json")
    monkeypatch.chdir(tmp_path / "there")
    cron.task(every="1h", name="hourly")(lambda: None)
    assert cron.run_now("hourly") is not None
    assert list((tmp_path / "there").iterdir()) == []
    assert (tmp_path / "state.json.lazycron.log").exists()


@pytest.mark.parametrize("query", ["", "?uri=true"])
def test_a_file_that_lazycron_makes_is_its_owners_alone(
    tmp_path: Path, make_cron: MakeCron, query: str
) -> None:
    """Whatever the umask; so are the files beside it."""
    before = os.umask(0o022)
    try:
        cron = make_cron(f"sqlite:///{'file:' if query else ''}{tmp_path}/app.db{query}")
        cron.sync()
        found = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"app.db", "app.db-wal", "app.db-shm"} <= found.keys()
    assert set(found.values()) == {0o600}


def test_a_file_that_is_there_keeps_its_mode(sqlite: URL, make_cron: MakeCron) -> None:
    """That is how an app chooses another one."""
    path = Path(str(sqlite.database))
    path.chmod(0o640)
    make_cron(sqlite).sync()
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.with_name(path.name + "-wal").stat().st_mode & 0o777 == 0o640


def test_a_file_that_must_not_be_made_is_not_made(tmp_path: Path, make_cron: MakeCron) -> None:
    """`mode=rw` says so."""
    cron = make_cron(f"sqlite:///file:{tmp_path}/app.db?uri=true&mode=rw")
    assert [problem.name for problem in cron.check()] == ["database"]
    assert not (tmp_path / "app.db").exists()


def test_an_engine_that_moves_the_tables_to_a_schema_is_refused(url: URL) -> None:
    """lazycron would not follow it; other maps have nothing to do with its tables."""
    engine = create_engine(url)
    with pytest.raises(
        ConfigurationError, match=r"schema_translate_map=\{None: 'tenant'\}.*-csearch"
    ):
        LazyCron(engine.execution_options(schema_translate_map={None: "tenant"}))
    LazyCron(engine.execution_options(schema_translate_map={"a": "b"}))


def test_a_callers_schema_map_does_not_move_what_it_enqueues(cron: LazyCron, url: URL) -> None:
    """The rows go into lazycron's own tables, and the caller's map is as before."""
    task = cron.task(lambda: None)
    cron.sync()
    engine = create_engine(url)
    translated = {None: "no_such_schema"}
    with engine.connect().execution_options(schema_translate_map=translated) as connection:
        task.using(connection=connection).enqueue()
        assert connection.get_execution_options()["schema_translate_map"] == translated
        connection.commit()
    with engine.connect() as connection:
        assert len(connection.execute(select(scheduled_task.c.id)).all()) == 1
    engine.dispose()
