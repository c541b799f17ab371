"""Whatever did not run can say why: each reason there is, made to happen."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from lazycron import Budget, LazyCron, Postpone, Run
from lazycron.cli.heartbeat import Heartbeat
from lazycron.schema import metadata
from lazycron.testing import ManualClock
from lazycron.tick.why import Reason
from lazycron.verbs.operator import note_action
from lazycron.web.watcher import watcher_of
from tests.conftest import MakeCron
from tests.scenes import claim_by_name
from tests.tables import put_rows

NAME = "chore"


@dataclass
class Scene:
    """A LazyCron with an hourly task, and what it takes to bring it into trouble."""

    make: Callable[..., LazyCron]
    url: URL
    clock: ManualClock

    def cron(self, function: Callable[..., object] = lambda: None, **options: Any) -> LazyCron:
        """Return a LazyCron whose task has its row; options are its settings' or its task's."""
        of_task = {"missed", "grace", "between", "tz", "only_on"} & options.keys()
        chosen = {name: options.pop(name) for name in of_task}
        cron = self.make(self.url, **options)
        cron.task(every="hour", name=NAME, **chosen)(function)
        cron.sync()
        return cron


def unknown_name(scene: Scene) -> LazyCron:
    return scene.make(scene.url)


def unknown_code(scene: Scene) -> LazyCron:
    cron = scene.make(scene.url)
    put_rows(cron._parts.store.engine, [NAME], due=scene.clock.now())
    return cron


def no_schedule(scene: Scene) -> LazyCron:
    cron = scene.make(scene.url)
    cron.task(name=NAME)(lambda: None)
    return cron


def no_row(scene: Scene) -> LazyCron:
    cron = scene.make(scene.url)
    cron.task(every="hour", name=NAME)(lambda: None)
    return cron


def not_installed(scene: Scene) -> LazyCron:
    cron = scene.cron(create_tables=False)
    metadata.drop_all(cron._parts.store.engine)
    return cron


def unreachable(scene: Scene) -> LazyCron:
    return scene.make("postgresql+psycopg://postgres@127.0.0.1:1/nothing")


def disabled(scene: Scene) -> LazyCron:
    cron = scene.cron()
    cron.disable(NAME)
    return cron


def running(scene: Scene) -> LazyCron:
    cron = scene.cron()
    claim_by_name(cron, NAME, scene.clock.now())
    return cron


def hanging(scene: Scene) -> LazyCron:
    cron = running(scene)
    scene.clock.tick("150s")
    return cron


def lost(scene: Scene) -> LazyCron:
    cron = running(scene)
    scene.clock.tick("5m")
    return cron


def failed(scene: Scene) -> LazyCron:
    def fail() -> None:
        message = "out of paper"
        raise RuntimeError(message)

    cron = scene.cron(fail)
    cron.run_now(NAME)
    return cron


def postponed(scene: Scene) -> LazyCron:
    cron = scene.cron(lambda: Postpone("10m", reason="no file yet"))
    cron.run_now(NAME)
    return cron


def not_due(scene: Scene) -> LazyCron:
    return scene.cron()


def paused(scene: Scene) -> LazyCron:
    def chore(run: Run) -> Iterator[object]:
        for number in range(40):
            run.checkpoint(number + 1, done=number + 1, total=40)
            yield None

    cron = scene.cron(chore, budget=Budget(seconds=0))
    scene.clock.tick("1h")
    cron.run_due()
    scene.clock.tick()
    return cron


def missed(scene: Scene) -> LazyCron:
    cron = scene.cron(missed="skip", grace="10m")
    scene.clock.tick("1h15m")
    cron.run_due()
    return cron


def window(scene: Scene) -> LazyCron:
    return scene.cron(between="02:00-05:00", tz="Europe/Berlin")


def visit(cron: LazyCron, *, stall: bool = False) -> None:
    """Let a request look, in this thread; with `stall` nothing is run although it is due."""
    if stall:
        cron._parts.facts.beat(cron.settings.clock.now())
    else:
        watcher_of(cron).look_here("traffic")


def due(scene: Scene) -> LazyCron:
    cron = scene.cron()
    scene.clock.tick("2h")
    visit(cron, stall=True)
    return cron


def only_on(scene: Scene) -> LazyCron:
    cron = scene.cron(only_on=("cli", "loop", "url"))
    scene.clock.tick("2h")
    visit(cron)
    return cron


def off(scene: Scene) -> LazyCron:
    cron = scene.cron(enabled=False)
    scene.clock.tick("2h")
    visit(cron)
    return cron


def loop(scene: Scene) -> LazyCron:
    cron = scene.cron()
    scene.clock.tick("2h")
    beats = Heartbeat(cron._parts, scene.clock)
    beats.beat()
    scene.clock.tick("20s")
    visit(cron)
    return cron


def hanging_ticks(scene: Scene) -> LazyCron:
    cron = scene.cron()
    activity = cron._parts.runner.activity
    for thread in range(4):
        activity._run_began[-1 - thread] = scene.clock.monotonic()
    scene.clock.tick("2h")
    visit(cron, stall=True)
    return cron


def budget(scene: Scene) -> LazyCron:
    cron = scene.cron(budget=Budget(tasks=1))
    put_rows(cron._parts.store.engine, ["older"], due=scene.clock.now())
    cron.task(every="hour", name="older")(lambda: None)
    scene.clock.tick("1h")
    cron.run_due("traffic")
    return cron


def rare_beats(scene: Scene) -> LazyCron:
    cron = scene.cron()
    for wait in ("1m", "3h", "1s", "2h"):
        scene.clock.tick(wait)
        visit(cron)
    cron.disable(NAME)
    scene.clock.tick("2h")
    visit(cron)
    cron.enable(NAME)
    return cron


def no_request(scene: Scene) -> LazyCron:
    cron = scene.cron()
    scene.clock.tick("2h")
    return cron


def state_file(scene: Scene) -> LazyCron:
    cron = due(scene)
    cron._parts.statefile.problem = "state file /state.json: No space left on device"
    return cron


def no_look(scene: Scene) -> LazyCron:
    cron = no_request(scene)
    cron._parts.statefile.mark_unlooked()
    return cron


def switched_off(scene: Scene) -> LazyCron:
    cron = scene.cron()
    scene.clock.tick("2h")
    cron.set_triggers(traffic=False)
    visit(cron)
    return cron


SCENES: dict[str, tuple[Callable[[Scene], LazyCron], str]] = {
    Reason.UNKNOWN_NAME: (unknown_name, "no task and no row has this name"),
    Reason.UNKNOWN_CODE: (unknown_code, "it runs again when its code is back"),
    Reason.NO_SCHEDULE: (no_schedule, "it runs when it is enqueued"),
    Reason.NO_ROW: (no_row, "the next tick makes it"),
    Reason.NOT_INSTALLED: (not_installed, "`lazycron migrate` makes them"),
    Reason.UNREACHABLE: (unreachable, "the database is unreachable (OperationalError)"),
    Reason.DISABLED: (disabled, "`lazycron enable chore` lets it run again"),
    Reason.RUNNING: (running, "in host:1; its lease is renewed until 2026-01-01 00:05:00 UTC"),
    Reason.HANGING: (hanging, "`lazycron release chore --force` frees it"),
    Reason.LOST: (lost, "and its lease ended at 2026-01-01 00:05:00 UTC"),
    Reason.FAILED: (failed, "failed once, last with RuntimeError: out of paper (test_why.py:"),
    Reason.POSTPONED: (postponed, "not due until 2026-01-01 00:10:00 UTC: postponed, no file yet"),
    Reason.PAUSED: (paused, "paused at 1 of 40, and due since 2026-01-01 01:00:00 UTC; the next"),
    Reason.MISSED: (missed, "Missed: due at 2026-01-01 01:00:00 UTC, found 15 minutes later; more"),
    Reason.WINDOW: (window, "01:00:00 UTC: waiting for its window (02:00-05:00 in Europe/Berlin)"),
    Reason.NOT_DUE: (not_due, "not due until 2026-01-01 01:00:00 UTC; the first tick after that"),
    Reason.DUE: (due, "due since 2026-01-01 01:00:00 UTC; it runs in the next tick"),
    Reason.ONLY_ON: (
        only_on,
        "but only on url, cli, loop; it runs by the cron URL or `lazycron run`",
    ),
    Reason.OFF: (off, "but LAZYCRON=off (or enabled=False) keeps requests and the loop from"),
    Reason.SWITCHED_OFF: (switched_off, "visitors' requests are switched off as a trigger"),
    Reason.LOOP: (
        loop,
        "`lazycron run --loop` last heard of at 2026-01-01 02:00:00 UTC; that loop",
    ),
    Reason.HANGING_TICKS: (hanging_ticks, "but 4 ticks of this process hang in a task each"),
    Reason.BUDGET: (budget, "the tick at 2026-01-01 01:00:00 UTC were used up by older; what has"),
    Reason.RARE_BEATS: (
        rare_beats,
        "its 1 hour (the longest of the last 4 gaps was 3 hours); it runs",
    ),
    Reason.NO_REQUEST: (
        no_request,
        "no request has come since 2026-01-01 00:00:00 UTC; it runs at",
    ),
    Reason.NO_LOOK: (no_look, "before it could look for due tasks, and none has looked since"),
    Reason.STATE_FILE: (
        state_file,
        "the state file cannot be written (state file /state.json: No sp",
    ),
}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_said_in_a_sentence(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock, reason: Reason
) -> None:
    """A reason without a scene here would be one that nobody has seen."""
    scene, sentence = SCENES[reason]
    cron = scene(Scene(make_cron, sqlite, clock))
    found = cron.why(NAME)
    assert (found.reason, sentence in str(found)) == (reason, True), str(found)


@pytest.mark.parametrize("reason", [Reason.NO_ROW, Reason.NOT_INSTALLED, Reason.RUNNING])
def test_the_servers_say_the_same(
    url: URL, make_cron: MakeCron, clock: ManualClock, reason: Reason
) -> None:
    """What depends on the database, on each."""
    scene, sentence = SCENES[reason]
    cron = scene(Scene(make_cron, url, clock))
    try:
        found = cron.why(NAME)
        assert (found.reason, sentence in str(found)) == (reason, True), str(found)
    finally:
        cron.migrate()


def test_an_sqlite_file_that_cannot_be_used_is_told_in_its_own_words(
    tmp_path: Path, make_cron: MakeCron
) -> None:
    """They hold no secret, and the kind of error alone would not help."""
    (tmp_path / "torn.db").write_bytes(b"this was a database once" * 100)
    cron = make_cron(f"sqlite:///{tmp_path}/torn.db")
    cron.task(every="hour", name=NAME)(lambda: None)
    found = cron.why(NAME)
    assert found.reason == Reason.UNREACHABLE
    assert "is unreachable (DatabaseError: file is not a database); it is" in str(found)


def test_a_lost_task_that_is_not_repeated_says_so(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """on_lost="skip": it waits for its next regular time."""
    cron = make_cron(sqlite)
    cron.task(every="hour", name=NAME, on_lost="skip")(lambda: None)
    cron.sync()
    claim_by_name(cron, NAME, clock.now())
    cron.release(NAME, force=True)
    found = cron.why(NAME)
    assert found.reason == Reason.LOST
    assert str(found) == (
        "not due until 2026-01-01 01:00:00 UTC: its last run was lost; "
        "the first tick after that runs it"
    )


def test_a_process_that_is_switched_off_says_so(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LAZYCRON=off, or enabled=False, in this process; whoever asks for a moment may give it."""
    monkeypatch.setenv("LAZYCRON", "off")
    cron = Scene(make_cron, sqlite, clock).cron()
    assert cron.why(NAME).reason == Reason.NOT_DUE
    assert "LAZYCRON=off" in str(cron.why(NAME))
    assert cron.why(NAME, now=clock.now() + timedelta(hours=1)).reason == Reason.OFF
    assert Scene(make_cron, sqlite, clock).cron(enabled=True).why(NAME).reason == Reason.NOT_DUE


