"""Forks, servers with several workers, hosts whose clocks differ, ten starts at once."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    URL,
    Engine,
    Pool,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    text,
)

from lazycron import LazyCron
from lazycron.clock import SystemClock
from lazycron.migrate import HEAD
from lazycron.schema import metadata, task_run
from lazycron.store.driver.engine import open_engine
from lazycron.web.watcher import watcher_of
from tests.conftest import MakeCron, empty
from tests.processes import PATIENCE, Child, Wire, children
from tests.tables import put_rows, row_of, set_row, statuses, text_of

pytestmark = pytest.mark.races

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


# ── forks ────────────────────────────────────────────────────────────────────────────────────────

OWN_ID = {"postgresql": "SELECT pg_backend_pid()", "mariadb": "SELECT connection_id()"}


class Connections:
    """Every connection this process and its forks take, and whose it was."""

    def __init__(self) -> None:
        self.foreign: list[str] = []
        event.listen(Pool, "connect", self._made)
        event.listen(Pool, "checkout", self._taken)

    def _made(self, connection: object, record: Any) -> None:  # noqa: ANN401 - the pool's own
        del connection
        record.info["pid"] = os.getpid()

    def _taken(self, connection: object, record: Any, proxy: object) -> None:  # noqa: ANN401
        del connection, proxy
        if record.info["pid"] != os.getpid():
            self.foreign.append(f"{os.getpid()} took one of {record.info['pid']}")


class Forking:
    """A process that forks in the middle of everything, and what each side does then."""

    def __init__(self, url: str, folder: str) -> None:
        self.connections = Connections()
        self.cron = LazyCron(url, state_file=f"{folder}/state.json")
        self.ran: list[str] = []
        self.cron.task(every="1h", name="task")(lambda: self.ran.append("task"))
        self.watcher = watcher_of(self.cron)
        self._url = make_url(url)
        self._held, self._release = threading.Event(), threading.Event()

    def backend(self) -> object:
        """Return the server's number for the connection this process has."""
        engine = self.cron._parts.store.engine
        with engine.connect() as connection:
            return connection.execute(text(OWN_ID.get(engine.dialect.name, "SELECT 1"))).scalar()

    def make_due(self) -> None:
        """Make the task's row due, on a connection that is closed at once."""
        engine = open_engine(self._url)
        try:
            set_row(engine, "task", next_run_at=LONG_AGO, scheduled_for=LONG_AGO)
        finally:
            engine.dispose()

    def tick(self) -> list[str]:
        """Make the row due and look."""
        self.ran.clear()
        self.make_due()
        self.cron.run_due()
        return list(self.ran)

    @contextmanager
    def every_lock_held(self, *, used: bool) -> Iterator[None]:
        """Hold what a tick under way may hold, in a thread that a fork leaves behind."""
        holder = threading.Thread(target=self._hold_used if used else self._hold)
        holder.start()
        assert self._held.wait(PATIENCE)
        try:
            yield
        finally:
            self._release.set()
            holder.join()

    def _hold(self) -> None:
        with self.watcher._threads().lock:
            self._held.set()
            self._release.wait()

    def _hold_used(self) -> None:
        runner = self.cron._parts.runner
        with runner.running.leases._changed, runner.activity._idle:
            self._hold()

    def fork(self) -> str:
        """Fork; return what the child says of its tick."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)  # a lock of the parent's would be waited for until then
            try:
                said = "; ".join([*self.tick(), *self.connections.foreign])
                self.watcher.look("traffic", None)
                self.watcher.drain()
            except BaseException as error:  # noqa: BLE001 - a fork must not go on as a test
                said = repr(error)
            os.write(writer, said.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            said = answer.read()
        os.waitpid(pid, 0)
        return said


def forking(wire: Wire, url: str, folder: str, used: bool) -> None:  # noqa: FBT001
    """Fork before or after the first use."""
    process, before = Forking(url, folder), None
    if used:
        assert process.tick() == ["task"]
        process.watcher.look("traffic", None)
        before = process.backend()
    with process.every_lock_held(used=used):
        in_the_fork = process.fork()
    ran = process.tick()
    same = not used or process.backend() == before
    wire.say("done", (in_the_fork, ran, process.connections.foreign, same))
    process.watcher.drain()


@pytest.mark.parametrize("used", [False, True], ids=["before the first use", "after it"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_fork_uses_no_connection_thread_or_lock_of_its_parent(
    used: bool,  # noqa: FBT001
    url: URL,
    engine: Engine,
    tmp_path: Path,
) -> None:
    put_rows(engine, ["task"], due=LONG_AGO)
    with Child(forking, text_of(url), str(tmp_path), used) as child:
        in_the_fork, ran, foreign, same = child.expect("done")
        child.end()
    assert in_the_fork == "task"
    assert (ran, foreign) == (["task"], [])
    assert same, "the parent's connection did not outlive its fork"
    assert set(statuses(engine)) == {"ok"}


FORKED = """
import os, sys
from lazycron import Budget, LazyCron

