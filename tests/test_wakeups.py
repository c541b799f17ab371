"""Wake-ups: whoever enqueues is heard, by his own request's end and by the others' state file."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.orm import Session

from lazycron import LazyCron
from lazycron.statefile import State
from lazycron.testing import ManualClock
from lazycron.web.watcher import Watcher, watcher_of
from tests.conftest import START, MakeCron
from tests.watching import watch

HOUR = timedelta(hours=1)


@pytest.fixture
def done(cron: LazyCron) -> list[object]:
    """What the task `work` was run with; the first tick is over."""
    found: list[object] = []
    cron.task(name="work")(found.append)
    cron.task(every="30d", name="monthly")(lambda: None)
    cron.run_due()
    return found


@pytest.fixture
def app(url: URL) -> Iterator[Engine]:
    """The app's own engine; on SQLite it and its clone wait for nobody."""
    options = {"connect_args": {"timeout": 0.05}} if url.get_backend_name() == "sqlite" else {}
    engine = create_engine(url, **options)
    yield engine
    engine.dispose()


def named(cron: LazyCron) -> State:
    """Read the state file, which must say something."""
    state = cron._parts.statefile.peek()
    assert state is not None
    return state


def visit(watcher: Watcher) -> None:
    """End a request: look if it is time, in this very thread."""
    watcher.look_here("traffic")


# ── the state file ───────────────────────────────────────────────────────────────────────────────


def test_enqueueing_writes_a_sooner_moment_into_the_state_file(
    cron: LazyCron, done: list[object]
) -> None:
    """So that every process of this host knows; a later one is no news."""
    assert named(cron).next == START + timedelta(days=30)
    cron.using("work", delay="1h").enqueue(1)
    assert named(cron).next == START + HOUR
    cron.using("work", delay="2h").enqueue(2)
    assert named(cron).next == START + HOUR
    cron.enqueue("work", 3)
    assert named(cron).next == START
    assert done == []


def test_enqueueing_into_a_file_that_names_a_sooner_moment_asks_nothing_more(
    cron: LazyCron, done: list[object]
) -> None:
    """One statement, and a file that is read, not written."""
    cron.enqueue("work", 1)
    before = cron._parts.statefile.path.stat().st_mtime_ns
    engine = cron._parts.store.engine
    with watch(engine) as found:
        cron.enqueue("work", 2)
    assert len(found.statements) == 1
    assert cron._parts.statefile.path.stat().st_mtime_ns == before
    assert done == []


def test_a_slow_writer_cannot_hide_a_job_from_the_file(
    cron: LazyCron, done: list[object], clock: ManualClock
) -> None:
    """He has asked before the commit, and writes after it: enqueueing waits for him, and looks."""
    asked, go_on = threading.Event(), threading.Event()
    cron.enqueue("work", 1)
    store = cron._parts.store
    next_due = store.next_due

    def slowly(*values: object) -> object:
        answer = next_due(*values)  # type: ignore[arg-type]
        if threading.current_thread() is writer:
            asked.set()
            assert go_on.wait(20)
        return answer

    store.next_due = slowly  # type: ignore[method-assign, assignment]
    writer = threading.Thread(target=cron.run_due)
    enqueuer = threading.Thread(target=lambda: cron.enqueue("work", 2))
    writer.start()
    # The tick tells the lease's end first; the second time it asks is its last line.
    assert asked.wait(20)
    asked.clear()
    go_on.set()
    assert asked.wait(20)
    enqueuer.start()
    enqueuer.join(0.05)
    writer.join(20)
    enqueuer.join(20)
    assert not writer.is_alive()
    assert not enqueuer.is_alive()
    assert named(cron).next == clock.now()
    cron.run_due()
    assert done == [1, 2]


def test_the_first_enqueueing_of_a_process_names_its_job_too(
    url: URL, make_cron: MakeCron, clock: ManualClock, tmp_path: Path
) -> None:
    """Before any tick has told the store which tasks there are."""
    path = tmp_path / "another.json"
    cron = make_cron(url, state_file=path)
    cron.task(every="1h", name="hourly")(lambda: None)
    cron.task(name="work")(lambda: None)
    cron.using("work", delay="1m").enqueue()
    assert named(cron).next == START + timedelta(minutes=1)
    assert [status.name for status in cron.overview()] == ["hourly", "work"]
    clock.tick("1m")
    assert [run.task for run in cron.run_due().runs] == ["work"]


def test_retrying_and_discarding_tell_the_file(
    cron: LazyCron, done: list[object], clock: ManualClock
) -> None:
    """A job that is due again, and one that never will be."""
    job = cron.using("work", delay="1h").enqueue(1)
    cron.discard_job(job.id or 0)
    assert named(cron).next == START + timedelta(days=30)
    broken = cron.task(name="broken", on_lost="skip")(lambda: 1 / 0)
    job = broken.enqueue()
    for _ in range(5):
        cron.run_due()
        clock.tick("1h")
    assert named(cron).next == START + timedelta(days=30)
    cron.retry_job(job.id or 0)
    assert named(cron).next == clock.now()
    assert done == []


# ── this process's own looks ─────────────────────────────────────────────────────────────────────


