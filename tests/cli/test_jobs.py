"""The command line's verbs about jobs, and a run's progress, on a real SQLite file."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import URL

from lazycron import Budget, LazyCron, Retry, Run
from lazycron.cli.command import lazycron
from lazycron.cli.jobs import HEADINGS
from lazycron.testing import ManualClock
from tests.cli.test_cli import actions
from tests.conftest import MakeCron

Call = Callable[..., Result]


@pytest.fixture
def cron(sqlite: URL, make_cron: MakeCron) -> LazyCron:
    """A LazyCron with a task to enqueue, one that dies at once, and a generator."""
    made = make_cron(sqlite)

    @made.task
    def send(to: str, copies: int = 1) -> str:
        return f"{copies} to {to}."

    @made.task(retry=Retry(limit=1))
    def doomed() -> None:
        raise ConnectionError("the bank is closed")  # noqa: EM101, TRY003

    @made.task(every="day")
    def walk(run: Run) -> Generator[None, None, str]:
        for step in range(run.progress or 0, 5):
            run.checkpoint(step + 1, done=step + 1, total=5)
            yield
        return "Walked."

    return made


@pytest.fixture
def call(cron: LazyCron, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call the command line with the fixture's LazyCron as its app."""
    module = ModuleType("an_app")
    module.cron = cron  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "an_app", module)
    monkeypatch.setenv("LAZYCRON_APP", "an_app")
    return lambda *words, **options: CliRunner().invoke(lazycron, words, **options)


def bury_one(call: Call) -> str:
    """Enqueue a job that dies in its first run; return its id."""
    job = call("enqueue", "doomed").stdout.strip()
    assert call("run").exit_code == 1
    return job


# enqueueing


def test_enqueue_prints_the_jobs_id_and_a_run_runs_it(call: Call, cron: LazyCron) -> None:
    """A list is arguments by place, an object by name."""
    first = call("enqueue", "send", '["ada", 2]')
    second = call("enqueue", "send", '{"to": "bob"}')
    assert (first.exit_code, second.exit_code) == (0, 0)
    call("run")
    assert [cron.history("send")[n].message for n in (1, 0)] == ["2 to ada.", "1 to bob."]
    assert cron.result(int(first.stdout)).status == "ok"


