"""Whatever stands in the tables, the log and the errors: a terminal shows it and obeys nothing."""

import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import URL, create_engine, update

import lazycron.cli as command_line
from lazycron import LazyCron, Retry, Run
from lazycron.cli import output, read
from lazycron.cli.command import lazycron
from lazycron.cli.logs import Warnings
from lazycron.cli.progress import Lines
from lazycron.model.values import write_value
from lazycron.schema import scheduled_task as t
from lazycron.schema import task_run as r
from lazycron.testing import ManualClock
from tests.conftest import MakeCron
from tests.scenes import claim_by_name

# Colours, a window's title, a C1 control, a text turned round, a line of its own, a bell.
HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b31m\u202eturned\u2028line\nfake row\r\x7f\u200b"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e]")

Call = Callable[..., Result]


class HostileError(Exception):
    """An error whose text is hostile."""


@pytest.fixture
def cron(sqlite: URL, make_cron: MakeCron, clock: ManualClock) -> LazyCron:
    """A LazyCron whose every text is hostile: tasks, runs, jobs, a claim, rows edited by hand."""
    made = make_cron(sqlite)

    @made.task(every="minute", label=HOSTILE, first_run=0)
    def said() -> str:
        """Say something hostile."""
        return HOSTILE

    @made.task(every="minute", first_run=0, name="failing")
    def failing() -> None:
        raise HostileError(HOSTILE)

    @made.task(retry=Retry(limit=1))
    def job(run: Run, *words: str) -> None:
        run.checkpoint({"at": HOSTILE})
        raise HostileError(*words)

    @made.task(every="day", name="held")
    def held() -> None:
        pass

    job.enqueue(HOSTILE)
    for _ in range(3):
        made.run_due()
        clock.tick("2m")
    job.using(delay="1d").enqueue(HOSTILE, HOSTILE)
    claim_by_name(made, "held", clock.now())
    engine = create_engine(sqlite)
    with engine.begin() as connection:
        connection.execute(update(t).where(t.c.name == "held").values(locked_by=HOSTILE))
        connection.execute(
            update(t).where(t.c.key.is_(None), t.c.state == "active").values(key=HOSTILE)
        )
        connection.execute(
            update(t)
            .where(t.c.name == "failing")
            .values(name=HOSTILE, schedule=HOSTILE, last_message=HOSTILE, last_status=HOSTILE)
        )
        connection.execute(
            update(t).where(t.c.name == "said").values(progress=write_value(HOSTILE, "checkpoint"))
        )
        changed = {"message": HOSTILE, "host": HOSTILE, "status": HOSTILE, "error": HOSTILE}
        connection.execute(update(r).where(r.c.name == "failing").values(name=HOSTILE, **changed))
    engine.dispose()
    clock.tick("1h")
    return made


@pytest.fixture
def call(cron: LazyCron, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Call the command line with the fixture's LazyCron as its app."""
    module = ModuleType("an_app")
    module.cron = cron  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "an_app", module)
    monkeypatch.setenv("LAZYCRON_APP", "an_app")
    monkeypatch.chdir(tmp_path)
    return lambda *words, **options: CliRunner().invoke(lazycron, words, **options)


VERBS = [
    ["run", "held"],
    ["release", "held"],
    ["release", "held", "--force"],
    ["list"],
    ["why", HOSTILE],
    ["why", "said"],
    ["why", "held"],
    ["next", HOSTILE],
    ["next", "said"],
    ["history"],
    ["history", HOSTILE],
    ["log"],
    ["jobs"],
    ["check"],
    ["run"],
    ["run", "said"],
    ["run", "held"],
    ["run", HOSTILE],
    ["enable", HOSTILE],
    ["disable", HOSTILE],
    ["set-interval", HOSTILE, "5m"],
    ["set-interval", "said", HOSTILE],
    ["reset", HOSTILE],
    ["release", HOSTILE],
    ["release", "--job", "9999"],
    ["forget", HOSTILE],
    ["enqueue", HOSTILE],
    ["enqueue", "job", json.dumps([HOSTILE])],
    ["enqueue", "job", "--key", HOSTILE],
    ["retry", "1"],
    ["retry", "9999"],
    ["discard", "9999"],
    ["triggers"],
    ["prune"],
    ["token"],
    ["migrate"],
]
WITH_JSON = {"list", "why", "next", "history", "log", "jobs", "check", "run", "enqueue", "triggers"}


def obeyed(result: Result) -> list[str]:
    """Return what a terminal would obey of a call's output, both streams."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return OBEYED.findall(result.output + result.stderr)


@pytest.mark.parametrize("drawn", [False, True], ids=["piped", "drawn"])
def test_no_verb_prints_what_a_terminal_obeys(
    drawn: bool,  # noqa: FBT001 - a test's parameter
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As lines and tables, and as JSON."""
    for module in (output, read):
        monkeypatch.setattr(module, "on_terminal", lambda: drawn)
    for words in VERBS:
        assert obeyed(call(*words)) == [], words
        if words[0] in WITH_JSON:
            assert obeyed(call(*words, "--json")) == [], words


def test_json_stays_what_it_is_and_lines_stay_lines(call: Call) -> None:
    """Escapes are JSON's own, and a name with a line break makes no row."""
    [job, *_] = json.loads(call("jobs", "--json").stdout)
    assert HOSTILE in (job["key"], *job["args"])
    names = [one["name"] for one in json.loads(call("list", "--json").stdout)]
    assert HOSTILE in names
    assert not [line for line in call("list").stdout.splitlines() if line.startswith("fake row")]
    assert len(call("list").stdout.splitlines()) == 1 + len(names)


def test_the_log_file_and_pythons_logs_hold_nothing_that_is_obeyed(
    cron: LazyCron, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of runs, names, and the tracebacks that go with a record."""
    with caplog.at_level(logging.DEBUG, "lazycron"):
        cron.run_now("failing")
        cron.run_now("said")
        error = HostileError(HOSTILE)
        logging.getLogger("lazycron").error("it failed: %s", error, exc_info=error)
    assert "HostileError" in caplog.text
    assert "turned" in caplog.text
    assert OBEYED.findall(caplog.text) == []
    assert OBEYED.findall("\n".join(cron.log_tail(100))) == []


def test_a_warning_on_stderr_and_a_runs_progress_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command line prints them itself."""
    record: Any = logging.LogRecord("lazycron", logging.WARNING, "", 0, "%s", (HOSTILE,), None)
    Warnings().emit(record)
    Lines()(HOSTILE, 1, 2)
    said = capsys.readouterr()
    assert OBEYED.findall(said.out + said.err) == []
    assert "turned" in said.out
    assert "turned" in said.err


def test_the_command_line_prints_in_one_place() -> None:
    """Whoever prints elsewhere prints what a terminal obeys."""
    folder = Path(command_line.__file__).parent
    found = {path.name for path in folder.glob("*.py") if "click.echo(" in path.read_text("utf-8")}
    assert found == {"output.py"}
