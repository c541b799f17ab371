"""Every operation on a row in every state it may be in: what it answers and what it leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy import URL, delete

from lazycron import LazyCron
from lazycron.clock import EPOCH
from lazycron.errors import LazyCronError
from lazycron.model.settle import Claim, Outcome, Status
from lazycron.schema import scheduled_task, task_run
from lazycron.testing import ManualClock
from tests.conftest import START, MakeCron
from tests.scenes import Seen, claim, seconds, seen, settled, stamp_at

NAME = "chore"


@dataclass
class Scene:
    """A minute task's row, made at `base`; `at` is when the operation happens."""

    cron: LazyCron
    clock: ManualClock
    make: Callable[..., LazyCron]
    base: datetime
    at: datetime
    claim: Claim | None = None

    def until(self, number: float) -> None:
        """Let time pass until so many seconds after the beginning."""
        self.at = self.base + seconds(number)
        self.clock.set(self.at)

    @property
    def held(self) -> Claim:
        """The claim somebody made; of a free row, one that never was."""
        if self.claim is not None:
            return self.claim
        row = self.cron._parts.store.recurring.of(NAME)
        assert row is not None
        return Claim(
            id=row.id,
            name=NAME,
            key="",
            token="0" * 32,
            schedule="every 1m",
            scheduled_for=row.scheduled_for,
            started_at=self.at,
            lease_until=row.next_run_at,
            trigger="manual",
            attempt=1,
            failures=0,
            losses=0,
        )


Operation = Callable[[Scene], object]
State = Callable[[Scene], None]


def not_due(scene: Scene) -> None:
    scene.until(30)


def due(scene: Scene) -> None:
    scene.until(60)


def disabled(scene: Scene) -> None:
    scene.until(60)
    scene.cron.disable(NAME)


def live(scene: Scene) -> None:
    """Claimed at 60 for five minutes."""
    scene.until(60)
    scene.claim = claim(scene.cron, scene.at)
    scene.until(90)


def expired(scene: Scene) -> None:
    live(scene)
    scene.until(399.5)
    if scene.cron._parts.store.is_sqlite:
        # The first of the two looks that it takes there.
        scene.cron._parts.runner.burial.look(scene.at, EPOCH)
    scene.until(400)


def buried(scene: Scene) -> None:
    """Looked at while expired, and buried by somebody else before we acted."""
    expired(scene)
    lost = settled(scene.cron, scene.held, Status.LOST, scene.at)
    assert scene.cron._parts.store.bury(lost, "host:1", scene.at)


def renewed(scene: Scene) -> None:
    """Looked at while expired, and renewed by its slow owner before we acted."""
    expired(scene)
    assert scene.cron._parts.store.renew(scene.held, scene.base + seconds(700))


def do_claim(scene: Scene) -> object:
    return scene.cron._parts.store.claim(stamp_at(scene.at)) is not None


def do_run_now(scene: Scene) -> object:
    result = scene.cron.run_now(NAME)
    return None if result is None else result.status


def do_renew(scene: Scene) -> object:
    return scene.cron._parts.store.renew(scene.held, scene.at + seconds(300))


def do_checkpoint(scene: Scene) -> object:
    until = scene.at + seconds(300)
    kept = scene.cron._parts.store.checkpoint(scene.held, '{"page":2}', 2, 9, until)
    row = scene.cron._parts.store.recurring.of(NAME)
    assert row is not None
    assert (row.progress, row.progress_done) == (({"page": 2}, 2) if kept else (None, None))
    return kept


def do_record(scene: Scene) -> object:
    return type(scene.cron._parts.store.record(settled(scene.cron, scene.held), None)).__name__


def do_record_after_a_change(scene: Scene) -> object:
    scene.cron.set_interval(NAME, "2m")
    held = scene.held
    answer = scene.cron._parts.store.record(settled(scene.cron, held), None)
    recorded = scene.cron._parts.runner.running.recorder.record(
        held,
        Outcome(status=Status.OK),
        earliest=held.started_at,
        give_up_at=scene.clock.monotonic(),
        then=None,
    )
    return type(answer).__name__, recorded is not None


def do_find_lost(scene: Scene) -> object:
    return [one.claim.name for one in scene.cron._parts.store.abandoned(scene.at, EPOCH)]


def do_bury(scene: Scene) -> object:
    lost = settled(scene.cron, scene.held, Status.LOST, scene.at)
    return scene.cron._parts.store.bury(lost, "host:1", scene.at)


def do_disable(scene: Scene) -> None:
    scene.cron.disable(NAME)


def do_enable(scene: Scene) -> None:
    scene.cron.enable(NAME)


def do_set_interval(scene: Scene) -> None:
    scene.cron.set_interval(NAME, "2m")


def do_set_and_reset(scene: Scene) -> None:
    scene.cron.set_interval(NAME, "2m")
    scene.cron.reset_schedule(NAME)


def do_sync_faster_code(scene: Scene) -> object:
    other = scene.make()
    other.task(every="20s", name=NAME)(lambda: None)
    return other.sync()


def do_release(scene: Scene) -> object:
    return scene.cron.release(NAME, force=True)


def do_forget(scene: Scene) -> object:
    try:
        scene.make().forget(NAME)
    except LazyCronError as error:
        return type(error).__name__
    return None


