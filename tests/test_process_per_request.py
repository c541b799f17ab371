"""A process for each request: it ends before its look; that is told, and `tick_in` helps."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import URL

from lazycron import LazyCron
from lazycron.clock import SystemClock
from tests.conftest import SECRET, MakeCron
from tests.processes import PATIENCE
from tests.tables import set_row, statuses
from tests.test_processes import serving, visit

SITE = """
import os
from pathlib import Path
from wsgiref.handlers import CGIHandler
from lazycron import LazyCron
from lazycron.wsgi import LazyCronMiddleware

cron = LazyCron(os.environ["SITE_URL"], state_file=Path(os.environ["SITE_FOLDER"], "state.json"))


@cron.task(every="1h")
def beat():
    pass


def hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]


wsgi = LazyCronMiddleware(hello, cron, **eval(os.environ.get("SITE_MOUNT", "{}")))
if __name__ == "__main__":
    CGIHandler().run(wsgi)
"""
IN_REQUEST = '{"tick_in": "request", "traffic": True}'


@pytest.fixture
def beside(sqlite: URL, make_cron: MakeCron) -> LazyCron:
    """A process of this host that asks what is wrong; its task is due."""
    cron = make_cron(sqlite, clock=SystemClock(), secret=SECRET)
    cron.task(every="1h", name="beat")(lambda: None)
    cron.sync()
    due = SystemClock().now() - timedelta(minutes=1)
    set_row(cron._parts.store.engine, "beat", next_run_at=due, scheduled_for=due)
    cron._parts.refresh_state()
    return cron


def request_by_cgi(sqlite: URL, folder: Path, mount: str) -> None:
    """Answer one request in a process of its own, as a web server does by CGI."""
    (folder / "site_app.py").write_text(SITE)
    environment = os.environ | {
        "SITE_URL": sqlite.render_as_string(hide_password=False),
        "SITE_FOLDER": str(folder),
        "SITE_MOUNT": mount,
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "GATEWAY_INTERFACE": "CGI/1.1",
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
    }
    done = subprocess.run(
        [sys.executable, "site_app.py"],
        env=environment,
        cwd=folder,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.startswith(b"Status: 200 OK")
    assert b"Traceback" not in done.stderr


def told(cron: LazyCron) -> tuple[bool, bool]:
    """Tell whether check and why say that processes end before they look."""
    found = [problem for problem in cron.check() if problem.name == "no_look"]
    return bool(found), cron.why("beat").reason == "no_look"


def test_by_cgi_nothing_runs_and_that_is_told_until_it_ticks_in_the_request(
    sqlite: URL, tmp_path: Path, beside: LazyCron
) -> None:
    engine = beside._parts.store.engine
    request_by_cgi(sqlite, tmp_path, "{}")
    assert statuses(engine) == []
    assert told(beside) == (True, True)
    assert 'tick_in="request" and traffic=True let' in str(beside.why("beat"))
    request_by_cgi(sqlite, tmp_path, IN_REQUEST)
    assert statuses(engine) == ["ok"]
    assert told(beside) == (False, False)


@pytest.mark.parametrize("mount", ["{}", IN_REQUEST], ids=["thread", "request"])
def test_a_worker_for_each_request(
    sqlite: URL, tmp_path: Path, beside: LazyCron, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gunicorn --max-requests 1."""
    monkeypatch.setenv("SITE_MOUNT", mount)
    command = ["gunicorn", "--max-requests", "1", "--bind", "127.0.0.1:0", "site_app:wsgi"]
    with serving(command, sqlite, tmp_path, SITE) as address:
        pids: set[str | None] = set()
        end = time.monotonic() + PATIENCE
        while len(pids - {None}) < 2:
            assert time.monotonic() < end
            pids.add(visit(address))
    if mount == "{}":
        # A worker that takes its time to end may have looked.
        assert statuses(beside._parts.store.engine) == ["ok"] or told(beside) == (True, True)
    else:
        assert statuses(beside._parts.store.engine) == ["ok"]
        assert told(beside) == (False, False)