def test_an_outage_is_told_with_its_beginning(make_cron: MakeCron, clock: ManualClock) -> None:
    """Since the first tick that could not ask."""
    cron = make_cron("postgresql+psycopg://postgres@127.0.0.1:1/nothing")
    with pytest.raises(Exception, match="refused"):
        cron.run_due()
    clock.tick("10m")
    assert "unreachable since 2026-01-01 00:00:00 UTC" in str(cron.why(NAME))


# what the sentences are made of


def test_who_disabled_a_task_is_named(sqlite: URL, make_cron: MakeCron, clock: ManualClock) -> None:
    """The newest of what was noted counts; code that said so from the beginning is named, too."""
    cron = Scene(make_cron, sqlite, clock).cron()
    cron.disable(NAME)
    assert str(cron.why(NAME)).startswith("disabled; ")
    note_action(cron._parts, "cli:ada@host", "disable", NAME)
    clock.tick()
    note_action(cron._parts, "cli:bob@host", "set-interval", NAME)
    said = "disabled by cli:ada@host at 2026-01-01 00:00:00 UTC; `lazycron enable chore` lets it"
    assert said in str(cron.why(NAME))
    assert said in cron.run_due("url").decisions[NAME].reason
    cron.task(every="hour", name="other", enabled=False)(lambda: None)
    cron.sync()
    assert "disabled since its row was made, as its code says" in str(cron.why("other"))


