"""The database vanishes, refuses, hangs or forgets to answer: requests go on, nothing is lost."""

import asyncio
import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from lazycron import Budget, LazyCron, Retry, Run
from lazycron.asgi import LazyCronMiddleware
from lazycron.errors import BusyError
from lazycron.model.report import Trigger as Kind
from lazycron.model.settle import Settlement
from lazycron.store import Fault, Stamp, fault_of
from lazycron.store.driver import engine as engine_module
from lazycron.store.driver.engine import open_engine
from lazycron.testing import ManualClock
from lazycron.web.watcher import watcher_of
from tests.conftest import START, MakeCron, empty
from tests.doors import hello, request
from tests.processes import PATIENCE
from tests.proxy import Proxy, proxied
from tests.tables import HOUR, put_rows, row_of, statuses

FAST = Budget(tasks=None, seconds=None)
RECORD = b"INSERT INTO task_run"


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> URL:
    """An empty database on a server."""
    found: URL = request.getfixturevalue(request.param)
    empty(found)
    return found


@pytest.fixture
def direct(server: URL) -> Iterator[Engine]:
    """The server past the proxy: what is really there."""
    engine = open_engine(server)
    yield engine
    engine.dispose()


@pytest.fixture
def proxy(server: URL) -> Iterator[Proxy]:
    """A proxy before the server."""
    with proxied(server) as made:
        yield made


def count_records(cron: LazyCron, then: Callable[[int], None]) -> None:
    """Call `then` before each attempt to record, with its number."""
    record, numbers = cron._parts.store.record, iter(range(1, 1000))

    def counted(settlement: Settlement, following: Stamp | None) -> object:
        then(next(numbers))
        return record(settlement, following)

    cron._parts.store.record = counted  # type: ignore[assignment, method-assign]


# ── between claim and record ─────────────────────────────────────────────────────────────────────


def test_connections_cut_during_a_run_are_replaced_and_the_outcome_is_recorded(
    direct: Engine, proxy: Proxy, make_cron: MakeCron
) -> None:
    cron = make_cron(proxy.url)
    cron.task(every="1h", name="cut")(proxy.cut)
    put_rows(direct, ["cut"], due=START)
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    assert statuses(direct) == ["ok"]
    assert row_of(direct, "cut")["next_run_at"] == START + HOUR


def test_an_outcome_is_tried_again_until_the_database_is_back(
    direct: Engine, proxy: Proxy, make_cron: MakeCron
) -> None:
    cron = make_cron(proxy.url)
    cron.task(every="1h", name="gone")(proxy.refuse)
    cron.task(every="1h", name="next")(lambda: None)
    put_rows(direct, ["gone", "next"], due=START - timedelta(seconds=1))
    attempts = []

    def come_back(number: int) -> None:
        attempts.append(number)
        if number == 3:
            proxy.accept()

    count_records(cron, come_back)
    assert [run.task for run in cron.run_due(budget=FAST).runs] == ["gone"]
    assert attempts == [1, 2, 3]
    assert statuses(direct) == ["ok"]
    assert "gone  ok  " in cron.log_tail(1)[0]
    # A record that had failed claimed nothing more; the row is as it was, and runs in the next.
    assert row_of(direct, "next")["lock_token"] is None
    assert [run.task for run in cron.run_due(budget=FAST).runs] == ["next"]


