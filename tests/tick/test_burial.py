"""Expired leases: when they are buried, what their rows do next, and who is left alone."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import URL

from lazycron import LazyCron, Run
from lazycron.clock import EPOCH, SystemClock
from lazycron.errors import LeaseLostError
from lazycron.model.settle import Status
from lazycron.testing import ManualClock
from lazycron.tick.leases import Lease
from lazycron.web.watcher import watcher_of
from tests.conftest import SECRET, START, MakeCron
from tests.processes import Child, Wire
from tests.scenes import claim, claim_by_name, row_of, seconds, settled, statuses


def bury(cron: LazyCron, clock: ManualClock) -> None:
    """Look for what is lost and run nothing: twice, half a second apart, on SQLite."""
    burial = cron._parts.runner.burial
    burial.look(clock.now(), EPOCH)
    if cron._parts.store.is_sqlite:
        clock.tick("0.5s")
        burial.look(clock.now(), EPOCH)


def lose(cron: LazyCron, clock: ManualClock, name: str) -> datetime:
    """Claim a task's row, die, and have it buried; return the moment of the burial."""
    held = claim_by_name(cron, name, clock.now())
    clock.set(held.lease_until)
    bury(cron, clock)
    return clock.now()


def test_an_expired_lease_frees_its_row_without_anyones_help(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Lost in the history under the dead process's name, then run again at once, once."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    clock.tick("1h")
    held = claim(cron, clock.now(), "web-1:4711")
    clock.tick("299s")
    bury(cron, clock)
    assert row_of(cron, "hourly").running
    clock.set(held.lease_until)
    bury(cron, clock)
    row = row_of(cron, "hourly")
    assert (row.running, row.locked_by, row.losses, row.failures) == (False, None, 1, 0)
    assert row.next_run_at == clock.now()
    assert (row.last_status, row.scheduled_for) == ("lost", START + timedelta(hours=1))
    assert [(run.status, run.attempt) for run in cron.run_due().runs] == [("ok", 2)]
    clock.tick(1)
    assert cron.run_due().runs == []
    (again, lost) = cron.history()
    assert (lost.status, lost.host, lost.pid, lost.ms) == ("lost", "web-1", 4711, None)
    assert lost.message == "Lost: web-1:4711 neither finished nor renewed it."
    assert (again.status, again.scheduled_for) == ("ok", lost.scheduled_for)
    assert row_of(cron, "hourly").losses == 0
    assert "lost" in cron.log_tail()[1]


def test_sqlite_takes_two_looks_half_a_second_apart_and_the_servers_one(
    cron: LazyCron, clock: ManualClock
) -> None:
    """By the monotonic clock: a jump of the wall clock is no second look."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    held = claim_by_name(cron, "hourly", clock.now())
    clock.set(held.lease_until)
    found = []
    for passed in ("0s", "0.4s", "0.1s"):
        clock.tick(passed)
        cron.run_due()
        found.append(row_of(cron, "hourly").running)
    assert found == ([True, True, False] if cron._parts.store.is_sqlite else [False] * 3)


@pytest.mark.parametrize("visit", ["direct", "url", "traffic", "run_now"])
def test_one_tick_buries_and_runs(url: URL, make_cron: MakeCron, visit: str) -> None:
    """Nobody knows of a process that it sees another tick: it takes the second look itself."""
    cron = make_cron(url, clock=SystemClock())
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    claim_by_name(cron, "hourly", SystemClock().now() - timedelta(minutes=6))
    cron._parts.refresh_state()
    assert cron.why("hourly").text.endswith("lost and runs it again")
    if visit == "direct":
        cron.run_due()
    elif visit == "run_now":
        cron.run_now("hourly")
    elif visit == "url":
        watcher_of(cron).tick(None).result(timeout=30)
    else:
        watcher_of(cron).look_here("traffic")
    assert statuses(cron) == ["lost", "ok"]
    assert cron.run_due().runs == []


def a_process(wire: Wire, url: str, folder: str) -> None:
    """Tick once, as a script does that cron starts, and end."""
    cron = LazyCron(url, secret=SECRET, state_file=Path(folder, "state.json"))
    cron.task(every="hour", name="hourly")(lambda: None)
    wire.say("ran", [run.status for run in cron.run_due().runs])


def test_a_process_for_each_tick_buries_and_runs(
    url: URL, make_cron: MakeCron, tmp_path: Path
) -> None:
    """No process needs what another one saw."""
    cron = make_cron(url, clock=SystemClock())
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    claim_by_name(cron, "hourly", SystemClock().now() - timedelta(minutes=6))
    with Child(a_process, url.render_as_string(hide_password=False), str(tmp_path)) as child:
        assert child.expect("ran") == ["ok"]
    assert statuses(cron) == ["lost", "ok"]


def test_a_writer_who_holds_the_file_makes_the_wait_begin_anew(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """A task in a long write transaction cannot renew: nobody may bury it for that."""
    cron = make_cron(sqlite)
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    held = claim_by_name(cron, "hourly", clock.now())
    clock.set(held.lease_until)
    burial = cron._parts.runner.burial

    def look() -> int:
        clock.tick("0.5s")
        return burial.look(clock.now(), EPOCH)

    assert look() == 0
    with cron._parts.store.engine.connect() as writer:
        writer.exec_driver_sql("BEGIN IMMEDIATE")
        assert look() == 0
    assert look() == 0
    assert cron._parts.store.renew(held, clock.now() + seconds(300))
    assert look() == 0
    clock.tick("5m")
    assert [look(), look()] == [0, 1]


def test_the_first_loss_is_run_again_at_once_and_later_ones_back_off(
    cron: LazyCron, clock: ManualClock
) -> None:
    """A minute task: at once, then after 2, 4, 8, 16, 32, 64 and 64 minutes; a run resets it."""
    cron.task(every="minute", name="minute")(lambda: None)
    cron.sync()
    waits = []
    for losses in range(1, 9):
        now = lose(cron, clock, "minute")
        row = row_of(cron, "minute")
        assert (row.losses, row.failures) == (losses, 0)
        waits.append(round((row.next_run_at - now).total_seconds() / 60, 3))
    assert waits == [0, 2, 4, 8, 16, 32, 64, 64]
    clock.tick("64m")
    assert [run.status for run in cron.run_due().runs] == ["ok"]
    assert row_of(cron, "minute").losses == 0
    now = lose(cron, clock, "minute")
    assert row_of(cron, "minute").next_run_at == now


def test_a_failure_resets_the_losses_and_keeps_the_failures(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Any recorded outcome does."""

    @cron.task(every="minute")
    def failing() -> None:
        raise RuntimeError

    cron.sync()
    lose(cron, clock, "failing")
    clock.tick(1)
    assert [run.status for run in cron.run_due().runs] == ["failed"]
    row = row_of(cron, "failing")
    assert (row.losses, row.failures) == (0, 1)
    lose(cron, clock, "failing")
    row = row_of(cron, "failing")
    assert (row.losses, row.failures) == (1, 1)


def test_on_lost_skip_waits_for_the_next_regular_time(cron: LazyCron, clock: ManualClock) -> None:
    """What must never be done twice for one due time is not repeated."""
    cron.task(every="hour", name="once_only", on_lost="skip")(lambda: None)
    cron.sync()
    clock.tick("1h")
    now = lose(cron, clock, "once_only")
    row = row_of(cron, "once_only")
    assert row.next_run_at == row.scheduled_for == now + timedelta(hours=1)
    assert (row.losses, row.attempts) == (1, 0)


@pytest.mark.parametrize("revive", ["enable", "run_now"])
def test_a_run_that_died_while_disabled_shows_when_it_is_enabled_or_run(
    cron: LazyCron, clock: ManualClock, revive: str
) -> None:
    """No tick looks for it before that; then it is in the history like any other."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    held = claim_by_name(cron, "hourly", clock.now())
    cron.disable("hourly")
    clock.set(held.lease_until + seconds(1))
    bury(cron, clock)
    assert statuses(cron) == []
    if revive == "enable":
        cron.enable("hourly")
        bury(cron, clock)
        assert statuses(cron) == ["lost"]
        return
    if cron._parts.store.is_sqlite:
        assert cron.run_now("hourly") is None  # its first look; a test's clock stands still
        clock.tick("0.5s")
    result = cron.run_now("hourly")
    assert result is not None
    assert statuses(cron) == ["lost", "ok"]
    assert not row_of(cron, "hourly").enabled


def test_a_slow_owner_renews_between_the_look_and_the_burial(
    cron: LazyCron, clock: ManualClock
) -> None:
    """The burial finds the lease changed and leaves it; its owner records as if nothing was."""
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.sync()
    store = cron._parts.store
    held = claim_by_name(cron, "hourly", clock.now())
    clock.set(held.lease_until)
    cron.run_due("traffic") if store.is_sqlite else None
    clock.tick("0.5s")
    found = store.abandoned(clock.now(), EPOCH)
    assert store.renew(held, clock.now() + seconds(300))
    lost = settled(cron, found[0].claim, Status.LOST, clock.now())
    assert not store.bury(lost, "host:1", clock.now())
    store.record(settled(cron, held), None)
    assert statuses(cron) == ["ok"]


def test_a_late_finisher_changes_nothing(url: URL, make_cron: MakeCron, clock: ManualClock) -> None:
    """The row belongs to who claimed it since; a line in the log file is all that is left."""
    cron = make_cron(url)
    other = make_cron(url)
    rows = []

    def hourly() -> str:
        assert other.release("hourly", force=True)
        claim_by_name(other, "hourly", clock.now())
        rows.append(row_of(other, "hourly"))
        return "Late."

    for one in (cron, other):
        one.task(every="hour", name="hourly")(hourly)
    cron.run_due()
    clock.tick("1h")
    assert cron.run_due().runs == []
    assert [row_of(cron, "hourly")] == rows
    assert statuses(cron) == ["lost"]
    assert "hourly  ok (not recorded)  0 ms  manual  Late." in cron.log_tail()[0]


def test_ten_expired_leases_and_more_are_all_buried(cron: LazyCron, clock: ManualClock) -> None:
    """Ten a look; a crowd takes several."""
    for number in range(25):
        cron.task(every="hour", name=f"task{number}")(lambda: None)
    cron.sync()
    for number in range(25):
        claim_by_name(cron, f"task{number}", clock.now())
    clock.tick("5m")
    for _ in range(6):
        clock.tick("0.5s")
        cron._parts.runner.burial.look(clock.now(), EPOCH)
    assert statuses(cron) == ["lost"] * 25
    assert not any(row.running for row in cron._parts.store.recurring.all())


def renewals(cron: LazyCron) -> Callable[[], None]:
    """Return what waits until the next renewal of a lease of this LazyCron is over."""
    leases = cron._parts.leases
    came = threading.Event()
    keep = leases._keep

    def note(lease: Lease) -> None:
        keep(lease)
        came.set()

    leases._keep = note  # type: ignore[method-assign]

    def wait() -> None:
        with leases._changed:
            leases._changed.notify()
        assert came.wait(5)
        came.clear()

    return wait


def test_a_live_run_keeps_its_lease(cron: LazyCron, clock: ManualClock) -> None:
    """Renewed after each third; nobody finds it lost after five leases, and it runs once."""
    renewed = renewals(cron)
    ends = []

    @cron.task(every="hour", lease="6s")
    def long() -> None:
        for _ in range(15):
            clock.tick(2)
            renewed()
            ends.append((row_of(cron, "long").next_run_at - clock.now()).total_seconds())
            assert cron._parts.store.abandoned(clock.now(), EPOCH) == []

    result = cron.run_now("long")
    assert result is not None
    assert (result.status, result.ms) == ("ok", 30_000)
    assert ends == [6] * 15
    assert statuses(cron) == ["ok"]


def test_renewals_stop_at_a_tasks_timeout(cron: LazyCron, clock: ManualClock) -> None:
    """Then run.should_stop() is true, and the lease runs out: a hanging thread loses its row."""
    renewed = renewals(cron)
    said = []

    def hang(run: Run) -> None:
        said.append(run.should_stop())
        clock.tick(2)
        renewed()
        clock.tick(8)
        said.append(run.should_stop())
        assert run.deadline == START + seconds(10)
        clock.tick(20)
        bury(cron, clock)

    cron.task(every="hour", lease="6s", timeout="10s", name="hang")(hang)
    result = cron.run_now("hang")
    assert said == [False, True]
    assert result is not None
    assert result.status == "lost"
    assert statuses(cron) == ["lost"]


def test_a_run_whose_row_was_taken_is_told_to_stop(cron: LazyCron) -> None:
    """At the next renewal, or at once at a checkpoint."""

    def taken(run: Run) -> None:
        assert not run.should_stop()
        cron.release("taken", force=True)
        with pytest.raises(LeaseLostError):
            run.checkpoint(1)
        assert run.should_stop()

    cron.task(every="hour", name="taken")(taken)
    result = cron.run_now("taken")
    assert result is not None
    assert result.status == "lost"
    assert row_of(cron, "taken").progress is None


def test_the_renewal_thread_ends_with_its_lazycron(sqlite: URL, make_cron: MakeCron) -> None:
    """A thousand of them in a test suite leave no thousand threads."""
    cron = make_cron(sqlite)
    cron.task(every="hour", name="hourly")(lambda: None)
    cron.run_now("hourly")
    thread = cron._parts.leases._thread
    assert thread is not None
    assert thread.is_alive()
    cron.close()
    thread.join(5)
    assert not thread.is_alive()


def test_the_state_file_names_the_lease_end_while_a_task_runs(
    cron: LazyCron, clock: ManualClock
) -> None:
    """So that no other process looks before there may be something to bury."""
    said = []

    @cron.task(every="hour", lease="5m")
    def long() -> None:
        state = cron._parts.statefile.read(clock.now())
        assert state is not None
        said.append(state.next)

    cron.run_due()
    clock.tick("1h")
    cron.run_due()
    assert said == [START + timedelta(hours=1, minutes=5)]
    assert cron.state().next == START + timedelta(hours=2)
