"""Real servers and raw sockets: nothing lazycron does shows in a response or on a connection."""

import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lazycron import LazyCron
from tests.conftest import SECRET
from tests.edges import DEADLINE, until

ROOT = Path(__file__).parent.parent
TOKEN = LazyCron(secret=SECRET).cron_token or ""
URL = f"/lazycron/{TOKEN}"

# One app for all servers. Tasks touch files; LONG names how long the slow one sleeps.
APP = """
import asyncio, os, time
from pathlib import Path

from lazycron import LazyCron, Run
from lazycron.asgi import LazyCronMiddleware as Asgi
from lazycron.wsgi import LazyCronMiddleware as Wsgi

here = Path(os.environ["HERE"])
long = float(os.environ.get("LONG", "2"))
cron = LazyCron(f"sqlite:///{here / 'lazycron.db'}", drain=os.environ.get("DRAIN", "10s"))
kinds = os.environ.get("TASKS", "").split()

if "slow" in kinds:
    @cron.task(every="hour", first_run=0)
    def slow():
        (here / "slow.begun").write_text(str(os.getpid()))
        time.sleep(long)
        (here / "slow.ended").touch()

if "careful" in kinds:
    @cron.task(every="hour", first_run=0)
    def careful(run: Run):
        (here / "slow.begun").touch()
        while not run.should_stop():
            time.sleep(0.01)
        (here / "slow.ended").touch()

if "asynchronous" in kinds:
    @cron.task(every="hour", first_run=0)
    async def asynchronous():
        (here / "slow.begun").touch()
        await asyncio.sleep(long)
        (here / "slow.ended").touch()

if "fails" in kinds:
    @cron.task(every="hour", first_run=0)
    def fails():
        (here / "slow.begun").touch()
        raise SystemExit(3)


async def bare(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("only http here")
    missing = "lazycron" in scope["path"]
    headers = [(b"content-type", b"text/plain"), (b"x-app", b"bare")]
    if scope["path"].endswith("/long"):
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(20):
            await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})
        return
    headers.append((b"content-length", b"5"))
    await send({"type": "http.response.start", "status": 404 if missing else 200,
                "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def bare_wsgi(environ, start_response):
    missing = "lazycron" in environ["PATH_INFO"]
    headers = [("Content-Type", "text/plain"), ("X-App", "bare")]
    if environ["PATH_INFO"].endswith("/long"):
        start_response("200 OK", headers)
        return (part for part in [b"x" * 1000] * 20 + [b"end"])
    headers.append(("Content-Length", "5"))
    start_response("404 Not Found" if missing else "200 OK", headers)
    return [b"hello"]


asgi = Asgi(bare, cron)
wsgi = Wsgi(bare_wsgi, cron)

if os.environ.get("PARENT_USES"):
    # What --preload must not share: a parent that has ticked before it forks.
    from lazycron.web.watcher import watcher_of
    watcher_of(cron).tick(None).result(10)
    (here / "parent.threads").write_text(str(os.getpid()))

if os.environ.get("MOUNTED"):
    from starlette.applications import Starlette
    from starlette.routing import Mount
    mounted = Starlette(routes=[Mount("/sub", app=asgi)])
"""


@dataclass
class Server:
    """A server process, and what it has said."""

    here: Path
    port: int
    process: subprocess.Popen[bytes]
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.here / "server.log"

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)

    def has(self, name: str) -> bool:
        """Tell whether a task has touched a file."""
        return (self.here / name).exists()

    def wait_for(self, name: str) -> None:
        """Wait until a task has touched a file."""
        until(lambda: self.has(name))

    def stop(self) -> float:
        """Send SIGTERM and return how many seconds the process took to end."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE)
        return time.monotonic() - begun


Start = Callable[..., Server]


def free_port() -> int:
    """Find a port nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