def test_an_outcome_that_no_database_took_is_in_the_log_file_and_its_run_is_lost(
    direct: Engine,
    proxy: Proxy,
    make_cron: MakeCron,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Gone for good: tried until the lease ends, then given up; the lease covers the rest."""
    cron = make_cron(proxy.url)
    outages = [proxy.refuse]
    cron.task(every="1h", name="gone")(lambda: outages.pop()() if outages else None)
    put_rows(direct, ["gone"], due=START)
    count_records(cron, lambda number: clock.tick("2m") if number > 1 else None)
    # Nothing was recorded in this tick, so the error says more than a report could.
    with pytest.raises(OperationalError):
        cron.run_due()
    assert "gone  ok (not recorded)" in cron.log_tail(1)[0]
    assert "could not be recorded" in caplog.text
    assert cron._parts.facts.outage is not None
    proxy.accept()
    assert statuses(direct) == []
    clock.tick("10m")
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    assert statuses(direct) == ["lost", "ok"]
    assert row_of(direct, "gone")["lock_token"] is None
    assert cron._parts.facts.outage is None


# ── the answer to a record is lost ───────────────────────────────────────────────────────────────


def record_sent(kind: str) -> Callable[[bytes], bool]:
    """Recognise the request that commits a record: PostgreSQL's is one statement."""
    seen = []

    def is_it(data: bytes) -> bool:
        seen.append(RECORD in data)
        return seen[-1] if kind == "postgresql" else any(seen) and b"COMMIT" in data

    return is_it


def test_a_record_whose_answer_was_lost_counts_once_and_is_not_taken_for_lost(
    direct: Engine, proxy: Proxy, make_cron: MakeCron
) -> None:
    """The commit happened, the answer did not come: the second attempt finds nothing to do."""
    cron = make_cron(proxy.url)
    runs = []

    @cron.task(every="1h")
    def paid() -> None:
        runs.append(1)
        proxy.swallow_answer(record_sent(direct.dialect.name))

    put_rows(direct, ["paid"], due=START)
    report = cron.run_due()
    assert proxy.swallowed.is_set()
    assert statuses(direct) == ["ok"]
    assert [run.status for run in report.runs] == ["ok"]
    assert "paid  ok  " in cron.log_tail(1)[0]
    after = row_of(direct, "paid")
    assert (after["lock_token"], after["next_run_at"]) == (None, START + HOUR)
    assert cron.run_due().runs == []
    assert runs == [1]


def test_what_was_claimed_with_a_record_whose_answer_was_lost_is_run_and_not_lost(
    direct: Engine, proxy: Proxy, make_cron: MakeCron
) -> None:
    """One commit recorded the first run and claimed the second row: that claim is ours."""
    cron = make_cron(proxy.url)

    @cron.task(every="1h")
    def first() -> None:
        proxy.swallow_answer(record_sent(direct.dialect.name))

    cron.task(every="1h", name="second")(lambda: None)
    put_rows(direct, ["first", "second"], due=START - timedelta(seconds=1))
    report = cron.run_due(budget=FAST)
    assert proxy.swallowed.is_set()
    assert [(run.task, run.status) for run in report.runs] == [("first", "ok"), ("second", "ok")]
    assert statuses(direct) == ["ok", "ok"]
    assert row_of(direct, "second")["lock_token"] is None


def claim_sent(kind: str) -> Callable[[bytes], bool]:
    """Recognise the request that commits a claim: PostgreSQL's is one statement."""
    seen = []

    def is_it(data: bytes) -> bool:
        seen.append(b"UPDATE scheduled_task SET" in data)
        return seen[-1] if kind == "postgresql" else any(seen) and b"COMMIT" in data

    return is_it


def in_a_tick(cron: LazyCron) -> list[str]:
    """Run what is due."""
    return [run.status for run in cron.run_due().runs]


def by_its_name(cron: LazyCron) -> list[str]:
    """Run the task now, or the job of a task without a schedule."""
    result = cron.run_now("paid")
    return [result.status] if result else []


@pytest.mark.parametrize(
    ("schedule", "run"),
    [({"every": "1h"}, in_a_tick), ({"every": "1h"}, by_its_name), ({}, by_its_name)],
    ids=["due", "by name", "job"],
)
def test_a_claim_whose_answer_was_lost_is_ours_and_runs(
    schedule: dict[str, Any],
    run: Callable[[LazyCron], list[str]],
    direct: Engine,
    proxy: Proxy,
    make_cron: MakeCron,
) -> None:
    """The commit happened, the answer did not come: nobody waits for a lease's end."""
    cron = make_cron(proxy.url)
    runs = []
    task = cron.task(name="paid", **schedule)(lambda: runs.append(1))
    if schedule:
        put_rows(direct, ["paid"], due=START)
    else:
        task.enqueue()
    cron.sync()
    proxy.swallow_answer(claim_sent(direct.dialect.name))
    assert run(cron) == ["ok"]
    assert proxy.swallowed.is_set()
    assert runs == [1]
    assert statuses(direct) == ["ok"]


# ── restarts ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pre_ping", [True, False])
@pytest.mark.parametrize("from_a_url", [True, False])
def test_a_restart_between_two_ticks_is_not_noticed(
    *,
    from_a_url: bool,
    pre_ping: bool,
    direct: Engine,
    proxy: Proxy,
    make_cron: MakeCron,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An app's engine may not ping; lazycron's clone of it does, once a connection has rested."""
    monkeypatch.setattr(engine_module, "REST", 0.0)
    app = create_engine(proxy.url, pool_pre_ping=pre_ping)
    cron = make_cron(proxy.url if from_a_url else app)
    cron.task(every="1h", name="task")(lambda: None)
    put_rows(direct, ["task"], due=START + timedelta(seconds=1))
    assert cron.run_due().runs == []
    proxy.cut()
    assert [run.status for run in cron.run_due(now=START + HOUR).runs] == ["ok"]
    app.dispose()


# ── gone, for everybody who looks ────────────────────────────────────────────────────────────────


class Site:
    """An app behind the middleware, and which threads have spoken to its database."""

    def __init__(self, cron: LazyCron) -> None:
        self.cron = cron
        self.app = LazyCronMiddleware(hello, cron)
        self.attempts = 0
        self.in_requests: list[str] = []
        engine = cron._parts.store.engine

        @event.listens_for(engine, "do_connect")
        def connect(*values: object) -> None:
            del values
            self._note("connect")

        @event.listens_for(engine, "before_cursor_execute")
        def execute(*values: Any) -> None:
            self._note(values[2])

        read = cron._parts.statefile.read

        def reading(*values: Any) -> object:
            self._note("state file")
            return read(*values)

        cron._parts.statefile.read = reading  # type: ignore[assignment, method-assign]

    def _note(self, what: str) -> None:
        if threading.current_thread() is threading.main_thread():
            self.in_requests.append(what)

    def visit(self, path: str = "/") -> int:
        """Send a request; the loop is that of the test's own thread."""
        return asyncio.run(request(self.app, path))

    def rest(self) -> None:
        """Wait until the tick threads have done what they were sent for."""
        threads = watcher_of(self.cron)._threads()
        end = time.monotonic() + PATIENCE
        while True:
            with threads.lock:
                if threads.is_at_rest():
                    return
            assert time.monotonic() < end, "a tick thread does not come to rest"
            time.sleep(0.002)


def test_requests_do_no_database_work_while_it_is_gone_and_attempts_are_spaced_out(
    direct: Engine, proxy: Proxy, make_cron: MakeCron, clock: ManualClock
) -> None:
    """A visitor costs an attempt at most each 30 seconds, in a tick thread; here all are noted."""
    cron = make_cron(proxy.url)
    cron.task(every="1h", name="task")(lambda: None)
    put_rows(direct, ["task"], due=START)
    site = Site(cron)
    proxy.refuse()
    attempts = []
    for second in range(95):
        assert site.visit() == 200
        site.rest()
        attempts.append((second, proxy.attempts))
        clock.tick()
    rises = [
        after[0]
        for before, after in zip([(0, 0), *attempts], attempts, strict=False)
        if after[1] > before[1]
    ]
    assert rises == [0, 30, 60, 90]
    assert site.in_requests == []
    # And once it is back, the row that waited runs within half a minute.
    proxy.accept()
    for _ in range(30):
        site.visit()
        site.rest()
        clock.tick()
    assert statuses(direct) == ["ok"]
    assert site.in_requests == []


def test_who_asks_for_a_tick_gets_one_tried_during_an_outage(
    direct: Engine, proxy: Proxy, make_cron: MakeCron
) -> None:
    """A called `run_due` and the cron URL always try; the command line calls the same."""
    cron = make_cron(proxy.url)
    cron.task(every="1h", name="task")(lambda: None)
    put_rows(direct, ["task"], due=START)
    site = Site(cron)
    proxy.refuse()
    for _ in range(2):
        before = proxy.attempts
        with pytest.raises(OperationalError):
            cron.run_due()
        assert proxy.attempts > before
        before = proxy.attempts
        assert site.visit(f"/lazycron/{cron.cron_token}") == 503
        assert proxy.attempts > before
    proxy.accept()
    assert site.visit(f"/lazycron/{cron.cron_token}") == 200
    assert statuses(direct) == ["ok"]
    assert cron._parts.facts.outage is None


def test_missing_tables_are_no_outage(
    tmp_path: Path, make_cron: MakeCron, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    cron = make_cron(f"sqlite:///{tmp_path}/empty.db", create_tables=False)
    cron.task(every="1m", name="task")(lambda: None)
    site = Site(cron)
    for _ in range(10):
        assert site.visit() == 200
        site.rest()
        clock.tick()
    assert cron._parts.facts.outage is None
    assert caplog.text.count("tables are missing") == 1
    cron.migrate()
    for _ in range(130):
        site.visit()
        site.rest()
        clock.tick()
    assert [run.status for run in cron.history("task")][-1] == "ok"


# ── the database hangs ───────────────────────────────────────────────────────────────────────────


def test_a_database_that_hangs_holds_a_tick_thread_and_neither_requests_nor_other_processes(
    direct: Engine, server: URL, proxy: Proxy, make_cron: MakeCron, clock: ManualClock
) -> None:
    """The thread hangs with the state file's lock in its hand; the others go on without it."""
    hanging, other = make_cron(proxy.url), make_cron(server)
    for cron in (hanging, other):
        cron.task(every="1h", name="task")(lambda: None)
    put_rows(direct, ["task"], due=START + timedelta(seconds=90))
    hanging.run_due()
    site, asked = Site(hanging), threading.Event()
    next_due = hanging._parts.store.next_due

    def stalling(*values: Any) -> object:
        if not asked.is_set():
            proxy.stall()
            asked.set()
        return next_due(*values)

    hanging._parts.store.next_due = stalling  # type: ignore[assignment, method-assign]
    clock.tick("61s")  # the state file is too old now to be believed
    assert site.visit() == 200
    assert asked.wait(PATIENCE)
    for _ in range(20):
        clock.tick()
        assert site.visit() == 200
    assert site.in_requests == []
    clock.tick("10s")
    assert [run.status for run in other.run_due().runs] == ["ok"]
    state = other._parts.statefile.peek()
    assert state is not None
    assert state.next == START + timedelta(seconds=90) + HOUR
    proxy.accept()
    site.rest()
    assert statuses(direct) == ["ok"]


# ── refusals of other kinds ──────────────────────────────────────────────────────────────────────


def read_only(url: URL) -> URL:
    """Make every session of this URL read-only, as a replica's are."""
    option = {
        "postgresql": {"options": "-c default_transaction_read_only=on"},
        "mariadb": {"init_command": "SET SESSION TRANSACTION READ ONLY"},
    }
    return url.update_query_dict(option[url.get_backend_name()])


def test_a_read_only_database_is_an_outage(
    server: URL, direct: Engine, make_cron: MakeCron
) -> None:
    cron = make_cron(read_only(server))
    cron.task(every="1h", name="task")(lambda: None)
    put_rows(direct, ["task"], due=START)
    with pytest.raises(SQLAlchemyError) as caught:
        cron.run_due()
    assert fault_of(caught.value) is Fault.GONE
    assert cron._parts.facts.outage is not None
    site = Site(cron)
    assert site.visit() == 200
    site.rest()
    assert site.in_requests == []
    assert row_of(direct, "task")["lock_token"] is None


def test_a_database_that_becomes_read_only_during_a_run_is_asked_again(
    server: URL, direct: Engine, make_cron: MakeCron
) -> None:
    """A failover to a replica, and back: the outcome waits for it."""
    cron = make_cron(server)
    engine = cron._parts.store.engine
    writable = [False]
    verb = {
        "postgresql": "SET default_transaction_read_only = {}",
        "mariadb": "SET SESSION TRANSACTION READ {}",
    }[server.get_backend_name()]
    words = {"postgresql": ("on", "off"), "mariadb": ("ONLY", "WRITE")}

    @event.listens_for(engine, "checkout")
    def turn(connection: DBAPIConnection, *_: object) -> None:
        cursor = connection.cursor()
        cursor.execute(verb.format(words[server.get_backend_name()][writable[0]]))
        cursor.close()
        connection.commit()

    writable[0] = True
    attempts = []

    def come_back(number: int) -> None:
        attempts.append(number)
        writable[0] = number == 3

    cron.task(every="1h", name="task")(lambda: None)
    put_rows(direct, ["task"], due=START)
    count_records(cron, come_back)
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    assert attempts == [1, 2, 3]
    assert statuses(direct) == ["ok"]


def test_an_sqlite_file_that_cannot_be_used_is_told_in_its_own_words(
    tmp_path: Path, make_cron: MakeCron, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "torn.db").write_bytes(b"this was a database once" * 100)
    cron = make_cron(f"sqlite:///{tmp_path}/torn.db")
    cron.task(every="1h", name="task")(lambda: None)
    site = Site(cron)
    assert site.visit() == 200
    site.rest()
    assert "a tick failed: DatabaseError: file is not a database" in caplog.messages


@pytest.fixture
def few(server: URL) -> Iterator[URL]:
    """The same database for a user who may have one connection."""
    name = f"lazycron_few_{server.database}"[:32]
    admin = create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    if server.get_backend_name() == "postgresql":
        make = [f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 1"]
        make += [f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}"]
        make += [f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {name}"]
        drop = [f"DROP OWNED BY {name}", f"DROP ROLE {name}"]
        user, password = name, None
    else:
        make = [f"CREATE USER {name}@127.0.0.1 IDENTIFIED BY 'few' WITH MAX_USER_CONNECTIONS 1"]
        make += [f"GRANT ALL ON {server.database}.* TO {name}@127.0.0.1"]
        drop = [f"DROP USER {name}@127.0.0.1"]
        user, password = name, "few"
    with admin.connect() as connection:
        for statement in make:
            connection.execute(text(statement))
    yield server.set(username=user, password=password)
    with admin.connect() as connection:
        for statement in drop:
            connection.execute(text(statement))


def await_nobody(direct: Engine, few: URL) -> None:
    """Wait until the server has let the last connection of this user go, which it does later."""
    table = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE usename = :user",
        "mariadb": "SELECT count(*) FROM information_schema.processlist WHERE user = :user",
    }
    end = time.monotonic() + PATIENCE
    while True:
        with direct.connect() as connection:
            query = text(table[few.get_backend_name()])
            if connection.execute(query, {"user": few.username}).scalar_one() == 0:
                return
        assert time.monotonic() < end, "the server keeps a connection"
        time.sleep(0.01)


def test_a_server_out_of_connections_is_an_outage_that_ends(
    few: URL, direct: Engine, make_cron: MakeCron
) -> None:
    try:
        with create_engine(few, poolclass=NullPool).connect() as held:
            held.execute(text("SELECT 1"))
            cron = make_cron(few, create_tables=False)
            cron.task(every="1h", name="task")(lambda: None)
            put_rows(direct, ["task"], due=START)
            with pytest.raises(OperationalError) as caught:
                cron.run_due()
            assert fault_of(caught.value) is Fault.GONE
            assert cron._parts.facts.outage is not None
    except OperationalError as error:
        pytest.skip(f"this server lets no such user in: {error.orig}")
    await_nobody(direct, few)
    # Renewal has a connection of its own where it can have one; here one must do for all.
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    assert cron._parts.facts.outage is None
    cron.close()


# ── SQLite ───────────────────────────────────────────────────────────────────────────────────────


def impatient(url: URL) -> Engine:
    """An app's engine that waits for SQLite's lock for ten milliseconds only."""
    return create_engine(url, connect_args={"timeout": 0.01})


class Writer:
    """Somebody else who writes the file, for as long as it takes."""

    def __init__(self, url: URL) -> None:
        self._connection = sqlite3.connect(
            str(url.database), isolation_level=None, check_same_thread=False
        )

    def begin(self) -> None:
        """Take the write lock."""
        self._connection.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        """Let it go."""
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@pytest.fixture
def writer(sqlite: URL) -> Iterator[Writer]:
    """Another writer of the file."""
    made = Writer(sqlite)
    yield made
    made.close()


def test_a_file_locked_by_another_writer_means_not_claimed_and_no_error(
    sqlite: URL, writer: Writer, make_cron: MakeCron
) -> None:
    engine = impatient(sqlite)
    cron = make_cron(engine)
    cron.task(every="1h", name="task")(lambda: None)
    put_rows(engine, ["task"], due=START + HOUR)
    cron.run_due()
    writer.begin()
    assert cron.run_due(now=START + HOUR).runs == []
    assert cron._parts.facts.outage is None
    writer.end()
    assert [run.status for run in cron.run_due(now=START + HOUR).runs] == ["ok"]
    engine.dispose()


def test_a_checkpoint_in_the_tasks_own_write_transaction_says_what_holds_it_up(
    sqlite: URL, writer: Writer, make_cron: MakeCron
) -> None:
    """One writer at a time is all SQLite has, and here it is the task itself."""
    engine = impatient(sqlite)
    cron = make_cron(engine)

    @cron.task(retry=Retry(limit=1))
    def work(run: Run) -> None:
        writer.begin()
        try:
            if run.trigger == "url":
                run.checkpoint(1)
            else:
                cron.once("key").__enter__()
        finally:
            writer.end()

    work.enqueue()
    work.enqueue()
    cron.run_due("url", budget=Budget(1, 20))
    cron.run_due("cli", budget=Budget(1, 20))
    once, checkpoint = (run.message for run in cron.history("work"))
    assert checkpoint is not None
    assert checkpoint.startswith(
        "BusyError: the checkpoint could not be stored: another connection"
    )
    assert once is not None
    assert once.startswith("BusyError: another connection holds the database's lock")
    assert "register the key in that one with connection=, or before it begins" in once
    engine.dispose()


def test_an_outcome_waits_for_another_writer_of_the_file(
    sqlite: URL, writer: Writer, make_cron: MakeCron
) -> None:
    engine = impatient(sqlite)
    cron = make_cron(engine)
    cron.task(every="1h", name="task")(writer.begin)
    put_rows(engine, ["task"], due=START)
    attempts = []

    def let_go(number: int) -> None:
        attempts.append(number)
        if number == 4:
            writer.end()

    count_records(cron, let_go)
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    assert attempts == [1, 2, 3, 4]
    assert statuses(engine) == ["ok"]
    engine.dispose()


@pytest.mark.parametrize("kind", ["traffic", "url", "cli", "manual"])
def test_a_process_that_starts_while_the_file_is_locked_picks_up_later(
    kind: Kind,
    sqlite: URL,
    writer: Writer,
    make_cron: MakeCron,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Making the tables or the first rows meets the lock: no error, and no outage."""
    caplog.set_level(logging.DEBUG, logger="lazycron")
    engine = impatient(sqlite)
    cron = make_cron(engine)
    cron.task(every="1h", name="task", first_run=0)(lambda: None)
    for installed in (False, True):
        if installed:
            cron.migrate()
        writer.begin()
        caplog.clear()
        report = cron.run_due(kind)
        assert report.runs == []
        decision = report.decisions["task"]
        said = "the database is busy; the next tick looks again"
        assert (decision.verdict, decision.reason) == ("skipped", said)
        assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
            ("DEBUG", f"no tick: {said}")
        ]
        assert cron._parts.facts.outage is None
        writer.end()
    assert cron.run_due(kind).decisions["task"].verdict == "deferred"
    engine.dispose()


@pytest.mark.parametrize("installed", [False, True])
def test_who_runs_a_task_by_name_is_told_that_the_file_is_locked(
    *, installed: bool, sqlite: URL, writer: Writer, make_cron: MakeCron
) -> None:
    """In lazycron's own words; it runs once the lock is let go."""
    engine = impatient(sqlite)
    cron = make_cron(engine)
    cron.task(every="1h", name="task")(lambda: None)
    if installed:
        cron.sync()
    writer.begin()
    with pytest.raises(BusyError, match="the database is busy"):
        cron.run_now("task")
    assert cron._parts.facts.outage is None
    writer.end()
    result = cron.run_now("task")
    assert result is not None
    assert result.status == "ok"
    engine.dispose()


class Busy(Exception):  # noqa: N818 - a driver's error, as MariaDB's is
    """A lock that was waited for in vain."""


@pytest.mark.parametrize("code", [1205, 1213])
@pytest.mark.parametrize("step", ["sync", "burial"])
def test_a_tick_that_meets_a_lock_before_any_run_ends_quietly(
    step: str, code: int, sqlite: URL, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever statement it is that waits in vain; the next tick runs what is due."""
    cron = make_cron(sqlite)
    cron.task(every="1h", name="task")(lambda: None)
    put_rows(cron._parts.store.engine, ["task"], due=START)

    def locked(*_: object, **__: object) -> None:
        statement = "UPDATE scheduled_task"
        raise OperationalError(statement, {}, Busy(code, "Lock wait timeout exceeded"))

    runner = cron._parts.runner
    with monkeypatch.context() as patch:
        if step == "sync":
            patch.setattr(runner.sync, "bring_in_when_due", locked)
        else:
            patch.setattr(runner.burial, "look", locked)
        report = cron.run_due()
    assert (report.runs, report.decisions["task"].verdict) == ([], "skipped")
    assert cron._parts.facts.outage is None
    assert [run.status for run in cron.run_due().runs] == ["ok"]


def test_a_file_that_became_read_only_is_an_outage_and_its_outcome_waits(
    sqlite: URL, make_cron: MakeCron
) -> None:
    engine = impatient(sqlite)
    read_only = [False]

    @event.listens_for(engine, "checkout")
    def turn(connection: DBAPIConnection, *_: object) -> None:
        connection.cursor().execute(f"PRAGMA query_only = {int(read_only[0])}")

    cron = make_cron(engine)

    @cron.task(every="1h")
    def task() -> None:
        read_only[0] = True

    put_rows(engine, ["task"], due=START)
    attempts = []

    def come_back(number: int) -> None:
        attempts.append(number)
        read_only[0] = number < 3

    count_records(cron, come_back)
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    assert attempts == [1, 2, 3]
    read_only[0] = True
    with pytest.raises(OperationalError) as caught:
        cron.run_due(now=START + HOUR)
    assert fault_of(caught.value) is Fault.GONE
    assert cron._parts.facts.outage is not None
    read_only[0] = False
    assert [run.status for run in cron.run_due(now=START + HOUR).runs] == ["ok"]
    assert cron._parts.facts.outage is None
    engine.dispose()


def test_a_folder_that_is_gone_is_an_outage(tmp_path: Path, make_cron: MakeCron) -> None:
    folder, elsewhere = tmp_path / "mounted", tmp_path / "unmounted"
    folder.mkdir()
    cron = make_cron(f"sqlite:///{folder}/lazycron.db")
    cron.task(every="1h", name="task")(lambda: None)
    site = Site(cron)
    folder.rename(elsewhere)
    assert site.visit() == 200
    site.rest()
    assert cron._parts.facts.outage is not None
    assert site.in_requests == []
    shutil.rmtree(folder, ignore_errors=True)  # the state file made it anew
    elsewhere.rename(folder)
    assert cron.run_due().decisions["task"].verdict == "deferred"


# ── pools ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pool", [{"pool_size": 1, "max_overflow": 0}, {"poolclass": NullPool}])
def test_an_app_s_pool_of_one_connection_or_none_is_enough(
    pool: dict[str, Any], url: URL, engine: Engine, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Twenty failing tasks and a renewal in the middle of one: nothing stays checked out."""
    if pool.get("pool_size"):
        pool = pool | {"pool_timeout": 5}
    app = create_engine(url, **pool)
    cron = make_cron(app, budget=FAST, lease="1m")
    names = [f"failing-{number}" for number in range(20)]

    def fail() -> None:
        message = "as it does"
        raise RuntimeError(message)

    renewed = threading.Event()
    leases = cron._parts.runner.running.leases
    renew = leases._renew

    def renewing(*values: Any) -> bool:
        kept = renew(*values)
        renewed.set()
        return kept

    leases._renew = renewing

    @cron.task(every="1h")
    def a_long_one() -> None:
        clock.tick("21s")
        with leases._changed:
            leases._changed.notify_all()
        assert renewed.wait(PATIENCE)

    for name in names:
        cron.task(every="1h", name=name)(fail)
    put_rows(engine, ["a_long_one", *names], due=START - timedelta(seconds=1))
    statuses_seen = [run.status for run in cron.run_due().runs]
    assert statuses_seen == ["ok"] + ["failed"] * 20
    own = cron._parts.store.engine
    assert own is not app
    if pool.get("pool_size"):
        assert own.pool.checkedout() == 0  # type: ignore[attr-defined]
        assert app.pool.checkedout() == 0  # type: ignore[attr-defined]
    app.dispose()


# ── SQLite's file is replaced or deleted ─────────────────────────────────────────────────────────


def remove(path: Path) -> None:
    """Delete a database with what lies beside it, as an operator does."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@pytest.mark.parametrize("own", [True, False], ids=["by URL", "app's engine"])
def test_a_process_goes_on_with_a_backup_that_was_moved_over_its_file(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock, tmp_path: Path, *, own: bool
) -> None:
    """Else it would run everything again that a process with the new file runs."""
    path, app = Path(sqlite.database or ""), create_engine(sqlite)
    ran: list[str] = []
    old = make_cron(sqlite if own else app)
    old.task(every="1h", name="task")(lambda: ran.append("old"))
    old.task(name="job")(lambda: None)
    old.run_due()
    app.dispose()
    with sqlite3.connect(path) as source, sqlite3.connect(tmp_path / "backup.db") as target:
        source.backup(target)
    source.close()
    target.close()
    clock.tick("1h")
    assert [run.task for run in old.run_due().runs] == ["task"]
    remove(path)
    (tmp_path / "backup.db").rename(path)
    new = make_cron(sqlite)
    new.task(every="1h", name="task")(lambda: ran.append("new"))
    assert statuses(new._parts.store.engine) == []
    assert [run.task for run in new.run_due().runs] == ["task"]
    job = old.enqueue("job")
    assert job.id is not None
    assert new._parts.store.jobs.by_id(job.id) is not None
    assert [run.task for run in old.run_due().runs] == ["job"]
    assert ran == ["old", "new"]
    assert statuses(new._parts.store.engine) == ["ok", "ok"]
    found = {problem.name: problem.text for problem in old.check()}
    assert "was opened at 2026-01-01 01:00:00 UTC" in found["database_replaced"]
    assert "database_replaced" not in {problem.name for problem in new.check()}


def test_a_file_that_was_deleted_is_made_anew_with_its_tables_and_rows(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """By the next tick, or the look that a visitor's request begins once a minute."""
    cron = make_cron(sqlite)
    cron.task(every="1h", name="task")(lambda: None)
    cron.run_due()
    site = Site(cron)
    looks: list[Callable[[], object]] = [cron.run_due, cron.sync, site.visit]
    for count, look in enumerate(looks, 1):
        remove(Path(sqlite.database or ""))
        clock.tick("61s")
        look()
        site.rest()
        with sqlite3.connect(sqlite.database or "") as connection:
            found = connection.execute("SELECT name FROM scheduled_task").fetchall()
        connection.close()
        assert found == [("task",)]
        assert caplog.text.count("the database file was replaced or deleted") == count


def test_where_lazycron_makes_no_tables_those_of_a_deleted_file_are_missing(
    sqlite: URL, make_cron: MakeCron
) -> None:
    cron = make_cron(sqlite, create_tables=False)
    cron.task(every="1h", name="task")(lambda: None)
    cron.run_due()
    remove(Path(sqlite.database or ""))
    assert cron.why("task").reason == "not_installed"
    cron.migrate()
    assert cron.run_due().decisions["task"].verdict == "deferred"


@pytest.mark.parametrize("query", ["", "?uri=true"])
def test_a_file_that_stays_is_opened_once(tmp_path: Path, make_cron: MakeCron, query: str) -> None:
    """By a path or by a URI."""
    name = "file:" if query else ""
    cron = make_cron(f"sqlite:///{name}{tmp_path}/app.db{query}")
    cron.task(every="1h", name="task")(lambda: None)
    cron.run_due()
    pool = cron._parts.store.engine.pool
    (tmp_path / "app.db").touch()
    cron.run_due()
    assert cron._parts.store.engine.pool is pool
    assert cron._parts.facts.replaced_at is None
