"""The example app, driven as a visitor drives it: every task does its visible thing."""

import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from lazycron import LazyCron, TaskStatus
from lazycron.testing import ManualClock
from tests.conftest import SECRET, START
from tests.edges import at_rest

ROOT = Path(__file__).parents[1]
# A tick that the clock jumped over makes visitors stand back for up to twenty seconds.
SECONDS = 40


@dataclass(frozen=True)
class Site:
    client: TestClient
    cron: LazyCron
    clock: ManualClock
    data: Path

    def task(self, name: str) -> TaskStatus:
        return next(task for task in self.cron.overview() if task.name == name)

    def visit(self, after: str = "0s") -> str:
        """Let time pass, and open the home page."""
        self.clock.tick(after)
        response = self.client.get("/")
        assert response.status_code == 200
        return response.text

    def visit_until(self, name: str, is_so: Callable[[TaskStatus], bool], after: str) -> str:
        """Visit after a while, and again until a task is so; return what the page says of it."""
        self.clock.tick(after)
        self.visit_till(lambda _: is_so(self.task(name)))
        return self.row(name)

    def visit_till(self, is_so: Callable[[str], bool]) -> None:
        """Visit again and again: a tick has a budget, and the next look is a second later."""
        for _ in range(SECONDS):
            self.visit()
            at_rest(self.cron)
            if is_so(self.visit()):
                return
            self.clock.tick("1s")
        pytest.fail("it did not happen")

    def row(self, name: str) -> str:
        """What the page says about a task."""
        found = re.search(rf'<tr id="task-{name}">(.*?)</tr>', self.visit(), re.DOTALL)
        assert found
        return " ".join(re.sub("<[^>]*>", " ", found[1]).split())

    def post(self, path: str, **form: str) -> str:
        response = self.client.post(path, data=form)
        assert response.status_code == 200
        return response.text


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.delenv("LAZYCRON", raising=False)
    monkeypatch.delenv("LAZYCRON_SECRET", raising=False)
    monkeypatch.setenv("EXAMPLE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("EXAMPLE_STEP_SECONDS", "0.01")
    for name in [name for name in sys.modules if name.partition(".")[0] == "example_app"]:
        monkeypatch.delitem(sys.modules, name)
    tasks = importlib.import_module("example_app.tasks")
    app = importlib.import_module("example_app.app")
    clock = ManualClock(START)
    tasks.cron.configure(clock=clock)
    with TestClient(app.app) as client:
        yield Site(client, tasks.cron, clock, tmp_path / "data")
    for name in [name for name in sys.modules if name.partition(".")[0] == "example_app"]:
        monkeypatch.delitem(sys.modules, name)


def test_the_first_page_shows_every_task_before_any_has_run(site: Site) -> None:
    assert "never" in site.row("statistics")
    assert [task.name for task in site.cron.overview()] == [
        "bell",
        "daily_digest",
        "long_walk",
        "mail",
        "old_entries",
        "search_index",
        "statistics",
    ]


def test_a_visit_recomputes_the_statistics(site: Site) -> None:
    site.post("/sign", name="Ada", text="Hello")
    site.post("/sign", name="Ada", text="Hello again")
    row = site.visit_until("statistics", lambda task: task.status == "ok", after="1m")
    assert "by traffic: 2 entries by 1 people." in row
    assert '<p id="statistics">2 entries by 1 people.</p>' in site.visit()


def test_a_signature_leaves_a_job_that_mails_it_once(site: Site) -> None:
    site.post("/sign", name="Ada", text="Hello")
    site.visit_till(lambda page: "<li>Ada: Hello" in page)
    [run] = site.cron.history("mail")
    assert (run.status, run.message, run.trigger) == ("ok", "Ada's entry is mailed.", "traffic")
    assert site.client.post("/tasks/mail/run").status_code == 404
    letter = site.data / "outbox" / "1.txt"
    letter.unlink()
    site.cron.enqueue("mail", 1)
    site.visit_till(lambda _: len(site.cron.history("mail")) == 2)
    assert site.cron.history("mail")[0].message == "It was mailed before."
    assert not letter.exists()


def test_a_mail_that_bounces_is_a_dead_job_that_can_be_retried_or_discarded(site: Site) -> None:
    site.post("/sign", name="Eve", text="I shall bounce.")
    site.visit_till(lambda _: len(site.cron.history("mail")) == 1)
    assert "in 20 seconds" in site.visit()
    site.clock.tick("20s")
    site.visit_till(lambda _: bool(site.cron.jobs("dead")))
    [job] = site.cron.jobs("dead")
    page = site.visit()
    assert "ConnectionError: the post office refuses this letter" in page
    site.post(f"/jobs/{job.id}/retry")
    assert site.cron.jobs("dead") == []
    assert "another one has taken its place" in site.post(f"/jobs/{job.id}/retry")

    def is_gone(page: str) -> bool:
        site.client.post(f"/jobs/{job.id}/discard")  # refused while it runs again
        return "None waits, runs or is dead" in page

    site.visit_till(is_gone)
    for path in (f"/jobs/{job.id}/discard", f"/jobs/{job.id}/praise", "/jobs/x/retry"):
        assert site.client.post(path).status_code == 404


def test_the_search_index_is_rebuilt_in_pieces(site: Site) -> None:
    for text in ("A red fox", "A red herring", "A blue whale", "A fox again", "Nothing"):
        site.post("/sign", name="Ada", text=text)
    assert "as far as the index knows" in site.client.get("/?word=fox").text
    book = sys.modules["example_app.tasks"].guestbook
    pages: list[str] = []
    after = book.after

    def watched(last: int, limit: int) -> object:
        if last:
            pages.append(site.visit())
        return after(last, limit)

    book.after = watched
    site.post("/index")
    site.post("/index")
    site.visit_till(lambda _: bool(site.cron.history("search_index")))
    [run] = site.cron.history("search_index")
    assert (run.status, run.message) == ("ok", "5 entries indexed.")
    assert [re.findall(r"(\d of \d)</progress>", page) for page in pages] == [
        ["2 of 5"],
        ["4 of 5"],
        ["5 of 5"],
    ]
    found = site.client.get("/?word=Fox").text
    assert "<p>A red fox</p>" in found
    assert "<p>A fox again</p>" in found
    assert "<p>A blue whale</p>" not in found


def test_an_entry_is_escaped_and_an_empty_one_refused(site: Site) -> None:
    page = site.post("/sign", name="<b>Eve</b>", text="<script>alert(1)</script>")
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "An entry needs a name and a message." in site.post("/sign", name="Eve", text="  ")


def test_old_entries_are_removed(site: Site) -> None:
    site.post("/sign", name="Ada", text="An old one")
    site.clock.tick("1h")
    site.post("/sign", name="Bob", text="A young one")
    assert "1 removed." in site.visit_until("old_entries", lambda t: t.status == "ok", after="1s")
    page = site.visit()
    assert "<p>A young one</p>" in page
    assert "<p>An old one</p>" not in page


def test_the_digest_is_written_at_seven_in_istanbul(site: Site) -> None:
    site.clock.tick("3h55m")
    site.post("/sign", name="Ada", text="Good morning")
    row = site.visit_until("daily_digest", lambda task: task.status == "ok", after="5m")
    assert "1 entries in digest-2026-01-01.txt." in row
    assert 'href="/digests/2026-01-01"' in site.visit()
    response = site.client.get("/digests/2026-01-01")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text == "03:55 UTC  Ada: Good morning\n"
    assert site.client.get("/digests/2026-01-02").status_code == 404
    assert site.client.get("/digests/secret").status_code == 404


def test_a_digest_of_nothing_is_postponed(site: Site) -> None:
    site.post("/tasks/daily_digest/run")
    row = site.row("daily_digest")
    assert "postponed" in row
    assert "Nobody has written anything yet." in row
    assert "in 30 minutes" in row


def test_the_bell_fails_on_demand_and_backs_off(site: Site) -> None:
    """The tries come after 20, 40, 80 seconds; mended, it rings every 30 seconds again."""
    site.post("/rope/cut")
    failures = 0

    def failed(task: TaskStatus) -> bool:
        return task.failures == failures

    for failures, wait in ((1, "10s"), (2, "20s"), (3, "40s")):
        row = site.visit_until("bell", failed, after=wait)
        assert f"failed {failures} in a row" in row
        assert "RuntimeError: the rope is cut" in row
        assert f"in {10 * 2**failures} seconds" in row
    site.post("/rope/mend")
    row = site.visit_until("bell", lambda task: task.status == "ok", after="80s")
    assert "Ding dong." in row
    assert "in a row" not in row
    assert "in 27 seconds" in row


def test_the_long_walk_notes_its_steps(site: Site) -> None:
    row = site.visit_until("long_walk", lambda task: task.status == "ok", after="20s")
    assert "Walked 10 steps." in row


def test_run_now_runs_a_task_that_is_not_due(site: Site) -> None:
    site.post("/tasks/bell/run")
    assert "by manual: Ding dong." in site.row("bell")
    assert site.client.post("/tasks/nonsense/run").status_code == 404


def test_a_form_of_another_site_is_refused(site: Site) -> None:
    response = site.client.post("/tasks/bell/run", headers={"sec-fetch-site": "cross-site"})
    assert response.status_code == 403
    assert site.task("bell").status is None


def test_watching_reloads_the_page_and_hides_the_form(site: Site) -> None:
    assert 'http-equiv="refresh"' not in site.visit()
    watched = site.client.get("/?watch").text
    assert 'http-equiv="refresh"' in watched
    assert "<textarea" not in watched


def test_the_token_is_on_no_page_and_the_secret_is_kept(site: Site) -> None:
    secret = (site.data / "secret.txt").read_text().strip()
    assert (site.data / "secret.txt").stat().st_mode & 0o077 == 0
    assert LazyCron(secret=secret).cron_token == site.cron.cron_token
    page = site.visit()
    assert "lazycron --app example_app.app:cron token" in page
    assert str(site.cron.cron_token) not in page
    assert secret not in page


def test_served_for_real_a_visit_sets_off_what_is_due(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mine = {
        name: value for name, value in os.environ.items() if name.partition("_")[0] != "LAZYCRON"
    }
    mine.pop("EXAMPLE_DATA", None)
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "example_app.app:app", "--port", str(port)],
        cwd=tmp_path,
        env=mine | {"PYTHONPATH": str(ROOT), "LAZYCRON_SECRET": SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:

            def page() -> str:
                assert server.poll() is None, "the server has ended"
                try:
                    return client.get("/").text
                except httpx.TransportError:
                    return ""

            wait_until(lambda: "by traffic: 0 entries by 0 people." in page())
            token = LazyCron(secret=SECRET).cron_token
            assert client.post(f"/lazycron/{token}").json()["decisions"]["bell"]
            assert client.get("/lazycron/wrong").status_code == 404
            assert client.get("/static/style.css").status_code == 200
    finally:
        server.send_signal(signal.SIGTERM)
        output, _ = server.communicate(timeout=SECONDS)
    assert "Application shutdown complete" in output
    assert str(token) not in output
    assert (tmp_path / "example_data" / "guestbook.db").exists()


def test_workers_that_start_at_once_make_up_one_secret(site: Site, tmp_path: Path) -> None:
    assert site.cron.cron_token
    make = sys.modules["example_app.tasks"].development_secret
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(make, [tmp_path / "secret.txt"] * 8))
    assert len(made) == 1
    assert len(made.pop()) > 16