def test_enqueue_with_a_key_gives_the_waiting_job_back(call: Call, cron: LazyCron) -> None:
    """--on-conflict replaces its arguments, or is refused and told in a line."""
    words = ("enqueue", "send", "--key", "order-1", "--delay", "1h")
    made = json.loads(call(*words, '["ada"]', "--json").stdout)
    assert (made["created"], made["run_at"]) == (True, "2026-01-01T01:00:00+00:00")
    kept = json.loads(call(*words, '["bob"]', "--json").stdout)
    assert (kept["id"], kept["created"], kept["args"]) == (made["id"], False, ["ada"])
    assert call(*words, '["bob"]', "--on-conflict", "replace").stdout == f"{made['id']}\n"
    assert cron.jobs()[0].args == ("bob",)
    later = ("enqueue", "send", '["eve"]', "--key", "order-1", "--delay", "2h", "--json")
    replaced = json.loads(call(*later, "--on-conflict", "replace").stdout)
    assert (replaced["args"], replaced["run_at"]) == (["eve"], "2026-01-01T02:00:00+00:00")
    refused = call(*words, '["eve"]', "--on-conflict", "raise")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"held by job {made['id']}" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("enqueue",),
        ("enqueue", "nobody"),
        ("enqueue", "send"),
        ("enqueue", "send", '"ada"'),
        ("enqueue", "send", "{ada}"),
        ("enqueue", "send", '["ada"]', "--key", " "),
        ("enqueue", "send", '["ada"]', "--delay", "soon"),
        ("enqueue", "send", '["ada"]', "--on-conflict", "fight"),
        ("enqueue", "send", '{"self": 1}'),
        ("jobs", "--status", "lost"),
        ("jobs", "--limit", "0"),
        ("retry", "one"),
        ("retry", "17"),
        ("discard", "17"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(call: Call, words: tuple[str, ...]) -> None:
    """An unknown task or job, arguments that do not fit, and what is no JSON."""
    shown = call(*words)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "Traceback" not in shown.stderr


# looking


def test_jobs_lists_what_waits_and_what_is_dead(call: Call) -> None:
    """With their arguments; --status and --limit choose."""
    assert call("jobs").stdout == "No jobs.\n"
    dead = bury_one(call)
    call("enqueue", "send", '["ada"]', "--key", "order-1", "--delay", "1h")
    head, *lines = call("jobs").stdout.splitlines()
    assert tuple(head.split()) == HEADINGS
    assert sorted(line.split()[1] for line in lines) == ["doomed", "send"]
    [waiting] = call("jobs", "--status", "waiting").stdout.splitlines()[1:]
    assert "order-1" in waiting
    assert "in 1 hour (2026-01-01 01:00:00 UTC)" in waiting
    assert "'ada'" in waiting
    [line] = call("jobs", "--status", "dead").stdout.splitlines()[1:]
    assert line.split()[:4] == [dead, "doomed", "-", "dead"]
    assert "ConnectionError: the bank is closed" in line
    assert call("jobs", "--status", "running").stdout == "No running jobs.\n"
    assert len(json.loads(call("jobs", "--json", "--limit", "1").stdout)) == 1


def test_jobs_as_json_has_the_facts_of_api_objects(call: Call) -> None:
    """One object a job; whether a call has made it is no matter here."""
    call("enqueue", "send", '["ada", 2]')
    [job] = json.loads(call("jobs", "--json").stdout)
    assert (job["task"], job["args"], job["kwargs"]) == ("send", ["ada", 2], {})
    assert (job["status"], job["run_at"]) == ("waiting", "2026-01-01T00:00:00+00:00")
    assert "created" not in job


# ending


def test_a_dead_job_is_retried_or_discarded(call: Call, cron: LazyCron) -> None:
    """One that waits can be discarded, too, but not retried."""
    dead = bury_one(call)
    assert call("retry", dead).stdout == f"Job {dead} of doomed is due now.\n"
    assert [job.status for job in cron.jobs()] == ["waiting"]
    refused = call("retry", dead)
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"lazycron: job {dead} of doomed is waiting, not dead\n",
    )
    assert call("discard", dead).stdout == f"Job {dead} is discarded.\n"
    assert cron.jobs() == []


def test_json_that_is_nested_too_deep_is_wrong_usage(call: Call) -> None:
    """And no traceback."""
    ended = call("enqueue", "send", "[" * 100_000)
    assert ended.exit_code == 2
    assert "JSON cannot be read: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_prune_says_how_many_runs_went(call: Call, clock: ManualClock, cron: LazyCron) -> None:
    """And takes the expired once keys along."""
    bury_one(call)
    with cron.once("welcome-ada", expires="1h"):
        pass
    clock.tick("31d")
    assert call("prune").stdout == "1 run deleted.\n"
    assert call("prune").stdout == "0 runs deleted.\n"


def test_who_did_what_is_noted(call: Call, sqlite: URL) -> None:
    """With the job's number; what failed is not."""
    dead = bury_one(call)
    other = call("enqueue", "doomed", "--key", "k").stdout.strip()
    call("enqueue", "doomed", "--key", "k")
    call("retry", dead)
    call("discard", dead)
    call("discard", dead)
    call("prune")
    assert [noted[1:] for noted in actions(sqlite)] == [
        ("enqueue", "doomed", f"job {dead}"),
        ("enqueue", "doomed", f"job {other}"),
        ("enqueue", "doomed", f"job {other} was there already"),
        ("retry", "doomed", f"job {dead}"),
        ("discard", None, f"job {dead}"),
        ("prune", None, "0 runs"),
    ]
    assert all(noted[0].startswith("cli:") for noted in actions(sqlite))


# running by name, and progress