def test_asking_why_is_no_look(sqlite: URL, make_cron: MakeCron, clock: ManualClock) -> None:
    """It leaves the state file alone: asked twice, it gives the same answer."""
    cron = Scene(make_cron, sqlite, clock).cron()
    clock.tick("2h")
    before = cron._parts.statefile.path.read_bytes()
    assert [cron.why(NAME).reason for _ in range(2)] == [Reason.NO_REQUEST] * 2
    assert cron._parts.statefile.path.read_bytes() == before


def test_a_tick_says_what_why_says(sqlite: URL, make_cron: MakeCron, clock: ManualClock) -> None:
    """The same sentences, as seen by this tick."""
    cron = Scene(make_cron, sqlite, clock).cron(only_on="cli", budget=Budget(tasks=1))
    for name in ("one", "two"):
        cron.task(every="hour", name=name, first_run="10m")(lambda: None)
    cron.task(every="day", name="three")(lambda: None)
    cron.sync()
    clock.tick("1h")
    decided = cron.run_due("url").decisions
    assert decided["one"].verdict == "ran"
    assert "were used up by one; what has been due longest goes first" in decided["two"].reason
    assert "only on cli; it runs by `lazycron run`" in decided[NAME].reason
    assert decided["three"].reason == str(cron.why("three"))


