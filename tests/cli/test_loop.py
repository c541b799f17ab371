"""Signals and the loop: real processes, and a clock that is a variable for outages."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import URL

from lazycron import Budget, LazyCron, TickReport
from lazycron.cli.heartbeat import BEAT_EVERY
from lazycron.cli.loop import ASK_EVERY, Loop
from lazycron.cli.signals import Signals
from lazycron.clock import SystemClock
from lazycron.migrate import migrate
from lazycron.process import Activity
from lazycron.testing import ManualClock
from lazycron.tick.tick import Door
from tests.conftest import MakeCron

DEADLINE = 30.0

APP = """
import asyncio, os, pathlib, signal, time
from lazycron import LazyCron

cron = LazyCron(os.environ["DATABASE"], secret="a secret of the tests, long enough")
here = pathlib.Path(__file__).parent

def wait_for_release(name):
    (here / f"{name}.began").touch()
    while not (here / f"{name}.may_end").exists():
        time.sleep(0.01)

@cron.task(every="day", first_run=0)
def a_slow():
    wait_for_release("a_slow")

@cron.task(every="day", first_run=1, enabled=False)
def b_next():
    (here / "b_next.began").touch()

@cron.task(every="day")
async def asynchronous():
    (here / "asynchronous.began").touch()
    await asyncio.sleep(60)

@cron.task(every="day")
def forks():
    ready, is_ready = os.pipe()
    child = os.fork()
    if not child:
        os.write(is_ready, b"!")  # until now Python forgets signals in a fork
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    return f"signal {os.WTERMSIG(os.waitpid(child, 0)[1])}"
"""


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@dataclass
class Command:
    """The command line in processes of their own, with an app of the test's."""

    folder: Path
    database: URL
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        environ = os.environ | {
            "DATABASE": self.database.render_as_string(),
            "LAZYCRON_APP": "app",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "lazycron", *words],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def has_begun(self, name: str) -> bool:
        """Tell whether a task has begun."""
        return (self.folder / f"{name}.began").exists()

    def let_end(self, name: str) -> None:
        """Let a slow task end."""
        (self.folder / f"{name}.may_end").touch()


@pytest.fixture
def command(tmp_path: Path, sqlite: URL) -> Iterator[Command]:
    """The command line, and its processes' end."""
    (tmp_path / "app.py").write_text(APP)
    made = Command(tmp_path, sqlite)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


@pytest.fixture
def beside(sqlite: URL, make_cron: MakeCron) -> LazyCron:
    """Another process's look at the same database and state file, on the real clock."""
    made = make_cron(sqlite, state_file=f"{sqlite.database}.lazycron.json", clock=SystemClock())
    for name in ("a_slow", "b_next", "asynchronous", "forks"):
        made.task(every="day", name=name, enabled=False, first_run=0)(lambda: None)
    made.sync()
    return made


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a process; return its exit code and what it said on stderr."""
    _, said = process.communicate(timeout=DEADLINE)
    return process.returncode, said


def runs(cron: LazyCron) -> list[tuple[str, str, str]]:
    """Return task, status and trigger of each run, newest first."""
    return [(run.task, run.status, run.trigger) for run in cron.history()]


# signals


def test_a_signal_outside_a_task_only_asks_to_stop() -> None:
    """An exception in the middle of lazycron's own work would leave a claim behind."""
    activity = Activity(time.monotonic)
    before = signal.getsignal(signal.SIGINT)
    with Signals(activity, at_once=True) as signals:
        signal.raise_signal(signal.SIGINT)
        assert activity.stopping.wait(DEADLINE)
        assert not signals.has_interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert signals.ended_by == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_inside_a_task_ends_it_at_once() -> None:
    """Whatever the task does: its errors are caught, and become its outcome."""
    activity = Activity(time.monotonic)
    with Signals(activity, at_once=True) as signals:
        with pytest.raises(KeyboardInterrupt), activity.in_a_task():
            signal.raise_signal(signal.SIGINT)
        assert signals.ended_by == signal.SIGINT
    assert not activity.is_in_a_task(threading.get_ident())


# one tick


def test_ctrl_c_ends_the_run_which_is_recorded_and_no_other_begins(
    command: Command, beside: LazyCron
) -> None:
    """Exit code 130."""
    beside.enable("a_slow")
    beside.enable("b_next")
    process = command.start("run")
    wait_until(lambda: command.has_begun("a_slow"))
    process.send_signal(signal.SIGINT)
    code, said = end(process)
    assert code == 130
    assert "Traceback" not in said
    assert runs(beside) == [("a_slow", "failed", "cli")]
    assert "KeyboardInterrupt: ended by SIGINT" in (beside.history()[0].message or "")
    assert not command.has_begun("b_next")


def test_ctrl_c_ends_an_asynchronous_run_by_name_as_well(
    command: Command, beside: LazyCron
) -> None:
    """It sleeps in an event loop of its own."""
    process = command.start("run", "asynchronous")
    wait_until(lambda: command.has_begun("asynchronous"))
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 130
    assert runs(beside) == [("asynchronous", "failed", "cli")]


def test_sigterm_lets_the_run_finish_and_no_other_begins(
    command: Command, beside: LazyCron
) -> None:
    """Exit code 143: what else was due is still due."""
    beside.enable("a_slow")
    beside.enable("b_next")
    process = command.start("run")
    wait_until(lambda: command.has_begun("a_slow"))
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "SIGTERM" in process.stderr.readline()
    command.let_end("a_slow")
    assert end(process)[0] == 143
    assert runs(beside) == [("a_slow", "ok", "cli")]
    assert not command.has_begun("b_next")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_signal_to_a_child_that_a_task_forked_is_the_childs(
    command: Command, beside: LazyCron
) -> None:
    """The child dies of it, the command goes on."""
    assert end(command.start("run", "forks"))[0] == 0
    assert beside.history("forks")[0].message == f"signal {signal.SIGTERM:d}"


