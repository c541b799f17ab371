"""Whatever did not run can say why: each reason there is, made to happen."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from sqlalchemy import URL

from lazycron import LazyCron, Postpone
from lazycron.schema import metadata
from lazycron.testing import ManualClock
from lazycron.why import Reason
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

    def cron(self, function: Callable[[], object] = lambda: None, **settings: object) -> LazyCron:
        """Return a LazyCron whose task has its row."""
        cron = self.make(self.url, **settings)
        cron.task(every="hour", name=NAME)(function)
        cron.sync()
        return cron


def unknown_name(scene: Scene) -> LazyCron:
    return scene.make(scene.url)


def unknown_code(scene: Scene) -> LazyCron:
    cron = scene.make(scene.url)
    put_rows(cron.parts.store.engine, [NAME], due=scene.clock.now())
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
    metadata.drop_all(cron.parts.store.engine)
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
    scene.clock.tick("21s")
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


def due(scene: Scene) -> LazyCron:
    cron = scene.cron()
    scene.clock.tick("2h")
    return cron


def switched_off(scene: Scene) -> LazyCron:
    cron = scene.cron()
    scene.clock.tick("2h")
    cron.set_triggers(traffic=False)
    return cron


SCENES: dict[str, tuple[Callable[[Scene], LazyCron], str]] = {
    Reason.UNKNOWN_NAME: (unknown_name, "no task and no row has this name"),
    Reason.UNKNOWN_CODE: (unknown_code, "it runs again when its code is back"),
    Reason.NO_SCHEDULE: (no_schedule, "it runs when it is enqueued"),
    Reason.NO_ROW: (no_row, "the next tick makes it"),
    Reason.NOT_INSTALLED: (not_installed, "`lazycron migrate` makes them"),
    Reason.UNREACHABLE: (unreachable, "the database is unreachable (OperationalError)"),
    Reason.DISABLED: (disabled, "`lazycron enable chore` lets it run again"),
    Reason.RUNNING: (running, "in host:1, lease until 2026-01-01 00:05:00 UTC"),
    Reason.HANGING: (hanging, "`lazycron release chore --force` frees it"),
    Reason.LOST: (lost, "whose lease ended at 2026-01-01 00:05:00 UTC"),
    Reason.FAILED: (failed, "failed once, last with RuntimeError: out of paper (test_why.py:"),
    Reason.POSTPONED: (postponed, "not due until 2026-01-01 00:10:00 UTC: postponed, no file yet"),
    Reason.NOT_DUE: (not_due, "not due until 2026-01-01 01:00:00 UTC"),
    Reason.DUE: (due, "due since 2026-01-01 01:00:00 UTC"),
    Reason.SWITCHED_OFF: (switched_off, "visitors' requests are switched off as a trigger"),
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
    assert str(found) == "not due until 2026-01-01 01:00:00 UTC: its last run was lost"


def test_a_process_that_is_switched_off_says_so(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LAZYCRON=off, or enabled=False, in this process; whoever asks for a moment may give it."""
    monkeypatch.setenv("LAZYCRON", "off")
    cron = Scene(make_cron, sqlite, clock).cron()
    assert cron.why(NAME).reason == Reason.NOT_DUE
    assert "LAZYCRON=off" in str(cron.why(NAME))
    assert cron.why(NAME, now=clock.now() + timedelta(hours=1)).reason == Reason.SWITCHED_OFF
    assert Scene(make_cron, sqlite, clock).cron(enabled=True).why(NAME).reason == Reason.NOT_DUE


def test_an_outage_is_told_with_its_beginning(make_cron: MakeCron, clock: ManualClock) -> None:
    """Since the first tick that could not ask."""
    cron = make_cron("postgresql+psycopg://postgres@127.0.0.1:1/nothing")
    with pytest.raises(Exception, match="refused"):
        cron.run_due()
    clock.tick("10m")
    assert "unreachable since 2026-01-01 00:00:00 UTC" in str(cron.why(NAME))
