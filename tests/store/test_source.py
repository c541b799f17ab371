"""Which database is meant: the same one for good, wherever the process goes."""

import multiprocessing
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, make_url

from lazycron import LazyCron
from lazycron.errors import ConfigurationError
from tests.conftest import SECRET


def made(database: str | URL | Engine | None, **settings: str) -> LazyCron:
    """Make a LazyCron whose files lie where they lie by default."""
    return LazyCron(database, secret=SECRET, **settings)  # type: ignore[arg-type]


def used(cron: LazyCron) -> LazyCron:
    """Use a LazyCron's database for the first time."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    return cron


def files_in(folder: Path) -> set[str]:
    """Return the names in a folder."""
    return {one.name for one in folder.iterdir()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a LazyCron is made."""
    folder = tmp_path / "home"
    folder.mkdir()
    (tmp_path / "away").mkdir()
    monkeypatch.delenv("LAZYCRON_DATABASE", raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def leave(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Change to another folder, and return it."""
    away = home.parent / "away"

    def go() -> Path:
        monkeypatch.chdir(away)
        return away

    return go


RELATIVE = [
    "sqlite:///shop.db",
    "sqlite:///file:shop.db?uri=true",
    "sqlite:///file:shop.db?uri=true&cache=private",
    "sqlite:///shop.db?uri=true",
    make_url("sqlite:///../home/shop.db"),
]


@pytest.mark.parametrize("given", RELATIVE)
def test_a_relative_file_is_where_the_lazycron_was_made(
    given: str | URL, home: Path, leave: Callable[[], Path]
) -> None:
    """Its first use and every later one come after a change of the folder."""
    cron = made(given)
    away = leave()
    used(cron).close()
    assert cron.run_now("hourly") is not None
    assert len(cron.history("hourly")) == 1
    assert {"shop.db", "shop.db.lazycron.json"} <= files_in(home)
    assert cron._parts.store.database == str(home / "shop.db")
    assert files_in(away) == set()


def test_configure_counts_from_the_folder_it_is_called_in(
    home: Path, leave: Callable[[], Path]
) -> None:
    """What it is not told stays where it was, a relative state file as well."""
    cron = made("sqlite:///shop.db", state_file="state.json")
    away = leave()
    cron.configure(lease="8m")
    assert cron.settings.state_file == home / "state.json"
    used(cron).close()
    assert files_in(away) == set()
    cron.configure("sqlite:///other.db")
    cron.sync()
    assert "other.db" in files_in(away)


@pytest.mark.parametrize("variable", [None, "sqlite:///lazycron.db"])
def test_the_default_is_where_the_lazycron_was_made(
    variable: str | None,
    home: Path,
    leave: Callable[[], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The environment is read at the first use, and its answer holds from then on."""
    cron = made(None)
    away = leave()
    if variable is not None:
        monkeypatch.setenv("LAZYCRON_DATABASE", variable)
    used(cron).close()
    monkeypatch.setenv("LAZYCRON_DATABASE", "sqlite:///another.db")
    assert [one.name for one in cron.overview()] == ["hourly"]
    assert "lazycron.db" in files_in(home)
    assert "another.db" not in files_in(home)
    assert files_in(away) == set()


@pytest.mark.parametrize("given", ["sqlite:///shop.db", None])
def test_a_fork_in_another_folder_uses_the_same_file(
    given: str | None, home: Path, leave: Callable[[], Path]
) -> None:
    """It wires its parts again, from what its parent was given."""
    cron = used(made(given))
    away = leave()
    reading, writing = multiprocessing.Pipe(duplex=False)

    def look() -> None:
        writing.send([one.name for one in cron.overview()])
        cron.close()

    child = multiprocessing.get_context("fork").Process(target=look)
    child.start()
    found = reading.recv() if reading.poll(30) else None
    child.join(30)
    assert (found, child.exitcode) == (["hourly"], 0)
    assert files_in(away) == set()
    assert f"{'shop' if given else 'lazycron'}.db" in files_in(home)


@pytest.mark.parametrize("begin", ["file:", "file://", "file://localhost"])
@pytest.mark.parametrize("name", ["a.db", "a b%.db", "ä#.db"])
def test_the_file_that_a_uri_names_has_its_state_and_log_beside_it(
    begin: str, name: str, home: Path
) -> None:
    """Percent signs are decoded, as SQLite does; nothing is put into a folder named `file:`."""
    written = name.replace("%", "%25").replace(" ", "%20").replace("#", "%23")
    database = f"{begin}{home}/{written}"
    cron = used(made(URL.create("sqlite", database=database, query={"uri": "true"})))
    cron.run_now("hourly")
    assert cron._parts.store.database == str(home / name)
    cron.close()
    assert files_in(home) >= {name, f"{name}.lazycron.json", f"{name}.lazycron.log"}
    assert not [one for one in files_in(home) if one.startswith("file:") or "%2" in one]


@pytest.mark.parametrize(
    "given",
    [
        "sqlite:///file:%3Amemory%3A?uri=true",
        "sqlite:///file:x?mode=ro&mode=memory&uri=true",
        "sqlite:///file:x?vfs=memdb&uri=1",
    ],
)
def test_a_database_in_memory_is_refused_however_it_is_written(given: str) -> None:
    """SQLite decodes before it compares."""
    with pytest.raises(ConfigurationError, match="in memory is seen by one connection"):
        LazyCron(given)


@pytest.mark.parametrize(
    "given", ["sqlite:///file://shop.db?uri=true", "sqlite:///file:a%00b?uri=true"]
)
def test_a_uri_that_sqlite_cannot_open_is_refused(given: str) -> None:
    """`file://shop.db` names a host."""
    with pytest.raises(ConfigurationError, match="is not a file's path"):
        LazyCron(given)


def test_a_working_folder_that_was_deleted_is_told_where_it_matters(
    home: Path, tmp_path: Path
) -> None:
    """An absolute path needs none, and a default may yet be configured."""
    home.rmdir()
    absolute, default = made(f"sqlite:///{tmp_path}/away/shop.db"), made(None)
    used(absolute).close()
    for relative in (partial(made, "sqlite:///shop.db"), default.sync):
        with pytest.raises(ConfigurationError, match="the working folder was deleted"):
            relative()
    default.configure(f"sqlite:///{tmp_path}/away/shop.db")
    default.sync()
    default.close()


def test_a_link_to_no_file_yet_leads_to_a_file_that_is_its_owners_alone(home: Path) -> None:
    """SQLite makes the file where the link leads."""
    before = os.umask(0o022)
    try:
        (home / "shop.db").symlink_to(home / "kept.db")
        used(made("sqlite:///shop.db")).close()
    finally:
        os.umask(before)
    assert (home / "kept.db").stat().st_mode & 0o777 == 0o600


def test_a_uris_file_that_was_replaced_is_noticed(
    home: Path, sqlite_template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a path's is."""
    cron = used(made(f"sqlite:///file:{home}/shop.db?uri=true"))
    cron.run_due()
    for left in home.glob("shop.db*"):
        left.unlink()
    shutil.copyfile(sqlite_template, home / "shop.db")
    cron.run_due()
    assert "the database file was replaced or deleted" in caplog.text
    assert [problem.name for problem in cron.check()] == ["database_replaced"]
    cron.close()


def test_a_uris_missing_folder_is_named(home: Path) -> None:
    """As a path's is."""
    (problem,) = made(f"sqlite:///file:{home}/none/shop.db?uri=true").check()
    assert f"the folder {home}/none does not exist" in problem.text