# the loop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_lets_the_loops_run_finish(
    command: Command, beside: LazyCron, number: signal.Signals
) -> None:
    """Exit code 0; the heartbeat is taken back, so that requests take over at once."""
    beside.enable("a_slow")
    process = command.start("run", "--loop")
    wait_until(lambda: command.has_begun("a_slow"))
    assert beside.state().loop_at is not None
    process.send_signal(number)
    assert process.stderr is not None
    assert number.name in process.stderr.readline()
    command.let_end("a_slow")
    assert end(process)[0] == 0
    assert runs(beside) == [("a_slow", "ok", "loop")]
    assert beside.state().loop_at is None


def test_a_second_signal_ends_the_loops_run_which_is_recorded(
    command: Command, beside: LazyCron
) -> None:
    """Exit code 143."""
    beside.enable("a_slow")
    process = command.start("run", "--loop")
    wait_until(lambda: command.has_begun("a_slow"))
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    code, said = end(process)
    assert code == 143
    assert "Traceback" not in said
    assert runs(beside) == [("a_slow", "failed", "loop")]
    assert beside.state().loop_at is None


def test_an_idle_loop_ends_at_once(command: Command, beside: LazyCron) -> None:
    """Nothing waits for its next look."""
    process = command.start("run", "--loop")
    wait_until(lambda: beside.state().loop_at is not None)
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 0


@pytest.mark.parametrize("shares_the_state_file", [True, False])
def test_the_loop_takes_up_what_another_process_made_due(
    *,
    command: Command,
    beside: LazyCron,
    make_cron: MakeCron,
    sqlite: URL,
    shares_the_state_file: bool,
) -> None:
    """In about a second by the state file, in about two by the database alone."""
    process = command.start("run", "--loop")
    wait_until(lambda: beside.state().loop_at is not None)
    other = beside
    if not shares_the_state_file:
        other = make_cron(sqlite, clock=SystemClock())
    other.enable("b_next")
    enabled = time.monotonic()
    wait_until(lambda: command.has_begun("b_next"))
    assert time.monotonic() - enabled < 5
    wait_until(lambda: runs(beside) == [("b_next", "ok", "loop")])
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0
    assert process.stdout is not None
    assert "b_next  ok" in process.stdout.read()


# outages, on a clock that is a variable


@dataclass
class Ears:
    """A loop's reports."""

    heard: list[TickReport] = field(default_factory=list)

    def __call__(self, report: TickReport, ended_at: str) -> None:
        """Take a report."""
        del ended_at
        self.heard.append(report)


def make_loop(cron: LazyCron) -> tuple[Loop, Ears]:
    """Make a loop whose passes the test calls itself."""
    ears = Ears()
    return Loop(cron, Door(trigger="loop", budget=Budget()), ears), ears


def test_an_outage_is_said_once_tried_every_30_seconds_and_recovered_from(
    tmp_path: Path,
    make_cron: MakeCron,
    clock: ManualClock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder that is missing is a database that cannot be reached."""
    cron = make_cron(f"sqlite:///{tmp_path}/mount/lazycron.db")
    cron.task(every="minute", first_run=0, name="fine")(lambda: None)
    loop, ears = make_loop(cron)
    assert loop._pass() == 30
    clock.tick(10)
    assert loop._pass() == 20
    clock.tick(20)
    assert loop._pass() == 30
    assert capsys.readouterr().err.count("the database cannot be reached") == 1
    (tmp_path / "mount").mkdir()
    clock.tick(30)
    loop._pass()
    assert capsys.readouterr().err == "lazycron: the database is back\n"
    clock.tick(1)
    loop._pass()
    assert [run.task for report in ears.heard for run in report.runs] == ["fine"]


def test_missing_tables_are_said_once_and_looked_for_again(
    tmp_path: Path,
    make_cron: MakeCron,
    clock: ManualClock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No restart is needed after the migration."""
    cron = make_cron(f"sqlite:///{tmp_path}/new.db", create_tables=False)
    cron.task(every="minute", first_run=0, name="fine")(lambda: None)
    loop, ears = make_loop(cron)
    assert [loop._pass(), loop._pass()] == [ASK_EVERY, ASK_EVERY]
    assert capsys.readouterr().err.count("lazycron migrate") == 1
    migrate(cron._parts.store.engine)
    loop._pass()
    assert capsys.readouterr().err == "lazycron: the tables are there\n"
    clock.tick(1)
    loop._pass()
    assert [run.task for report in ears.heard for run in report.runs] == ["fine"]


def test_the_heartbeat_is_written_between_ticks_every_ten_seconds(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """And taken back at the end, unless another loop has written its own since."""
    cron = make_cron(sqlite)
    loop, _ = make_loop(cron)
    loop._pass()
    first = cron.state().loop_at
    assert first == clock.now()
    clock.tick(BEAT_EVERY - 1)
    loop._pass()
    assert cron.state().loop_at == first
    clock.tick(1)
    loop._pass()
    assert cron.state().loop_at == clock.now()

    other, _ = make_loop(make_cron(sqlite))
    clock.tick(1)
    other._pass()
    cron._parts.runner.activity.stopping.set()
    loop.run()
    assert cron.state().loop_at == clock.now()
    other._heartbeat.end()
    assert cron.state().loop_at is None