def test_run_by_name_runs_the_oldest_job_of_a_task_without_a_schedule(
    call: Call, cron: LazyCron
) -> None:
    """Due or not; it keeps the moment it is scheduled for."""
    late = call("enqueue", "send", '["bob"]', "--delay", "2h").stdout.strip()
    call("enqueue", "send", '["ada"]', "--delay", "1h")
    shown = call("run", "send")
    assert (shown.exit_code, "1 to ada." in shown.stdout) == (0, True)
    [run] = cron.history("send")
    assert f"{run.scheduled_for:%H:%M}" == "01:00"
    assert [str(job.id) for job in cron.jobs()] == [late]


def test_run_by_name_says_how_to_enqueue_if_no_job_waits(call: Call, cron: LazyCron) -> None:
    """A dead one does not wait."""
    bury_one(call)
    for name in ("send", "doomed"):
        shown = call("run", name)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert f"`lazycron enqueue {name}`" in shown.stderr
    assert len(cron.history()) == 1


def test_run_by_name_finishes_a_generator_whatever_the_budget(call: Call, cron: LazyCron) -> None:
    """It has no limits: a tick with the app's own budget would pause it."""
    cron.configure(budget=Budget(tasks=1, seconds=0))
    shown = call("run", "walk")
    assert (shown.exit_code, "Walked." in shown.stdout) == (0, True)
    assert [run.status for run in cron.history("walk")] == ["ok"]


def test_piped_progress_is_a_line_now_and_then(call: Call) -> None:
    """The first and the last at least; none in JSON."""
    lines = call("run", "walk").stdout.splitlines()
    assert lines[0] == "walk  1 of 5"
    assert "walk  5 of 5" in lines
    assert json.loads(call("run", "walk", "--json").stdout)["status"] == "ok"


def test_on_a_terminal_progress_is_a_bar(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which goes when the run is over."""
    monkeypatch.setattr("lazycron.cli.progress.on_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = call("run", "walk")
    assert shown.exit_code == 0
    assert "5/5" in shown.stdout
    assert "Walked." in shown.stdout


def test_list_and_jobs_show_how_far_a_run_has_come(
    call: Call, cron: LazyCron, clock: ManualClock
) -> None:
    """As its last checkpoint said, in numbers if it gave any."""

    @cron.task
    def halting(run: Run) -> None:
        run.checkpoint({"page": 7})
        raise RuntimeError

    @cron.task(every="day", first_run=0)
    def stopped(run: Run) -> None:
        run.checkpoint("c", done=3, total=10)
        raise RuntimeError

    call("enqueue", "halting")
    call("list")
    clock.tick(1)
    call("run")
    [line] = [line for line in call("list").stdout.splitlines() if "stopped" in line]
    assert "3 of 10" in line
    listed = {one["name"]: one for one in json.loads(call("list", "--json").stdout)}
    assert listed["stopped"]["progress"] == "c"
    assert (listed["stopped"]["progress_done"], listed["stopped"]["progress_total"]) == (3, 10)
    assert '{"page":7}' in call("jobs").stdout.replace(" ", "")


APP = """
import time
from lazycron import LazyCron, Run

cron = LazyCron("sqlite:///real.db")


@cron.task
def copy(run: Run, pages: int):
    for page in range(pages):
        run.checkpoint(page, done=page + 1, total=pages)
        yield
    yield f"{pages} pages."
"""


def test_a_shell_enqueues_and_runs(tmp_path: Path) -> None:
    """The installed command, a real clock and a file that is made on first use."""
    (tmp_path / "copies.py").write_text(APP)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("LAZYCRON")
    }

    def shell(*words: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "lazycron", "--app", "copies", *words],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    job = shell("enqueue", "copy", '{"pages": 3}').strip()
    assert shell("jobs").splitlines()[1].split()[:2] == [job, "copy"]
    lines = shell("run", "copy").splitlines()
    assert "copy  3 of 3" in lines
    assert "3 pages." in lines[-1]
    assert shell("jobs") == "No jobs.\n"
