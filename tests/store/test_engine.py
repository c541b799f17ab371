"""An app's own engine, whatever its pool and isolation: one winner, nothing left checked out."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from lazycron import LazyCron
from lazycron.errors import ConfigurationError
from lazycron.store import Fault, fault_of
from lazycron.store.driver import engine as module
from lazycron.store.driver.engine import clone_engine, open_engine, to_url
from lazycron.testing import ManualClock
from lazycron.wiring import default_state_file
from tests.conftest import MakeCron
from tests.scenes import row_of, statuses


def begin_by_hand(engine: Engine) -> Engine:
    """Do what SQLAlchemy's manual says about SQLite and transactions."""
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def off(connection: Any, record: object) -> None:  # noqa: ANN401 - the driver's own
            del record
            connection.isolation_level = None

        @event.listens_for(engine, "begin")
        def begin(connection: Any) -> None:  # noqa: ANN401 - the driver's own
            connection.exec_driver_sql("BEGIN")

    return engine


def quickly(url: URL) -> dict[str, Any]:
    """Connect to MariaDB without TLS, which takes a hundred times as long."""
    return {"ssl_disabled": True} if url.get_backend_name() == "mariadb" else {}


OWN: dict[str, Callable[[URL], Engine]] = {
    "plain": create_engine,
    "pool of one": lambda url: create_engine(url, pool_size=1, max_overflow=0, pool_timeout=5),
    "no pool": lambda url: create_engine(url, poolclass=NullPool, connect_args=quickly(url)),
    "serializable": lambda url: create_engine(url, isolation_level="SERIALIZABLE"),
    "repeatable": lambda url: create_engine(
        url,
        isolation_level="SERIALIZABLE" if url.get_backend_name() == "sqlite" else "REPEATABLE READ",
    ),
    "autocommit": lambda url: create_engine(url, isolation_level="AUTOCOMMIT"),
    "begin by hand": lambda url: begin_by_hand(create_engine(url)),
}