def test_the_request_that_enqueues_runs_it_at_its_own_end(
    cron: LazyCron, done: list[object]
) -> None:
    """Though a look has just been, and the next would be a second later."""
    watcher = watcher_of(cron)
    visit(watcher)
    assert watcher.look_again_at > cron.settings.clock.monotonic()
    cron.enqueue("work", 1)
    visit(watcher)
    assert done == [1]


def test_a_job_of_later_wakes_nobody_now(cron: LazyCron, done: list[object]) -> None:
    """The file has its time."""
    watcher = watcher_of(cron)
    visit(watcher)
    cron.using("work", delay="1h").enqueue(1)
    assert not watcher.is_woken
    assert watcher.look_again_at > cron.settings.clock.monotonic()
    assert done == []


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_a_job_in_the_requests_transaction_is_run_at_the_requests_end(
    kind: str, cron: LazyCron, done: list[object], app: Engine
) -> None:
    """The state file does not know of it: this process has to ask the database."""
    watcher = watcher_of(cron)
    visit(watcher)
    if kind == "session":
        with Session(app) as session:
            cron.using("work", connection=session).enqueue(1)
            session.commit()
    else:
        with app.begin() as connection:
            cron.using("work", connection=connection).enqueue(1)
    assert named(cron).next == START + timedelta(days=30)
    visit(watcher)
    assert done == [1]


def test_a_tick_between_insert_and_commit_does_not_swallow_the_wake_up(
    url: URL, make_cron: MakeCron, app: Engine, clock: ManualClock
) -> None:
    """It sees nothing, says so to the file, and the commit marks this process again."""
    cron = make_cron(app)
    done: list[object] = []
    cron.task(name="work")(done.append)
    cron.run_due()
    watcher = watcher_of(cron)
    with app.begin() as connection:
        cron.using("work", connection=connection).enqueue(1)
        visit(watcher)
        assert cron.run_due().runs == []
        clock.tick("30s")
        visit(watcher)
        assert done == []
    visit(watcher)
    assert done == [1]
    assert url == app.url


def test_a_look_before_a_slow_commit_is_visible_is_not_the_last(
    cron: LazyCron, done: list[object], clock: ManualClock, app: Engine
) -> None:
    """On a quiet site the next one comes half a minute later, and still asks the database."""
    watcher = watcher_of(cron)
    with app.begin() as connection:
        cron.using("work", connection=connection).enqueue(1)
    # Seen by nobody yet, as it were: the first look finds nothing.
    with patch.object(cron._parts.store, "claim", return_value=None):
        visit(watcher)
    with patch.object(cron._parts.store, "next_due", return_value=(None, None)):
        cron._parts.refresh_state()
    assert done == []
    clock.tick("30s")
    visit(watcher)
    assert done == [1]


def test_a_mark_lasts_until_a_look_that_comes_after_its_seconds(
    cron: LazyCron, done: list[object], clock: ManualClock, app: Engine
) -> None:
    """Then the file is believed again."""
    facts = cron._parts.facts
    assert not facts.is_marked(clock.monotonic())
    with app.connect() as connection:
        cron.using("work", connection=connection).enqueue(1)
        connection.rollback()
    assert facts.is_marked(clock.monotonic())
    clock.tick(4)
    assert facts.is_marked(clock.monotonic())
    clock.tick(60)
    assert facts.is_marked(clock.monotonic())
    assert not facts.is_marked(clock.monotonic())
    assert done == []


def test_another_hosts_process_finds_the_job_within_the_minute(
    cron: LazyCron, make_cron: MakeCron, clock: ManualClock, tmp_path: Path
) -> None:
    """It shares the database only: its own file is older than a minute by then."""
    theirs: list[object] = []
    other = make_cron(cron._parts.store.engine.url, state_file=tmp_path / "other.json")
    cron.task(name="work")(lambda n: n)
    other.task(name="work")(theirs.append)
    watcher = watcher_of(other)
    visit(watcher)
    cron.enqueue("work", 1)
    clock.tick("59s")
    visit(watcher)
    assert theirs == []
    clock.tick("2s")
    visit(watcher)
    assert theirs == [1]


def test_a_state_file_that_cannot_be_written_does_not_keep_a_request_from_enqueueing(
    tmp_path: Path, url: URL, make_cron: MakeCron
) -> None:
    """This process remembers by itself."""
    (tmp_path / "file").write_text("")
    blind = make_cron(url, state_file=tmp_path / "file" / "state.json")
    ran: list[object] = []
    blind.task(name="work")(ran.append)
    watcher = watcher_of(blind)
    visit(watcher)
    blind.enqueue("work", 1)
    visit(watcher)
    assert ran == [1]


def test_a_job_below_the_floor_is_found_at_once_by_its_own_process(
    cron: LazyCron, done: list[object], make_cron: MakeCron, url: URL, clock: ManualClock
) -> None:
    """Unknown rows lie in front, and looks begin after them for a minute."""
    stranger = make_cron(url)
    stranger.task(name="unknown")(lambda: None)
    stranger.using("unknown", run_at=START - HOUR).enqueue()
    clock.tick("61s")
    cron.run_due()
    clock.tick(1)
    cron.run_due()
    assert cron._parts.facts.floor_at(clock.monotonic()) > START
    cron.using("work", run_at=START - timedelta(minutes=30)).enqueue(1)
    cron.run_due()
    assert done == [1]