cron = LazyCron(sys.argv[1])
work = cron.task(name="work")(lambda: None)
ALL = Budget(None, None)


def run(number):
    for _ in range(number):
        work.enqueue()
    return len(cron.run_due(budget=ALL).runs)


def open_files():
    folder, name = "/proc/self/fd", os.path.basename(cron._parts.store.database)
    links = [os.path.join(folder, one) for one in os.listdir(folder)]
    return [os.readlink(one) for one in links if os.path.exists(one) and name in os.readlink(one)]


cron.sync()
assert run(3) == 3
(to_child, from_parent), (to_parent, from_child) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.close(from_parent)  # so that a parent that dies is noticed
    inherited = len(open_files()) if os.path.isdir("/proc/self/fd") else 0
    ran = run(5)
    os.write(from_child, b"x")
    if os.read(to_child, 1):  # once the parent has closed the file
        print(inherited, ran + run(5), flush=True)
    os._exit(0)
os.close(from_child)
assert os.read(to_parent, 1)  # the jobs of the two would be run by either
assert run(3) == 3
cron.close()
os.write(from_parent, b"x")
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_parent_that_closes_the_file_takes_nothing_of_its_childs_away(tmp_path: Path) -> None:
    """SQLite's locks are the process's: an inherited open file would be thought locked."""
    url = f"sqlite:///{tmp_path}/forked.db"
    ended = subprocess.run(
        [sys.executable, "-c", FORKED, url], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "0 10\n"
    engine = open_engine(make_url(url))
    assert len(statuses(engine)) == 16
    engine.dispose()


# ── servers with two workers ─────────────────────────────────────────────────────────────────────

SITE = """
import os
from pathlib import Path

from lazycron import LazyCron, Run
from lazycron.asgi import LazyCronMiddleware as ForASGI
from lazycron.wsgi import LazyCronMiddleware as ForWSGI

FOLDER = Path(os.environ["SITE_FOLDER"])
cron = LazyCron(os.environ["SITE_URL"], state_file=FOLDER / "state.json")


@cron.task(every="1h")
def beat(run: Run):
    with (FOLDER / "beats").open("a") as file:
        file.write(f"{run.scheduled_for.isoformat()}\\n")


cron.overview()  # the first use, before any fork


def hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]


async def ahello(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("no lifespan here")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})


wsgi, asgi = ForWSGI(hello, cron), ForASGI(ahello, cron)
"""
GUNICORN = ["gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0", "site_app:wsgi"]
UVICORN = ["uvicorn", "--workers", "2", "--port", "0", "site_app:asgi"]


@contextmanager
def serving(command: list[str], url: URL, folder: Path, site: str = SITE) -> Iterator[str]:
    """Serve the site; yields its address, once it is known."""
    (folder / "site_app.py").write_text(site)
    environment = os.environ | {"SITE_FOLDER": str(folder), "SITE_URL": text_of(url)}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(Path(__file__).parent.parent)])
    log = folder / "server.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", *command], env=environment, stdout=file, stderr=file, cwd=folder
        )
    try:
        end = time.monotonic() + PATIENCE
        while not (found := re.search(r"http://127\.0\.0\.1:[1-9]\d*", log.read_text())):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.02)
        yield found[0]
        server.terminate()
        assert server.wait(PATIENCE) == 0, log.read_text()
        assert "Traceback" not in log.read_text().replace("no lifespan here", "")
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def visit(address: str) -> str | None:
    """Send a request; returns the worker's pid, None while nobody answers yet."""
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


@pytest.mark.parametrize("command", [GUNICORN, UVICORN], ids=["gunicorn --preload", "uvicorn"])
def test_two_workers_of_a_server_run_each_due_time_once(
    command: list[str], url: URL, engine: Engine, tmp_path: Path, make_cron: MakeCron
) -> None:
    beats, pids = tmp_path / "beats", set()
    beats.touch()
    put_rows(engine, ["beat"], due=datetime(2200, 1, 1, tzinfo=UTC))
    beside = make_cron(url, clock=SystemClock())
    beside.task(every="1h", name="beat")(lambda: None)
    beside.sync()
    due = [LONG_AGO + timedelta(minutes=number) for number in range(2)]
    with serving(command, url, tmp_path) as address:

        def visit_until(what: Callable[[], bool]) -> None:
            end = time.monotonic() + PATIENCE
            while not what():
                pids.add(visit(address))
                assert time.monotonic() < end, "nothing happened for half a minute"

        visit_until(lambda: len(pids - {None}) == 2)
        for number, moment in enumerate(due, 1):
            set_row(engine, "beat", next_run_at=moment, scheduled_for=moment)
            beside._parts.refresh_state()
            visit_until(lambda number=number: len(statuses(engine)) >= number)  # type: ignore[misc]
    assert beats.read_text().split() == [moment.isoformat() for moment in due]
    assert statuses(engine) == ["ok"] * len(due)