@pytest.mark.parametrize("kind", OWN)
def test_an_apps_own_engine_has_one_winner_and_quiet_losers(
    url: URL, make_cron: MakeCron, clock: ManualClock, kind: str
) -> None:
    """Four threads of two LazyCrons look at three due rows at once."""
    app = OWN[kind](url)
    with app.connect() as connection:
        level = connection.get_isolation_level()
    crons = [make_cron(app), make_cron(app)]
    ran: list[str] = []
    for cron in crons:
        for name in ("a", "b", "c"):
            cron.task(every="minute", name=name)(lambda name=name: ran.append(name))
        cron.run_due()
    for _ in range(3):
        ran.clear()
        clock.tick("60s")
        barrier = threading.Barrier(4)
        errors: list[Exception] = []

        def look(cron: LazyCron, barrier: threading.Barrier, errors: list[Exception]) -> None:
            barrier.wait()
            try:
                cron.run_due("traffic")
            except Exception as error:  # noqa: BLE001 - told by the test
                errors.append(error)

        threads = [
            threading.Thread(target=look, args=(cron, barrier, errors)) for cron in crons * 2
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert sorted(ran) == ["a", "b", "c"]
    assert statuses(crons[0]) == ["ok"] * 9
    with app.connect() as connection:
        assert connection.get_isolation_level() == level
    app.dispose()


@pytest.mark.parametrize("make", [open_engine, lambda url: clone_engine(create_engine(url))])
def test_a_connection_is_pinged_only_after_a_rest(
    url: URL, make: Callable[[URL], Engine], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second, on the servers; another round trip before each statement would cost as much."""
    monkeypatch.setattr(module, "time", clock)
    engine = make(url)
    pings = []
    ping = engine.dialect.do_ping

    def do_ping(connection: Any) -> bool:  # noqa: ANN401 - any driver's
        pings.append(clock.monotonic())
        return ping(connection)

    monkeypatch.setattr(engine.dialect, "do_ping", do_ping)
    for seconds in (0.0, 0.9, 1.0, 0.1, 3600.0):
        clock.tick(seconds)
        with engine.connect() as connection:
            assert connection.execute(text("SELECT 1")).scalar() == 1
    expected = [] if url.get_backend_name() == "sqlite" else [1.9, 3602.0]
    assert [one - clock.monotonic() + 3602.0 for one in pings] == pytest.approx(expected)
    engine.dispose()


SMALL = ("pool of one", "no pool")


@pytest.mark.parametrize("kind", OWN)
def test_no_connection_is_held_while_a_task_runs(url: URL, make_cron: MakeCron, kind: str) -> None:
    """Twenty failing tasks on a pool of one leave it as it was; on SQLite others lend one."""
    app = OWN[kind](url)
    cron = make_cron(app)
    engine = cron._parts.store.engine
    found = []

    def out(engine: Engine) -> int:
        pool: Any = engine.pool
        return int(pool.checkedout()) if hasattr(pool, "checkedout") else 0

    def failing() -> None:
        with app.connect() as connection:
            connection.execute(text("SELECT 1"))
        found.append((out(engine), out(app)))
        raise RuntimeError

    times = 20 if kind == "pool of one" else 3
    for number in range(times):
        cron.task(every="hour", name=f"task{number}")(failing)
    for number in range(times):
        cron.run_now(f"task{number}")
    lent = 1 if url.get_backend_name() == "sqlite" and kind not in SMALL else 0
    assert found == [(lent, 0)] * times
    assert out(engine) == lent
    cron.close()
    assert out(engine) == 0
    app.dispose()


@pytest.mark.parametrize("kind", OWN)
def test_a_run_and_its_history_are_one_transaction(
    url: URL, make_cron: MakeCron, kind: str
) -> None:
    """A history row that cannot be written leaves the row as it was, whatever the app's engine."""
    app = OWN[kind](url)
    cron = make_cron(app, lease="1s")
    cron.task(every="hour", name="chore")(lambda: None)
    cron.sync()
    engine = cron._parts.store.engine

    def spoil(*heard: object) -> tuple[str, object]:
        statement, parameters = str(heard[2]), heard[3]
        if "INSERT INTO task_run" in statement:
            statement = statement.replace("task_run", "task_ruin")
        return statement, parameters

    event.listen(engine, "before_cursor_execute", spoil, retval=True)
    result = cron.run_now("chore")
    event.remove(engine, "before_cursor_execute", spoil)
    assert result is not None
    assert result.status == "lost"
    assert row_of(cron, "chore").running
    assert statuses(cron) == []
    app.dispose()


def test_a_clone_shares_no_connection_and_leaves_the_apps_engine_alone(sqlite: URL) -> None:
    """Its listeners are its own."""
    app = create_engine(sqlite)
    own = clone_engine(app)
    assert own.pool is not app.pool
    with own.connect() as mine, app.connect() as theirs:
        assert mine.connection.dbapi_connection is not theirs.connection.dbapi_connection
    app.dispose()
    own.dispose()


# URLs


@pytest.mark.parametrize(
    ("given", "sync"),
    [
        ("sqlite+aiosqlite:///app.db", "sqlite:///app.db"),
        ("postgresql+asyncpg://me:sesame@host/db", "postgresql+psycopg://me:***@host/db"),
        ("mysql+aiomysql://me@host/db", "mysql+pymysql://me@host/db"),
        ("mariadb+asyncmy://me@host/db", "mariadb+pymysql://me@host/db"),
    ],
)
def test_an_async_url_is_refused_with_its_sync_form(given: str, sync: str) -> None:
    """Without the password, at the construction."""
    with pytest.raises(ConfigurationError) as caught:
        LazyCron(given)
    assert f"pass {sync}" in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("name", ["password", "passfile", "sslpassword"])
def test_a_password_in_a_urls_query_is_in_no_message(
    make_cron: MakeCron, tmp_path: Path, name: str
) -> None:
    """Neither in an error nor in what names the database; other queries are other databases."""
    secret = f"{name}=sesame"
    with pytest.raises(ConfigurationError) as caught:
        LazyCron(f"postgresql+asyncpg://me@host/db?{secret}")
    assert "sesame" not in str(caught.value)
    found = []
    for query in ("", f"?{secret}", f"?{secret}2", "?options=-csearch_path=other"):
        store = make_cron(f"postgresql://me@host/db{query}", state_file=tmp_path / "x")._parts.store
        assert store.database == "postgresql+psycopg://me@host/db"
        assert "sesame" not in store.identity
        found.append(default_state_file(store))
    assert found[0] == found[1] == found[2] != found[3]


@pytest.mark.parametrize(
    "given",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
        "sqlite:///file:x?mode=memory&cache=shared&uri=true",
        "sqlite:///file::memory:?cache=shared&uri=true",
        "sqlite:///file:/x?vfs=memdb&uri=true",
        "sqlite:///file:?uri=true",
        "sqlite:///x.db?mode=memory",
    ],
)
def test_a_database_in_memory_is_refused(given: str) -> None:
    """No second thread would see it."""
    with pytest.raises(ConfigurationError, match="in memory is seen by one connection"):
        LazyCron(given)


@pytest.mark.parametrize(
    "given",
    [
        "nonsense",
        "",
        42,
        b"sqlite:///x.db",
        "postgresql://u:sesame@h:pp/x",
        make_url("sqlite:////"),
        "sqlite:////",
        "sqlite:///a\x00b",
        "sqlite:///a\x00/b",
    ],
)
def test_what_is_no_database_is_refused(given: object) -> None:
    """The error says what is accepted."""
    with pytest.raises(ConfigurationError, match=re.escape("sqlite:///lazycron.db")) as caught:
        LazyCron(given)  # type: ignore[arg-type]
    assert "sesame" not in str(caught.value)


def test_a_url_without_a_driver_gets_the_one_we_test_against() -> None:
    """psycopg and PyMySQL."""
    found = [to_url(f"{kind}://me@host/db").drivername for kind in ("postgresql", "mysql")]
    assert found == ["postgresql+psycopg", "mysql+pymysql"]
    assert make_url(str(to_url("sqlite:///x.db"))).drivername == "sqlite"


def test_a_file_opened_by_url_gets_wal_and_a_busy_timeout(
    tmp_path: Path, make_cron: MakeCron
) -> None:
    """An app's own engine keeps its settings."""
    cron = make_cron(f"sqlite:///{tmp_path}/new.db")
    cron.sync()
    with cron._parts.store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 5000


# What errors mean


class ReportedError(Exception):
    """A driver's error with a SQLSTATE."""

    def __init__(self, *arguments: object, sqlstate: str | None = None) -> None:
        super().__init__(*arguments)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("original", "fault"),
    [
        (ReportedError(1213, "Deadlock found", sqlstate="40001"), Fault.BUSY),
        (ReportedError(1205, "Lock wait timeout exceeded", sqlstate="HY000"), Fault.BUSY),
        (ReportedError(1205, "Lock wait timeout exceeded"), Fault.BUSY),
        (ReportedError("could not serialize", sqlstate="40001"), Fault.BUSY),
        (ReportedError("deadlock detected", sqlstate="40P01"), Fault.BUSY),
        (ReportedError(1146, "Table does not exist", sqlstate="42S02"), Fault.MISSING),
        (ReportedError("relation does not exist", sqlstate="42P01"), Fault.MISSING),
        (ReportedError(2006, "MySQL server has gone away"), Fault.GONE),
        (ReportedError("terminating connection", sqlstate="57P01"), Fault.GONE),
    ],
)
def test_an_error_is_told_by_its_number(original: Exception, fault: Fault) -> None:
    """A lost race, missing tables, and a server that is away."""
    assert fault_of(OperationalError("", {}, original)) is fault


def test_an_errors_text_is_believed_of_sqlite_alone() -> None:
    """Other databases quote what somebody wrote."""
    quoted = ReportedError("value 'the door is locked, no such table' is too long")
    assert fault_of(ProgrammingError("", {}, quoted)) is Fault.OTHER
    assert fault_of(IntegrityError("", {}, quoted)) is Fault.OTHER
    assert fault_of(PoolTimeout()) is Fault.GONE
    assert fault_of(ValueError("is locked")) is Fault.OTHER
    cut = DBAPIError("", {}, ReportedError("eof"), connection_invalidated=True)
    assert fault_of(cut) is Fault.GONE