def do_next_due(scene: Scene) -> object:
    following = scene.cron._parts.store.next_due()[0]
    return None if following is None else (following - scene.base).total_seconds()


# What each state's row looks like if the operation leaves it as it is: when it is next due (of a
# claimed row: its lease's end) and for when, in seconds after the beginning, then the unusual.
CLAIMED = Seen(360, 60, claimed=True)
AS_IT_IS: dict[State, Seen] = {
    not_due: Seen(60, 60),
    due: Seen(60, 60),
    disabled: Seen(60, 60),
    live: CLAIMED,
    expired: CLAIMED,
    buried: Seen(400, 60, losses=1, history=("lost",)),
    renewed: Seen(700, 60, claimed=True),
}
KEPT: Literal["as it is"] = "as it is"

# What each operation answers as a rule, leaving the row as it is; and where it does otherwise: the
# answer, and the row after it.
SEEN: dict[
    Operation, tuple[object, dict[State, tuple[object, Seen | Literal["as it is"] | None]]]
] = {
    do_claim: (
        False,
        {
            due: (True, CLAIMED),
            buried: (True, Seen(700, 60, claimed=True, losses=1, history=("lost",))),
        },
    ),
    do_run_now: (
        None,
        {
            not_due: ("ok", Seen(90, 90, history=("ok",))),
            due: ("ok", Seen(120, 120, history=("ok",))),
            disabled: ("ok", Seen(120, 120, history=("ok",))),
            expired: ("ok", Seen(454, 454, history=("lost", "ok"))),
            buried: ("ok", Seen(454, 454, history=("lost", "ok"))),
        },
    ),
    do_renew: (
        False,
        {
            live: (True, Seen(390, 60, claimed=True)),
            expired: (True, Seen(700, 60, claimed=True)),
            renewed: (True, KEPT),
        },
    ),
    do_checkpoint: (
        False,
        {
            live: (True, Seen(390, 60, claimed=True)),
            expired: (True, Seen(700, 60, claimed=True)),
            renewed: (True, KEPT),
        },
    ),
    do_record: (
        "Lost",
        {
            live: ("Recorded", Seen(120, 120, history=("ok",))),
            expired: ("Recorded", Seen(120, 120, history=("ok",))),
            renewed: ("Recorded", Seen(120, 120, history=("ok",))),
        },
    ),
    do_record_after_a_change: (
        ("Lost", False),
        {
            not_due: (("Lost", False), Seen(120, 120)),
            disabled: (("Lost", False), Seen(120, 120)),
            live: (("Changed", True), Seen(180, 180, history=("ok",))),
            expired: (("Changed", True), Seen(180, 180, history=("ok",))),
            renewed: (("Changed", True), Seen(180, 180, history=("ok",))),
        },
    ),
    do_find_lost: (
        [],
        {
            expired: (["chore"], KEPT),
        },
    ),
    do_bury: (
        False,
        {
            expired: (True, Seen(400, 60, losses=1, history=("lost",))),
        },
    ),
    do_disable: (None, {}),
    do_enable: (None, {}),
    # An interval that has changed is counted from the row's making, unless it is due already.
    do_set_interval: (
        None,
        {
            not_due: (None, Seen(120, 120)),
            disabled: (None, Seen(120, 120)),
        },
    ),
    do_set_and_reset: (None, {}),
    do_sync_faster_code: (
        True,
        {
            not_due: (True, Seen(30, 30)),
        },
    ),
    do_release: (
        False,
        {
            live: (True, Seen(90.000001, 60, losses=1, history=("lost",))),
            expired: (True, Seen(400.000001, 60, losses=1, history=("lost",))),
            renewed: (True, Seen(400.000001, 60, losses=1, history=("lost",))),
        },
    ),
    do_forget: (
        "BusyError",
        {
            not_due: (None, None),
            due: (None, None),
            disabled: (None, None),
            buried: (None, None),
        },
    ),
    do_next_due: (
        60.0,
        {
            disabled: (None, KEPT),
            live: (360.0, KEPT),
            expired: (360.0, KEPT),
            buried: (400.0, KEPT),
            renewed: (700.0, KEPT),
        },
    ),
}


@pytest.mark.parametrize("operation", SEEN, ids=lambda operation: operation.__name__[3:])
def test_every_operation_in_every_state(
    operation: Operation,
    url: URL,
    make_cron: MakeCron,
    clock: ManualClock,
    tmp_path: Path,
) -> None:
    """Free, disabled, claimed, expired, buried and renewed rows: the answer and the row after."""
    cron = make_cron(url)
    cron.task(every="minute", name=NAME)(lambda: None)
    usual, otherwise = SEEN[operation]
    found, expected = {}, {}
    for number, (state, as_it_is) in enumerate(AS_IT_IS.items()):
        base = START + timedelta(days=number)
        with cron._parts.store.engine.begin() as connection:
            connection.execute(delete(scheduled_task))
            connection.execute(delete(task_run))
        clock.set(base)
        cron.sync()
        scene = Scene(
            cron, clock, lambda: make_cron(url, state_file=tmp_path / "other.json"), base, base
        )
        state(scene)
        answer = operation(scene)
        found[state.__name__] = (answer, seen(cron, NAME, base))
        told, after = otherwise.get(state, (usual, KEPT))
        expected[state.__name__] = (told, as_it_is if after == KEPT else after)
    assert found == expected