# ── hosts ten minutes apart ──────────────────────────────────────────────────────────────────────


class Shifted(SystemClock):
    """The system's clock of a host that is ahead or behind."""

    def __init__(self, seconds: float) -> None:
        self._shift = timedelta(seconds=seconds)

    def now(self) -> datetime:
        """Return what that host's wall clock shows."""
        return super().now() + self._shift


def host(wire: Wire, url: str, folder: str, ahead: float) -> None:
    """Be a host with a clock and a state file of its own, which ticks when told to."""
    cron = LazyCron(url, state_file=f"{folder}/{ahead}.json", clock=Shifted(ahead), lease="1s")
    cron.task(every="1h", name="slow")(lambda: wire.halt_here("in the task"))
    cron.sync()
    wire.say("ready")
    while wire.hear()[0] == "tick":
        wire.say("ran", [run.status for run in cron.run_due().runs])
    cron.close()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
@pytest.mark.parametrize("first", [0, 1], ids=["the one behind runs", "the one ahead runs"])
def test_hosts_ten_minutes_apart_never_run_at_once_and_bury_no_live_lease(
    first: int, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url: URL = request.getfixturevalue(kind)
    empty(url)
    engine = open_engine(url)
    put_rows(engine, ["slow"], due=LONG_AGO)
    where = (text_of(url), str(tmp_path))
    with Child(host, *where, 0.0) as behind, Child(host, *where, 600.0) as ahead:
        one, other = (behind, ahead) if first == 0 else (ahead, behind)
        for child in (one, other):
            child.expect("ready")
        one.say("tick")
        one.expect("in the task")
        ends = {row_of(engine, "slow")["next_run_at"]}
        while len(ends) < 5:  # more than a lease
            other.say("tick")
            assert other.expect("ran") == []
            ends.add(row_of(engine, "slow")["next_run_at"])
        assert statuses(engine) == []
        one.say("go on")
        assert one.expect("ran") == ["ok"]
        other.say("tick")
        assert other.expect("ran") == []
        for child in (one, other):
            child.say("end")
            child.end()
    assert statuses(engine) == ["ok"]
    with engine.connect() as connection:
        started_at = connection.execute(select(task_run.c.started_at)).scalar_one()
    assert abs(started_at - datetime.now(UTC)) < timedelta(minutes=1)
    engine.dispose()


# ── ten starts at once ───────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[URL]:
    """A database in which there is nothing at all."""
    if request.param == "sqlite":
        yield make_url(f"sqlite:///{tmp_path}/bare.db")
        return
    url: URL = request.getfixturevalue(request.param)
    name = f"{url.database}_bare"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield url.set(database=name)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name}"))
    admin.dispose()


def starting(wire: Wire, url: str, folder: str) -> None:
    """Start an app whose tables are made on first use, at a signal."""
    cron = LazyCron(url, state_file=f"{folder}/state.json", create_tables=True)
    cron.task(every="1h", name="task")(lambda: None)
    wire.halt_here("ready")
    report = cron.run_due()
    wire.say("looked", report.decisions["task"].verdict)
    cron.close()


def test_ten_processes_start_at_once_on_an_empty_database(bare: URL, tmp_path: Path) -> None:
    with children(10, starting, text_of(bare), str(tmp_path)) as crowd:
        for child in crowd:
            child.expect("ready")
        for child in crowd:
            child.say("go on")
        verdicts = [child.expect("looked") for child in crowd]
        for child in crowd:
            child.end()
    # One process makes the row and may not run it in that tick; for the others it is not due.
    assert sorted(verdicts) == ["deferred"] + ["skipped"] * 9
    engine = open_engine(bare)
    with engine.connect() as connection:
        revisions = connection.execute(text("SELECT version_num FROM lazycron_version"))
        assert list(revisions.scalars()) == [HEAD]
        assert set(inspect(connection).get_table_names()) == set(metadata.tables)
        made = select(func.count()).select_from(metadata.tables["scheduled_task"])
        assert connection.execute(made).scalar_one() == 1
    engine.dispose()