COMMANDS = {
    "uvicorn": "-m uvicorn module:{app} --port {port} --log-level info",
    "sync": "-m gunicorn module:{app} -b 127.0.0.1:{port} -k sync --access-logfile -",
    "gthread": (
        "-m gunicorn module:{app} -b 127.0.0.1:{port} -k gthread --threads 2 --access-logfile -"
    ),
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers that are killed at the end."""
    started: list[Server] = []
    (tmp_path / "module.py").write_text(APP)

    def run(kind: str, *more: str, app: str = "", **environment: str) -> Server:
        port = free_port()
        app = app or ("asgi" if kind == "uvicorn" else "wsgi")
        command = COMMANDS[kind].format(app=app, port=port).split()
        paths = os.pathsep.join([str(tmp_path), str(ROOT)])
        said = {"HERE": str(tmp_path), "LAZYCRON_SECRET": SECRET, "PYTHONPATH": paths}
        with (tmp_path / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command, *more],
                env=os.environ | said | environment,
                stdout=log,
                stderr=log,
                cwd=tmp_path,
            )
        server = Server(tmp_path, port, process)
        started.append(server)
        until(lambda: _listens(server))
        return server

    yield run
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait(DEADLINE)


def _listens(server: Server) -> bool:
    assert server.process.poll() is None, server.log.read_text()
    with contextlib.suppress(OSError):
        server.connect().close()
        return True
    return False


def asked(path: str, method: str = "GET", headers: str = "") -> bytes:
    """Write a request."""
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\n{headers}\r\n".encode()


def read_response(connection: socket.socket, *, head: bool = False) -> bytes:
    """Read one whole response, to its last byte and no further."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += _more(connection)
    start, _, body = found.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", start)
    while not head:
        if length is not None and len(body) >= int(length[1]):
            break
        if length is None and body.endswith(b"0\r\n\r\n"):
            break
        body += _more(connection)
    return start + b"\r\n\r\n" + body


def _more(connection: socket.socket) -> bytes:
    found = connection.recv(65536)
    assert found, "the connection was closed"
    return found


def get(server: Server, path: str, method: str = "GET", headers: str = "") -> bytes:
    """Make one request on a connection of its own and return the raw response."""
    with server.connect() as connection:
        connection.sendall(asked(path, method, headers))
        return read_response(connection, head=method == "HEAD")


def status_of(response: bytes) -> int:
    """Return the status of a raw response."""
    return int(response.split(b" ", 2)[1])


def make_due(server: Server) -> None:
    """Make the rows, so that the next request finds them due."""
    assert status_of(get(server, f"{URL}?wait=10")) == 200


def without_date(response: bytes) -> bytes:
    """Drop the one header that differs from second to second."""
    return re.sub(rb"(?i)date: [^\r]*\r\n", b"", response)


# delays


@pytest.mark.parametrize(
    ("kind", "task"),
    [("uvicorn", "slow"), ("uvicorn", "asynchronous"), ("gthread", "slow")],
)
@pytest.mark.parametrize("path", ["/", "/long"])
def test_a_task_delays_neither_the_last_byte_nor_the_next_request_of_the_connection(
    start: Start, kind: str, task: str, path: str
) -> None:
    """While a task of two seconds runs, several requests on the same connection come and go."""
    server = start(kind, TASKS=task)
    make_due(server)
    longest = 0.0
    with server.connect() as connection:
        connection.sendall(asked(path))
        first = without_date(read_response(connection))
        after = 0
        while after < 4:
            after += server.has("slow.begun")
            begun = time.monotonic()
            connection.sendall(asked(path))
            assert without_date(read_response(connection)) == first
            longest = max(longest, time.monotonic() - begun)
        assert not server.has("slow.ended")
    assert longest < 1


def test_a_sync_worker_ends_its_connection_and_serves_others_while_a_task_runs(
    start: Start,
) -> None:
    """Gunicorn's sync worker keeps no connection; the end of it is not delayed."""
    server = start("sync", TASKS="slow")
    make_due(server)
    longest, after = 0.0, 0
    while after < 4:
        after += server.has("slow.begun")
        begun = time.monotonic()
        with server.connect() as connection:
            connection.sendall(asked("/long"))
            assert read_response(connection).endswith(b"end\r\n0\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
        longest = max(longest, time.monotonic() - begun)
    assert not server.has("slow.ended")
    assert longest < 1


@pytest.mark.parametrize("kind", ["uvicorn", "gthread"])
def test_a_raising_task_leaves_the_connection_alive(start: Start, kind: str) -> None:
    """Even a SystemExit; the same connection is served on."""
    server = start(kind, TASKS="fails")
    make_due(server)
    with server.connect() as connection:
        after = 0
        while after < 4:
            after += server.has("slow.begun")
            connection.sendall(asked("/"))
            assert read_response(connection).endswith(b"hello")
        connection.sendall(asked(f"{URL}?wait=10"))
        assert b'"fails"' in read_response(connection)
        connection.sendall(asked("/"))
        assert read_response(connection).endswith(b"hello")
    assert server.process.poll() is None


@pytest.mark.parametrize("kind", ["uvicorn", "gthread"])
def test_a_client_that_goes_away_takes_no_task_along(start: Start, kind: str) -> None:
    """After the first bytes of a page, and while it waits for the cron URL's answer."""
    server = start(kind, TASKS="slow", LONG="0.5")
    make_due(server)
    with server.connect() as connection:
        connection.sendall(asked(f"{URL}?wait=20"))
        server.wait_for("slow.begun")
    server.wait_for("slow.ended")
    with server.connect() as connection:
        connection.sendall(asked("/long"))
        connection.recv(10)
    assert get(server, "/").endswith(b"hello")


# the end


@pytest.mark.parametrize("kind", ["uvicorn", "sync", "gthread"])
def test_sigterm_waits_for_the_running_task(start: Start, kind: str) -> None:
    """Uvicorn by the lifespan, though the app raises on it, gunicorn at exit."""
    server = start(kind, TASKS="slow", LONG="1")
    make_due(server)
    get(server, f"{URL}?wait=0")
    server.wait_for("slow.begun")
    assert server.stop() < 8
    assert server.has("slow.ended")
    cron = LazyCron(f"sqlite:///{server.here / 'lazycron.db'}")
    assert [run.status for run in cron.history()] == ["ok"]
    cron.close()


@pytest.mark.parametrize("kind", ["uvicorn", "sync", "gthread"])
def test_sigterm_waits_no_longer_than_the_drain(start: Start, kind: str) -> None:
    """A task that goes on for ever is left to its lease."""
    server = start(kind, TASKS="slow", LONG="60", DRAIN="0.5s")
    make_due(server)
    get(server, f"{URL}?wait=0")
    server.wait_for("slow.begun")
    assert 0.5 <= server.stop() < 6
    assert not server.has("slow.ended")


@pytest.mark.parametrize("kind", ["uvicorn", "gthread"])
def test_sigterm_tells_a_task_that_asks(start: Start, kind: str) -> None:
    """`run.should_stop()` turns true, so the task can end early."""
    server = start(kind, TASKS="careful")
    make_due(server)
    get(server, f"{URL}?wait=0")
    server.wait_for("slow.begun")
    assert server.stop() < 5
    assert server.has("slow.ended")


# the cron URL


@pytest.mark.parametrize("kind", ["uvicorn", "sync", "gthread"])
def test_the_token_is_in_no_access_log(start: Start, kind: str) -> None:
    """The right ones of GET, HEAD, POST and PUT; the app's own requests are logged as ever."""
    server = start(kind)
    for method, status in (("GET", 200), ("HEAD", 200), ("POST", 200), ("PUT", 405)):
        length = "Content-Length: 0\r\n" if method in ("POST", "PUT") else ""
        response = get(server, f"{URL}?wait=10", method, length)
        assert status_of(response) == status
        assert b"no-store" in response
        assert b"ocation:" not in response
    header = f"Authorization: Bearer {TOKEN}\r\n"
    assert status_of(get(server, "/lazycron?wait=10", headers=header)) == 200
    get(server, "/visible")
    until(lambda: "/visible" in server.log.read_text())
    said = server.log.read_text()
    assert TOKEN not in said
    assert said.count("/lazycron/-") >= 4


@pytest.mark.parametrize("kind", ["uvicorn", "sync", "gthread"])
def test_a_wrong_token_is_the_apps_own_404_byte_for_byte(start: Start, kind: str) -> None:
    """The whole raw responses are compared, with and without the middleware."""
    ours = start(kind)
    theirs = start(kind, app="bare" if kind == "uvicorn" else "bare_wsgi")
    header = f"Authorization: Bearer {TOKEN[:-1]}\r\n"
    for path, method, headers in (
        (f"/lazycron/{TOKEN[:-1]}", "GET", ""),
        (f"/lazycron/{TOKEN}//", "GET", ""),
        ("/lazycron/schl%C3%BCssel", "GET", ""),
        ("/lazycron/" + "0" * 40, "HEAD", ""),
        ("/lazycron/" + "0" * 40, "PUT", "Content-Length: 0\r\n"),
        ("/lazycron", "GET", header),
        ("/", "GET", ""),
        ("/long", "GET", ""),
    ):
        found = [without_date(get(one, path, method, headers)) for one in (ours, theirs)]
        assert found[0] == found[1]


def test_behind_uvicorns_root_path_the_first_request_can_be_the_urls(start: Start) -> None:
    """The proxy in front has stripped the prefix; uvicorn puts it before the path again."""
    server = start("uvicorn", "--root-path", "/up")
    assert status_of(get(server, URL)) == 200
    assert TOKEN not in server.log.read_text()


def test_inside_a_starlette_mount_the_url_answers_and_the_log_is_clean(start: Start) -> None:
    """There the scope is the one the server made, as long as routers write into it."""
    server = start("uvicorn", app="mounted", MOUNTED="1")
    assert status_of(get(server, f"/sub{URL}")) == 200
    assert status_of(get(server, "/sub/")) == 200
    until(lambda: "/sub/ " in server.log.read_text())
    assert TOKEN not in server.log.read_text()


# forks


@pytest.mark.parametrize("kind", ["sync", "gthread"])
def test_after_preload_children_use_nothing_of_their_parents(start: Start, kind: str) -> None:
    """The parent has ticked: its thread, connections and locks do not work in a child."""
    server = start(kind, "--preload", "--workers", "2", TASKS="slow", LONG="0", PARENT_USES="1")
    assert b'"slow"' in get(server, f"{URL}?wait=10")
    server.wait_for("slow.ended")
    parent = (server.here / "parent.threads").read_text()
    assert (server.here / "slow.begun").read_text() != parent
    assert get(server, "/").endswith(b"hello")
    assert server.stop() < 10


@pytest.mark.skipif(importlib.util.find_spec("a2wsgi") is None, reason="a2wsgi is not installed")
def test_a_wsgi_app_behind_a_bridge_works_with_the_wsgi_edge(start: Start, tmp_path: Path) -> None:
    """A Flask app on uvicorn: the WSGI middleware inside the bridge."""
    bridged = "\nfrom a2wsgi import WSGIMiddleware\nbridged = WSGIMiddleware(wsgi)\n"
    (tmp_path / "module.py").write_text(APP + bridged)
    server = start("uvicorn", app="bridged", TASKS="slow", LONG="0")
    make_due(server)
    assert get(server, "/").endswith(b"hello")
    assert status_of(get(server, f"{URL}?wait=10")) == 200
    server.wait_for("slow.ended")
