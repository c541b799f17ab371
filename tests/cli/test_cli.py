"""The command line's verbs, in this process, on a real SQLite file and the manual clock."""

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import URL, create_engine, select

from lazycron import LazyCron, Run
from lazycron.cli import output
from lazycron.cli.command import lazycron
from lazycron.schema import lazycron_action
from lazycron.testing import ManualClock
from tests.conftest import MakeCron

Call = Callable[..., Result]


@pytest.fixture
def cron(sqlite: URL, make_cron: MakeCron) -> LazyCron:
    """A LazyCron with a task that goes well, one that fails, and one that is not due."""
    made = make_cron(sqlite)

    @made.task(every="minute", first_run=0)
    def fine() -> str:
        return "Sent \x1b[31m3 mails."

    @made.task(every="hour", first_run=1)
    def bad() -> None:
        raise ValueError("no such mailbox")  # noqa: EM101, TRY003

    @made.task(every="day")
    def nightly() -> None:
        pass

    return made


@pytest.fixture
def call(cron: LazyCron, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Call the command line with the fixture's LazyCron as its app."""
    module = ModuleType("an_app")
    module.cron = cron  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "an_app", module)
    monkeypatch.setenv("LAZYCRON_APP", "an_app")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda *words, **options: CliRunner().invoke(lazycron, words, **options)


def actions(url: URL) -> list[tuple[str, str, str | None, str | None]]:
    """Read who did what."""
    engine = create_engine(url)
    a = lazycron_action.c
    with engine.connect() as connection:
        found = connection.execute(select(a.who, a.verb, a.name, a.detail).order_by(a.id)).all()
    engine.dispose()
    return [(row.who, row.verb, row.name, row.detail) for row in found]


# looking


def test_list_shows_each_task_with_its_schedule_and_when_it_is_next(call: Call) -> None:
    """Piped, it is aligned lines: relative and UTC times, and what is special as notes."""
    lines = call("list").stdout.splitlines()
    assert lines[0].split()[:4] == ["name", "schedule", "enabled", "next"]
    assert [line.split()[0] for line in lines[1:]] == ["bad", "fine", "nightly"]
    assert "every day" in lines[3]
    assert "in 1 day (2026-01-02 00:00:00 UTC)" in lines[3]
    assert " due " in lines[2]