@pytest.mark.parametrize("reason", Reason)
def test_a_sentence_ends_with_what_would_make_it_run(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock, reason: Reason
) -> None:
    """One or two sentences, the last of them about running."""
    if reason is Reason.UNKNOWN_NAME:
        return  # nothing would
    text = str(SCENES[reason][0](Scene(make_cron, sqlite, clock)).why(NAME))
    assert text.count(". ") <= 1
    ending = text.rpartition("; ")[2] if "; " in text else text
    words = ("run", "tries again", "goes on", "makes", "frees", "on time", "works")
    assert any(word in ending for word in words), ending


def test_a_closed_window_is_told_of_a_row_that_is_due(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """Until a tick has put it off, and then of one that waits."""
    cron = Scene(make_cron, sqlite, clock).cron(between="02:00-05:00")
    clock.tick("12h")
    found = cron.why(NAME)
    assert found.reason == Reason.WINDOW
    assert str(found).startswith("due since 2026-01-01 02:00:00 UTC, but waiting for its window")
    cron.run_due("traffic")
    found = cron.why(NAME)
    assert found.reason == Reason.WINDOW
    assert str(found).startswith("not due until 2026-01-02 02:00:00 UTC: waiting for its window")


def test_switches_are_told_before_a_task_is_due(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """It would not run in time; the reason is still that it is not due."""
    cron = Scene(make_cron, sqlite, clock).cron()
    cron.set_triggers(traffic=False)
    found = cron.why(NAME)
    assert found.reason == Reason.NOT_DUE
    assert ". But visitors' requests are switched off as a trigger; the cron URL" in str(found)


def test_a_database_that_can_be_read_but_not_ticked_on_is_told(
    cron: LazyCron, clock: ManualClock
) -> None:
    """By why, with the moment it began, and by check: it is no matter of the next tick's budget."""
    cron.task(every="1h", name="hourly")(lambda: None)
    cron.run_due()
    clock.tick("2h")
    cron._parts.facts.out_of_order("InternalError", clock.now(), clock.monotonic())
    found = cron.why("hourly")
    assert found.reason is Reason.UNREACHABLE
    assert "since 2026-01-01 02:00:00 UTC (InternalError)" in str(found)
    assert "outage" in {problem.name for problem in cron.check()}


def test_jobs_are_told_of_where_there_is_no_row(
    cron: LazyCron, url: URL, clock: ManualClock
) -> None:
    """Of a task that is only enqueued, and of one whose code is elsewhere."""
    cron.task(name="mail")(lambda: None).enqueue()
    assert "it has jobs: 1 waiting, the first due at 2026-01-01 00:00:00 UTC" in str(
        cron.why("mail")
    )
    stranger = LazyCron(url, clock=clock, state_file=cron._parts.statefile.path)
    found = stranger.why("mail")
    assert found.reason is Reason.UNKNOWN_CODE
    assert "they run when its code is back" in str(found)
    assert "unknown_jobs" in {problem.name for problem in stranger.check()}
    stranger.close()


def test_what_is_too_late_by_its_grace_is_not_promised_a_run(
    cron: LazyCron, clock: ManualClock
) -> None:
    """The next tick passes it over, and why says so before it does."""
    cron.task(crontab="0 12 * * *", missed="skip", grace="30m", name="noon")(lambda: None)
    cron.run_due()
    clock.tick("14h")
    found = cron.why("noon")
    assert found.reason is Reason.MISSED
    assert "passes it over, and it runs at 2026-01-02 12:00:00 UTC" in str(found)
    assert cron.run_due().runs == []
