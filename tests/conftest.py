"""One engine fixture over every database, and a LazyCron on it with a clock that is a variable."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from sqlalchemy import URL, Engine, create_engine, delete, make_url, text
from sqlalchemy.exc import OperationalError

from lazycron import LazyCron, files
from lazycron.migrate import migrate
from lazycron.schema import metadata
from lazycron.store.driver.engine import open_engine
from lazycron.testing import ManualClock
from tests.processes import rounds

# The default run plays the same examples each time, however slow the machine is: what it finds, it
# finds again. LAZYCRON_RACE_ROUNDS makes them more, and chance chooses them.
hypothesis.settings.register_profile(
    "lazycron",
    max_examples=30 * rounds(),
    derandomize=rounds() == 1,
    deadline=None,
    database=None,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
)
hypothesis.settings.load_profile("lazycron")

SECRET = "a secret of the tests, long enough"
START = datetime(2026, 1, 1, tzinfo=UTC)
SERVERS = {
    "postgresql": ("LAZYCRON_TEST_POSTGRES", "postgresql+psycopg://postgres@127.0.0.1/postgres"),
    "mariadb": ("LAZYCRON_TEST_MARIADB", "mariadb+pymysql://root@127.0.0.1/mysql"),
}


@dataclass(frozen=True)
class Server:
    """A database of this test run's own on a real server."""

    admin: Engine
    url: URL

    def drop(self) -> None:
        """Drop the database, whoever is still connected."""
        force = " WITH (FORCE)" if self.admin.dialect.name == "postgresql" else ""
        with self.admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE IF EXISTS {self.url.database}{force}"))
        self.admin.dispose()


def open_server(kind: str) -> Server:
    """Make a database on a server; skip with the reason, or fail where CI=true."""
    variable, default = SERVERS[kind]
    address = make_url(os.environ.get(variable, default))
    admin = create_engine(address, isolation_level="AUTOCOMMIT")
    name = f"lazycron_test_{os.getpid()}"
    try:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))
            connection.execute(text(f"CREATE DATABASE {name}"))
            if kind == "postgresql":
                # These rows need not survive the server: a commit waits for no disk.
                connection.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    except OperationalError as error:
        reason = f"{kind} cannot be reached at {address}; set {variable}: {error.orig}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return Server(admin, address.set(database=name))


@pytest.fixture(scope="session")
def postgresql() -> Iterator[URL]:
    """A PostgreSQL database of this run's own, with lazycron's tables."""
    yield from _served("postgresql")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[URL]:
    """A MariaDB database of this run's own, with lazycron's tables."""
    yield from _served("mariadb")


def _served(kind: str) -> Iterator[URL]:
    server = open_server(kind)
    engine = open_engine(server.url)
    try:
        migrate(engine)
        yield server.url
    finally:
        engine.dispose()
        server.drop()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with lazycron's tables, to be copied: migrating takes longer."""
    path = tmp_path_factory.mktemp("template") / "template.db"
    engine = create_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path


@pytest.fixture
def sqlite(tmp_path: Path, sqlite_template: Path) -> URL:
    """A fresh SQLite file with lazycron's tables."""
    path = tmp_path / "lazycron.db"
    shutil.copyfile(sqlite_template, path)
    return make_url(f"sqlite:///{path}")


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> URL:
    """An empty database with lazycron's tables: each test runs on every kind."""
    found: URL = request.getfixturevalue(request.param)
    if request.param != "sqlite":
        empty(found)
    return found


def empty(url: URL) -> None:
    """Delete every row of lazycron's tables."""
    engine = open_engine(url)
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            connection.execute(delete(table))
    engine.dispose()


@pytest.fixture
def engine(url: URL) -> Iterator[Engine]:
    """An engine on the test's database, as lazycron itself would open it."""
    made = open_engine(url)
    yield made
    made.dispose()


@pytest.fixture
def clock() -> ManualClock:
    """A clock that is a variable; it shows the first of January 2026, 00:00 UTC."""
    return ManualClock(START)


MakeCron = Callable[..., LazyCron]


@pytest.fixture
def make_cron(tmp_path: Path, clock: ManualClock) -> Iterator[MakeCron]:
    """Make LazyCrons that are closed at the end; with the manual clock unless told otherwise."""
    made: list[LazyCron] = []

    def make(database: URL | Engine | str, **settings: Any) -> LazyCron:
        defaults: dict[str, Any] = {
            "secret": SECRET,
            "state_file": tmp_path / "state.json",
            "clock": clock,
        }
        cron = LazyCron(database, **(defaults | settings))
        made.append(cron)
        return cron

    yield make
    for cron in made:
        cron.close(timeout=5)


@pytest.fixture
def cron(url: URL, make_cron: MakeCron) -> LazyCron:
    """A LazyCron on the test's database with the manual clock."""
    return make_cron(url)


@pytest.fixture(params=["O_NOFOLLOW", "no O_NOFOLLOW"])
def nofollow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test run also as on a system that cannot open a file without following links."""
    if request.param == "no O_NOFOLLOW":
        monkeypatch.setattr(files, "NOFOLLOW", 0)