def test_list_on_a_terminal_draws_a_table(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same facts in fewer columns; brackets in a message are no markup."""
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setattr("lazycron.cli.read.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    call("disable", "nightly")
    shown = call("list").stdout
    assert all(word in shown for word in ("fine", "every minute", "disabled", "2026-01-02"))


def test_list_shows_what_was_counted(call: Call, clock: ManualClock) -> None:
    """With --wide: retries, skips, and what due rows waited for."""
    call("list")
    clock.tick("10m")
    call("run")
    lines = call("list", "--wide").stdout.splitlines()
    heads = ["retries", "skipped", "waited: beat", "waited: budget", "waited: lock"]
    assert all(head in lines[0] for head in heads)
    assert lines[2].split()[:4] == ["fine", "1", "0", "0"]
    assert "10 minutes" in lines[2]


def test_list_marks_what_is_overridden_and_what_is_unknown(
    call: Call, cron: LazyCron, sqlite: URL, make_cron: MakeCron
) -> None:
    """A row without code here is listed as unknown."""
    other = make_cron(sqlite)
    other.task(every="hour", name="elsewhere")(lambda: None)
    other.sync()
    cron.set_interval("fine", "2m")
    lines = {line.split()[0]: line for line in call("list").stdout.splitlines()}
    assert "unknown" in lines["elsewhere"]
    assert "overridden" in lines["fine"]
    assert "every 2 minutes" in lines["fine"]


def test_next_shows_local_times_and_utc(call: Call, cron: LazyCron) -> None:
    """By the zone's clocks, through a change of them; as many as asked for."""
    cron.task(crontab="30 2 * * *", tz="Europe/Berlin", name="early", enabled=False)(print)
    cron.settings.clock.set(datetime(2026, 3, 28, tzinfo=UTC))  # type: ignore[attr-defined]
    lines = call("next", "early", "--count", "3").stdout.splitlines()
    assert lines[0] == "early: at 02:30 in Europe/Berlin, but disabled"
    assert lines[1].split("  ")[0] == "local (Europe/Berlin)"
    assert [re.split("  +", line) for line in lines[2:]] == [
        ["Sat 2026-03-28 02:30:00 +0100", "2026-03-28 01:30:00 UTC", "in 1 hour 30 minutes"],
        ["Sun 2026-03-29 03:00:00 +0200", "2026-03-29 01:00:00 UTC", "in 1 day 1 hour"],
        ["Mon 2026-03-30 02:30:00 +0200", "2026-03-30 00:30:00 UTC", "in 2 days 30 minutes"],
    ]
    found = json.loads(call("next", "early", "--json").stdout)
    assert len(found) == 10
    assert found[1] == {"local": "2026-03-29T03:00:00+02:00", "utc": "2026-03-29T01:00:00+00:00"}


def test_next_of_what_has_no_row_is_wrong_usage(call: Call) -> None:
    """A name that was mistyped, say."""
    assert call("next", "nope").exit_code == 2
    assert call("next", "fine", "--count", "0").exit_code == 2


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_next_of_what_has_no_schedule_says_so(
    call: Call, cron: LazyCron, more: tuple[str, ...]
) -> None:
    """It is there, and only enqueued."""
    cron.task(name="mail")(print)
    found = call("next", "mail", *more)
    assert found.exit_code == 2
    assert found.stderr == "lazycron: mail has no schedule: it runs when it is enqueued\n"


def test_why_says_a_sentence(call: Call) -> None:
    """With the task's name before it."""
    call("list")
    assert call("why", "nightly").stdout == (
        "nightly: not due until 2026-01-02 00:00:00 UTC; the first tick after that runs it\n"
    )


def test_history_and_log_show_runs_newest_first(call: Call, clock: ManualClock) -> None:
    """What a terminal would obey is shown instead; --limit and --lines bound them."""
    call("list")
    clock.tick(1)
    call("run")
    history = call("history").stdout.splitlines()
    assert [line.split()[3] for line in history[1:]] == ["bad", "fine"]
    assert r"Sent \x1b[31m3 mails." in history[2]
    assert len(call("history", "fine").stdout.splitlines()) == 2
    assert len(call("history", "--limit", "1").stdout.splitlines()) == 2
    log = call("log").stdout.splitlines()
    assert ["bad  failed" in log[0], "fine  ok" in log[1]] == [True, True]
    assert len(call("log", "--lines", "1").stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    ["list", "why fine", "history", "log", "check", "triggers", "run", "run fine"],
)
def test_whatever_reads_prints_json_if_asked(call: Call, words: str) -> None:
    """One JSON value on stdout, nothing else."""
    call("list")
    json.loads(call(*words.split(), "--json").stdout)


def test_json_has_the_facts_of_api_objects(call: Call, clock: ManualClock) -> None:
    """Moments are ISO texts in UTC; a failed run's traceback is there."""
    call("list")
    clock.tick(1)
    report = json.loads(call("run", "--json").stdout)
    assert [run["status"] for run in report["runs"]] == ["ok", "failed"]
    assert report["decisions"]["nightly"]["verdict"] == "skipped"
    listed = {one["name"]: one for one in json.loads(call("list", "--json").stdout)}
    assert listed["nightly"]["next"] == "2026-01-02T00:00:00+00:00"
    newest = json.loads(call("history", "--json").stdout)[0]
    assert "no such mailbox" in newest["error"]
    assert json.loads(call("why", "bad", "--json").stdout)["reason"] == "failed"


def test_token_prints_the_token_and_its_path(call: Call, cron: LazyCron) -> None:
    """The path is the default mount's."""
    shown = call("token")
    assert shown.exit_code == 0
    assert f"/lazycron/{cron.cron_token}\n" in shown.stdout


def test_token_without_a_secret_explains_itself(
    call: Call, cron: LazyCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, and what to set."""
    monkeypatch.delenv("LAZYCRON_SECRET", raising=False)
    cron.configure(secret="short")
    shown = call("token")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "LAZYCRON_SECRET" in shown.stderr


def test_check_fails_for_errors_and_not_for_warnings(
    call: Call, cron: LazyCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0 and 1; both are printed, and --json says which is which."""
    assert call("check").exit_code == 0
    cron.configure(secret="short")
    shown = call("check")
    assert shown.exit_code == 1
    assert "a secret is too short" in shown.stdout
    cron.close()
    cron.configure(secret=())
    monkeypatch.delenv("LAZYCRON_SECRET", raising=False)
    shown = call("check")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[1].split()[:2] == ["warning", "secret"]
    assert [one["severity"] for one in json.loads(call("check", "--json").stdout)] == ["warning"]


def test_what_is_late_has_a_word_and_a_colour(
    call: Call, cron: LazyCron, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word in a pipe too, the colour on a terminal."""
    call("list")
    clock.tick("3d")
    assert "due, late" in call("list").stdout
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setattr("lazycron.cli.read.on_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[33mlate" in call("list", color=True).stdout
    assert "\x1b[1;31merror" in call("check", color=True).stdout
    assert cron.overview()[0].late


def test_unfinished_once_keys_are_listed_finished_and_released(
    call: Call, cron: LazyCron, sqlite: URL
) -> None:
    """Each change is noted; a key that is not there is exit code 1."""
    assert call("once-keys").stdout == "No unfinished once keys.\n"
    for key in ("ada", "bob"):
        cron.once(key).__enter__()
    lines = call("once-keys").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["key", "ada", "bob"]
    assert call("finish-once", "ada").exit_code == 0
    assert call("release-once", "bob").exit_code == 0
    assert call("release-once", "bob").exit_code == 1
    assert [one["key"] for one in json.loads(call("once-keys", "--all", "--json").stdout)] == [
        "ada"
    ]
    assert [one[1] for one in actions(sqlite)] == ["finish-once", "release-once"]


# running


def test_run_works_off_what_is_due_and_fails_if_a_run_failed(
    call: Call, clock: ManualClock
) -> None:
    """A line for each run, a reason for each other task, and a summary."""
    call("list")
    first = call("run")
    assert first.exit_code == 0
    assert "1 run, 0 failed" in first.stdout
    clock.tick(1)
    second = call("run")
    assert second.exit_code == 1
    assert "ValueError: no such mailbox" in second.stdout
    assert "not due until 2026-01-02 00:00:00 UTC" in second.stdout
    assert second.stderr == ""


def test_run_has_no_limits_unless_it_is_given_some(call: Call, cron: LazyCron) -> None:
    """Five are more than the app's own budget; --budget stops earlier."""
    for number in range(4):
        cron.task(every="minute", first_run=0, name=f"t{number}")(lambda: None)
    call("list")
    assert "1 run, 0 failed" in call("run", "--budget", "1").stdout
    assert "1 run, 0 failed" in call("run", "--seconds", "0").stdout
    assert "3 runs, 0 failed" in call("run").stdout


def test_run_names_what_is_due_and_has_no_code_here(
    call: Call, cron: LazyCron, sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Rows and jobs; what is not due yet, or disabled, is no matter."""
    other = make_cron(sqlite)
    for name in ("gone", "off", "later"):
        other.task(every="day" if name == "later" else "minute", name=name)(lambda: None)
    other.task(name="sent")(lambda: None).enqueue()
    other.sync()
    other.disable("off")
    clock.tick("1h")
    call("run")
    shown = call("run")
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert {name for name, line in lines.items() if " unbound " in line} == {"gone", "sent"}
    assert "it is due, but no code of this process has it" in lines["gone"]
    assert "failed, 2 due without code here, in " in shown.stdout
    assert shown.exit_code == 0
    assert cron.run_due("url").decisions["gone"].verdict == "unbound"


def test_run_by_name_runs_what_is_neither_due_nor_enabled(call: Call) -> None:
    """Its trigger is the command line."""
    call("disable", "nightly")
    assert call("run", "nightly").exit_code == 0
    assert json.loads(call("history", "--json").stdout)[0]["trigger"] == "cli"
    assert call("run", "bad").exit_code == 1


def test_run_by_name_says_so_if_the_task_is_running(
    call: Call, cron: LazyCron, sqlite: URL, make_cron: MakeCron
) -> None:
    """Exit code 1, and where it is running."""
    shown = []
    other = make_cron(sqlite)

    @other.task(every="day", name="nightly")
    def nightly() -> None:
        # The claim is signed with host and process; ours must look like another's.
        cron._parts.store.by = "elsewhere:1"
        shown.append(call("run", "nightly"))

    call("list")
    other.run_now("nightly")
    assert shown[0].exit_code == 1
    assert "nightly is running already, since 2026-01-01 00:00:00 UTC" in shown[0].stderr


def test_run_works_with_everything_switched_off(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switches are for requests; LAZYCRON=off for requests and the loop."""
    call("triggers", "--traffic", "off", "--admin", "off")
    monkeypatch.setenv("LAZYCRON", "off")
    assert "1 run, 0 failed" in call("run").stdout
    loop = call("run", "--loop")
    assert loop.exit_code == 1
    assert "LAZYCRON=off" in loop.stderr


# changing


def test_managing_verbs_do_it_and_note_who_did(call: Call, cron: LazyCron, sqlite: URL) -> None:
    """One action each, by user and host."""
    call("disable", "fine")
    assert not {one.name: one.enabled for one in cron.overview()}["fine"]
    call("enable", "fine")
    call("set-interval", "fine", "2m")
    assert {one.name: one.schedule for one in cron.overview()}["fine"] == "every 2 minutes"
    call("reset", "fine")
    assert {one.name: one.schedule for one in cron.overview()}["fine"] == "every minute"
    call("triggers", "--traffic", "off")
    assert not cron.state().traffic
    call("migrate")
    found = actions(sqlite)
    assert [action[1:] for action in found] == [
        ("disable", "fine", ""),
        ("enable", "fine", ""),
        ("set-interval", "fine", "2 minutes"),
        ("reset", "fine", ""),
        ("triggers", None, "traffic=off admin=as it was"),
        ("migrate", None, ""),
    ]
    assert {who.startswith("cli:") and "@" in who for who, *_ in found} == {True}


def test_a_verb_that_failed_is_not_noted(call: Call, sqlite: URL) -> None:
    """Nothing was done."""
    call("enable", "nope")
    call("release", "fine")
    assert actions(sqlite) == []


def test_release_ends_a_live_claim_only_by_force(
    call: Call, cron: LazyCron, sqlite: URL, make_cron: MakeCron
) -> None:
    """The run is recorded as lost, and its own end changes nothing."""
    shown = []
    other = make_cron(sqlite)

    @other.task(every="day", name="nightly")
    def nightly() -> None:
        shown.extend([call("release", "nightly"), call("release", "nightly", "--force")])

    call("list")
    other.run_now("nightly")
    assert [one.exit_code for one in shown] == [1, 0]
    assert "--force" in shown[0].stderr
    assert [run.status for run in cron.history("nightly")] == ["lost"]
    assert call("release", "nightly").exit_code == 1


def test_release_takes_a_job_by_its_id(call: Call, sqlite: URL, make_cron: MakeCron) -> None:
    """A task's name stands for its schedule's run."""
    shown = []
    other = make_cron(sqlite)

    @other.task
    def mail(run: Run) -> None:
        shown.append(call("release", "--job", str(run.id)))
        shown.append(call("release", "--job", str(run.id), "--force"))

    call("list")
    job = mail.enqueue()
    other.run_due()
    assert [one.exit_code for one in shown] == [1, 0]
    assert shown[1].stdout == f"job {job.id} is released; its run is recorded as lost.\n"
    assert ("release", None, f"job {job.id}, force") in [found[1:] for found in actions(sqlite)]
    assert [run.status for run in other.history("mail")] == ["lost"]
    for wrong in (["release"], ["release", "nightly", "--job", "1"]):
        ended = call(*wrong)
        assert ended.exit_code == 2
        assert "pass either a task's NAME or --job ID" in ended.stderr
    assert call("release", "--job", "999").exit_code == 2


def test_forget_takes_only_rows_without_code(call: Call, sqlite: URL, make_cron: MakeCron) -> None:
    """A known task's row would come back at once."""
    other = make_cron(sqlite)
    other.task(every="hour", name="elsewhere")(lambda: None)
    other.sync()
    assert call("forget", "fine").exit_code == 1
    assert call("forget", "elsewhere").exit_code == 0
    assert "elsewhere" not in call("list").stdout


def test_triggers_shows_what_is_on(call: Call) -> None:
    """Both switches, and the loop."""
    shown = call("triggers").stdout.splitlines()
    assert shown == ["traffic  on", "admin    on", "loop     none is running"]


def test_migrate_makes_the_tables_and_until_then_verbs_say_so(
    call: Call, cron: LazyCron, tmp_path: Path
) -> None:
    """Exit code 1 and one line."""
    cron.configure(f"sqlite:///{tmp_path}/new.db", create_tables=False)
    for words in (["list"], ["run"], ["run", "fine"], ["enable", "fine"]):
        shown = call(*words)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert shown.stderr.count("\n") == 1
        assert "lazycron migrate" in shown.stderr
    assert call("why", "fine").exit_code == 1
    assert call("migrate").exit_code == 0
    assert call("list").exit_code == 0


# wrong usage and errors


@pytest.mark.parametrize(
    "words",
    [
        "why nope",
        "history nope",
        "run nope",
        "enable nope",
        "disable nope",
        "set-interval nope 2m",
        "reset nope",
        "release nope",
        "forget nope",
    ],
)
def test_an_unknown_name_is_wrong_usage(call: Call, words: str) -> None:
    """Exit code 2 and one line that has the name, no traceback."""
    shown = call(*words.split())
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr.count("\n") == 1
    assert "'nope'" in shown.stderr


@pytest.mark.parametrize(
    "words",
    [
        "frobnicate",
        "set-interval fine soonish",
        "set-interval fine 2",
        "set-interval fine nan",
        "history --limit 0",
        "log --lines x",
        "run --budget 0",
        "run --seconds x",
        "run --loop fine",
        "run fine --budget 1",
        "triggers --traffic maybe",
    ],
)
def test_wrong_usage_is_exit_code_2(call: Call, words: str) -> None:
    """And says what is accepted, on stderr."""
    shown = call(*words.split())
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "Error" in shown.stderr or "is not accepted" in shown.stderr


APP = """
from lazycron import LazyCron, Task
cron = LazyCron()
other = object()

def make():
    return cron

def needs(argument):
    return cron

def breaks():
    raise RuntimeError("no config")

@cron.task(every="day")
def nightly():
    raise AssertionError("a task was called")
"""


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        ("{m}:cron", 0, ""),
        ("{m}", 0, ""),
        ("{m}:make", 0, ""),
        ("", 2, "no app is named"),
        (":cron", 2, "module:attribute"),
        ("no_such_module:cron", 2, "no module no_such_module"),
        ("{m}.sub:cron", 2, "no module {m}.sub"),
        ("{m}:nope", 2, "module {m} has no nope"),
        ("{m}:other", 2, "is a object, not a"),
        ("{m}:nightly", 2, "is a Task, not a"),
        ("{m}:breaks", 1, "RuntimeError: no config"),
        ("{m}:needs", 2, "not a LazyCron or a function that makes one"),
    ],
)
def test_the_app_is_found_or_it_is_said_what_is_missing(  # noqa: PLR0917
    call: Call, tmp_path: Path, request: pytest.FixtureRequest, target: str, code: int, says: str
) -> None:
    """Modules are looked for in the current folder, too; a factory is called, a task is not."""
    module = f"app_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(APP)
    shown = call("--app", target.format(m=module), "list")
    assert shown.exit_code == code, shown.output
    assert says.format(m=module) in shown.stderr
    assert "Traceback" not in shown.stderr


def test_an_app_that_breaks_is_told_in_a_line_unless_a_traceback_is_asked_for(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--traceback and LAZYCRON_DEBUG let the app's own error through."""
    (tmp_path / "app_that_breaks.py").write_text("import no_such_driver\n")
    shown = call("--app", "app_that_breaks", "list")
    assert shown.exit_code == 1
    assert shown.stderr.count("\n") == 1
    assert "no_such_driver" in shown.stderr
    assert isinstance(
        call("--traceback", "--app", "app_that_breaks", "list").exception, ImportError
    )
    monkeypatch.setenv("LAZYCRON_DEBUG", "1")
    assert isinstance(call("--app", "app_that_breaks", "list").exception, ImportError)


@pytest.mark.parametrize("words", ["list", "run", "run fine", "enable fine", "triggers", "migrate"])
def test_a_database_that_is_away_is_one_line_without_its_password(
    call: Call, cron: LazyCron, words: str
) -> None:
    """Exit code 1."""
    cron.configure("postgresql://someone:very-secret@127.0.0.1:1/nowhere")
    shown = call(*words.split())
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.count("\n") == 1
    assert "the database cannot be reached" in shown.stderr
    assert "very-secret" not in shown.output


def test_help_needs_no_app(call: Call) -> None:
    """Neither a verb's nor the whole."""
    assert call("--app", "no_such_module", "--help").exit_code == 0
    assert call("--app", "no_such_module", "run", "--help").exit_code == 0


def test_an_app_is_no_lazycron_and_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Naming the ASGI app is the likeliest slip; the message says what to name."""
    (tmp_path / "slip.py").write_text("async def app(scope, receive, send): pass\n")
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(lazycron, ["--app", "slip:app", "list"])
    assert found.exit_code == 2
    assert "not a LazyCron or a function that makes one" in found.output
    assert "myapp.main:cron" in found.output
