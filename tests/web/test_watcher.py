"""When a process looks: the float, the tick threads, and all that may go wrong on the way."""

import asyncio
import gc
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from sqlalchemy import URL, event, make_url

from lazycron import Budget, LazyCron
from lazycron.asgi import LazyCronMiddleware as Asgi
from lazycron.asgi import Receive, Scope, Send
from lazycron.testing import ManualClock
from lazycron.web import watcher as watcher_module
from lazycron.web.mount import TickIn
from lazycron.web.threads import MOST_THREADS
from lazycron.web.threads import Visit as UrlVisit
from lazycron.web.watcher import Watcher, watcher_of
from lazycron.wsgi import Environ, StartResponse
from lazycron.wsgi import LazyCronMiddleware as Wsgi
from tests.conftest import SECRET, START, MakeCron
from tests.edges import (
    DEADLINE,
    Gate,
    Site,
    at_rest,
    call_wsgi,
    count_opens,
    count_statements,
    environ_of,
    hello,
    hello_wsgi,
    until,
)

Visit = Callable[[], None]


@pytest.fixture
def cron(sqlite: URL, make_cron: MakeCron) -> LazyCron:
    """A LazyCron on SQLite: what is tested here knows nothing of databases."""
    return make_cron(sqlite)


def visitor(cron: LazyCron, path: str = "/", **settings: Any) -> Visit:
    """Return what makes one request by WSGI and waits until its look, if any, is over."""
    app = Wsgi(hello_wsgi, cron, **settings)

    def visit() -> None:
        assert call_wsgi(app, environ_of(path)).body == b"hello"
        at_rest(cron)

    return visit


def register(cron: LazyCron, name: str = "minute") -> list[str]:
    """Register a minute task; return the list its runs are noted in."""
    runs: list[str] = []

    @cron.task(every="minute", name=name)
    def noted() -> None:
        runs.append(name)

    return runs


class Hanging(Gate):
    """A task that hangs until it is let go."""

    def __init__(self, cron: LazyCron, name: str) -> None:
        super().__init__()
        cron.task(every="minute", name=name)(self.run)


@pytest.fixture
def hang(cron: LazyCron) -> Iterator[Callable[[str], Hanging]]:
    """Register hanging tasks that are let go at the end."""
    made: list[Hanging] = []

    def register_hanging(name: str) -> Hanging:
        made.append(Hanging(cron, name))
        return made[-1]

    yield register_hanging
    for one in made:
        one.go.set()


# the hot path


@pytest.mark.parametrize("edge", ["asgi", "wsgi"])
def test_a_thousand_requests_with_nothing_due_send_no_sql_and_open_one_file_at_most(
    cron: LazyCron, edge: str
) -> None:
    """With the monotonic clock held still, before the thousand and during them."""
    register(cron)
    with Site(Asgi(hello, cron)) as site:
        wsgi = Wsgi(hello_wsgi, cron)

        def visit() -> None:
            if edge == "asgi":
                site.get("/")
            else:
                call_wsgi(wsgi, environ_of("/"))

        visit()
        at_rest(cron)
        visit()
        at_rest(cron)
        with count_statements() as statements, count_opens() as opened:
            for _ in range(1000):
                visit()
            at_rest(cron)
    assert statements == []
    assert len(opened) <= 1


def test_the_state_file_is_looked_at_once_a_second_and_the_database_once_a_minute(
    cron: LazyCron, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four requests a second for 130 seconds, with nothing due for an hour."""
    monkeypatch.setattr(watcher_module, "HEAD_START", 0)
    cron.task(every="hour", name="hourly")(lambda: None)
    visit, state_file = visitor(cron), str(cron._parts.statefile.path)
    visit()
    asked_at: list[int] = []
    with count_statements() as statements, count_opens() as opened:
        for number in range(4 * 130):
            clock.tick(0.25)
            before = len(statements)
            visit()
            if len(statements) > before:
                asked_at.append(number // 4)
    # The two looks that ask open it a few times more, inside the file's lock.
    assert 125 <= opened.count(state_file) <= 130 + 6 * len(asked_at)
    assert len(asked_at) == 2
    assert asked_at[1] - asked_at[0] >= 60


def test_a_request_at_the_due_second_runs_the_task_in_another_thread(
    cron: LazyCron, clock: ManualClock
) -> None:
    """And one before does not."""
    threads: list[str] = []

    @cron.task(every="minute")
    def noted() -> None:
        threads.append(threading.current_thread().name)

    visit = visitor(cron)
    visit()
    clock.tick(59)
    visit()
    assert threads == []
    clock.tick(1)
    visit()
    assert threads == ["lazycron-tick-1"]


def test_no_thread_and_no_connection_is_made_before_the_first_request(sqlite: URL) -> None:
    """Making a LazyCron and mounting it does nothing."""
    before = set(threading.enumerate())
    with count_opens() as opened:
        cron = LazyCron(sqlite, secret="long enough a secret")
        Asgi(hello, cron)
        Wsgi(hello_wsgi, cron)
    assert set(threading.enumerate()) <= before
    assert not cron.is_used
    assert opened == []


def test_all_edges_of_a_lazycron_share_one_trigger(cron: LazyCron) -> None:
    """Whichever edge looks, looks for all; the trigger goes with its LazyCron."""
    assert watcher_of(cron) is watcher_of(cron)
    assert cron._edge.wake == watcher_of(cron).wake
    assert watcher_of(cron) is not watcher_of(LazyCron())


def test_ticks_of_visitors_stand_back_for_as_long_as_the_last_one_took(
    cron: LazyCron, clock: ManualClock
) -> None:
    """A tick of eight seconds that leaves rows behind: the next begins eight seconds after."""
    began: list[float] = []

    def slow() -> None:
        began.append(clock.monotonic())
        clock.tick(8)

    for number in range(4):
        cron.task(every="minute", name=f"slow_{number}")(slow)
    cron.configure(budget=Budget(tasks=1, seconds=20))
    visit = visitor(cron)
    visit()
    clock.tick(60)
    visit()
    start = began[0]
    while clock.monotonic() < start + 40:
        visit()
        clock.tick(1)
    assert [round(one - start) for one in began] == [0, 16, 32]


def test_a_long_tick_keeps_visitors_away_for_twenty_seconds_at_most(
    cron: LazyCron, clock: ManualClock
) -> None:
    """A tick of ten minutes is not followed by ten minutes of standing back."""
    began: list[float] = []

    @cron.task(every="minute")
    def long() -> None:
        began.append(clock.monotonic())
        clock.tick(600)

    visit = visitor(cron)
    visit()
    clock.tick(60)
    visit()
    assert watcher_of(cron).look_again_at - clock.monotonic() <= 20
    clock.tick(20)
    visit()
    assert len(began) == 2


# the state file


def spoil(path: Path, how: str) -> None:
    """Make the state file useless."""
    if how == "unwritable":
        # A folder cannot be replaced by a file, whoever we are.
        path.unlink()
        path.mkdir()
        (path / "full").touch()
        return
    contents = {
        "empty": b"",
        "torn": path.read_bytes()[:20],
        "binary": bytes(range(256)),
        "foreign": b'{"next": "soon", "traffic": 3}',
        "null": b"null",
        "huge": b"[" * 10_000_000,
    }
    path.write_bytes(contents[how])


@pytest.mark.parametrize(
    "how", ["missing", "empty", "torn", "binary", "foreign", "null", "huge", "unwritable"]
)
def test_a_spoilt_state_file_keeps_no_task_from_running(
    cron: LazyCron, clock: ManualClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Served, run, at most one warning; with an unwritable file as well."""
    runs = register(cron)
    visit = visitor(cron)
    visit()
    path = cron._parts.statefile.path
    if how == "missing":
        path.unlink()
    else:
        spoil(path, how)
    for _ in range(3):
        clock.tick(60)
        visit()
    assert len(runs) == 3
    assert len([one for one in caplog.records if one.levelno >= logging.WARNING]) <= 1
    # What may be somebody else's is left alone, and so is a folder.
    left = how in ("binary", "foreign", "null", "huge", "unwritable")
    assert bool(cron.check()) == left


# tables


def test_without_tables_requests_work_and_a_migration_needs_no_restart(
    tmp_path: Path, make_cron: MakeCron, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning however many requests; after `migrate` the next tick makes the rows."""
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    cron = make_cron(url, create_tables=False)
    runs = register(cron)
    visit = visitor(cron)
    for _ in range(5):
        clock.tick(61)
        visit()
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one.__dict__["action"] for one in warnings] == ["not_installed"]
    make_cron(url, create_tables=False).migrate()  # as another process does
    clock.tick(61)
    visit()
    clock.tick(61)
    visit()
    assert len(runs) == 1


def test_on_sqlite_the_tables_appear_on_first_use(
    tmp_path: Path, make_cron: MakeCron, clock: ManualClock
) -> None:
    """A visitor's first request makes the file, the tables and the rows."""
    cron = make_cron(f"sqlite:///{tmp_path / 'new.db'}")
    runs = register(cron)
    visit = visitor(cron)
    visit()
    clock.tick(60)
    visit()
    assert len(runs) == 1


def test_tables_dropped_under_a_running_process_are_told_once(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests go on, one warning is logged, and a migration mends it."""
    cron = make_cron(sqlite, create_tables=False)
    runs = register(cron)
    visit = visitor(cron)
    visit()
    with cron._parts.store.engine.begin() as connection:
        for table in ("scheduled_task", "task_run", "lazycron_setting", "alembic_version"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type='table'")
        for (name,) in names.fetchall():
            if not name.startswith("sqlite_"):
                connection.exec_driver_sql(f"DROP TABLE {name}")
    for _ in range(4):
        clock.tick(61)
        visit()
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one.__dict__["action"] for one in warnings] == ["not_installed"]
    cron.migrate()
    for _ in range(2):
        clock.tick(61)
        visit()
    assert len(runs) == 1


def test_a_row_deleted_by_hand_is_made_again_within_two_minutes(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Visitors compare rows and tasks once a minute although nothing is due."""
    cron.task(every="hour", name="hourly")(lambda: None)
    visit = visitor(cron)
    visit()
    cron._parts.store.recurring.forget("hourly", START)
    for _ in range(2):
        clock.tick(61)
        visit()
    assert cron._parts.store.recurring.of("hourly") is not None


def test_a_task_registered_by_a_request_runs_in_a_later_tick(
    cron: LazyCron, clock: ManualClock
) -> None:
    """The request answers 202 and its task has a row at the next look, and runs when due."""
    runs: list[str] = []

    def app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        if environ["PATH_INFO"] == "/new":
            cron.task(every="minute", first_run=0, name="late")(lambda: runs.append("late"))
            start_response("202 Accepted", [])
        else:
            start_response("200 OK", [])
        return [b""]

    wsgi = Wsgi(app, cron)
    call_wsgi(wsgi, environ_of("/"))
    at_rest(cron)
    clock.tick(0.5)
    assert call_wsgi(wsgi, environ_of("/new")).status == 202
    for _ in range(2):
        clock.tick(1)
        call_wsgi(wsgi, environ_of("/"))
        at_rest(cron)
    assert runs == ["late"]


# hanging tasks


def test_a_hanging_task_stops_no_other_and_says_since_when(
    cron: LazyCron, clock: ManualClock, hang: Callable[[str], Hanging]
) -> None:
    """The others go on in a further tick thread; overview shows it running."""
    stuck = hang("a_stuck")
    runs = register(cron, "b_minute")
    app = Wsgi(hello_wsgi, cron)
    visitor(cron)()
    clock.tick(60)
    call_wsgi(app, environ_of("/"))
    assert stuck.begun.wait(DEADLINE)
    clock.tick(20)
    call_wsgi(app, environ_of("/"))  # not longer than the budget's 20 seconds yet
    assert runs == []
    clock.tick(1)
    call_wsgi(app, environ_of("/"))
    until(lambda: runs == ["b_minute"])
    status = {one.name: one for one in cron.overview()}["a_stuck"]
    assert (status.running, status.hanging) == (True, False)
    explanation = str(cron.why("a_stuck"))
    assert explanation.startswith("running for 21 seconds, longer than a tick's budget of 20 s")
    assert "since 2026-01-01 00:01:00" in explanation
    stuck.go.set()
    at_rest(cron)
    assert {one.name: one.status for one in cron.overview()}["a_stuck"] == "ok"


def hanging(stuck: list[Hanging], number: int) -> bool:
    """Tell whether so many have begun."""
    return sum(one.begun.is_set() for one in stuck) == number


def test_there_are_four_tick_threads_at_most(
    cron: LazyCron, clock: ManualClock, hang: Callable[[str], Hanging]
) -> None:
    """Six hanging tasks take four threads; each is taken only when all others hang."""
    stuck = [hang(f"stuck_{number}") for number in range(6)]
    app = Wsgi(hello_wsgi, cron)
    visitor(cron)()
    clock.tick(60)
    for number in range(8):
        call_wsgi(app, environ_of("/"))
        if number < MOST_THREADS:
            until(partial(hanging, stuck, number + 1))
        clock.tick(21)
    threads = watcher_of(cron)._threads()
    assert len(threads.ours) == MOST_THREADS
    assert sum(one.begun.is_set() for one in stuck) == MOST_THREADS
    for one in stuck:
        one.go.set()
    at_rest(cron)


def test_a_url_hit_while_all_tick_threads_hang_is_told_so(
    cron: LazyCron, clock: ManualClock, hang: Callable[[str], Hanging]
) -> None:
    """503, hit after hit, since nobody would take its tick; `check` says so, and it ends."""
    stuck = [hang(f"stuck_{number}") for number in range(MOST_THREADS + 1)]
    app, url = Wsgi(hello_wsgi, cron), environ_of(f"/lazycron/{cron.cron_token}?wait=0")
    visitor(cron)()
    clock.tick(60)
    for number in range(MOST_THREADS):
        assert call_wsgi(app, dict(url)).status == 202
        until(partial(hanging, stuck, number + 1))
        assert "hanging_ticks" not in [one.name for one in cron.check()]
        clock.tick(21)
    for _ in range(3):
        answer = call_wsgi(app, dict(url))
        assert (answer.status, b"all its tick threads hang" in answer.body) == (503, True)
    said = {one.name: one.text for one in cron.check()}
    assert said["hanging_ticks"].startswith("all 4 tick threads of this process hang in a task")
    for one in stuck:
        one.go.set()
    at_rest(cron)
    assert watcher_of(cron).tick(None).result(DEADLINE).runs[0].task == f"stuck_{MOST_THREADS}"
    assert "hanging_ticks" not in [one.name for one in cron.check()]


def test_a_url_hit_that_waits_for_a_thread_is_not_shared_once_all_hang(
    cron: LazyCron, clock: ManualClock, hang: Callable[[str], Hanging]
) -> None:
    """Its own report comes when a thread is free again; later hits are told at once."""
    stuck = [hang(f"stuck_{number}") for number in range(MOST_THREADS)]
    watcher = watcher_of(cron)
    visitor(cron)()
    clock.tick(60)
    for number in range(MOST_THREADS):
        watcher.tick(None)
        until(partial(hanging, stuck, number + 1))
        clock.tick(21)
    threads = watcher._threads()
    waiting = threads._url = UrlVisit("url")
    threads._waiting.append(waiting)
    assert watcher.tick(None).cancelled()
    assert not waiting.report.done()
    stuck[0].go.set()
    assert [run.task for run in waiting.report.result(DEADLINE).runs] == ["stuck_0"]
    for one in stuck:
        one.go.set()
    at_rest(cron)


def test_a_url_hit_while_a_task_hangs_ticks_in_a_further_thread(
    cron: LazyCron, clock: ManualClock, hang: Callable[[str], Hanging]
) -> None:
    """It does not wait for the hanging tick's report."""
    stuck = hang("a_stuck")
    runs = register(cron, "b_minute")
    watcher = watcher_of(cron)
    watcher.tick(None).result(DEADLINE)
    clock.tick(60)
    first = watcher.tick(None)
    assert stuck.begun.wait(DEADLINE)
    assert watcher.tick(None) is first  # not hanging yet: shared
    clock.tick(21)
    second = watcher.tick(None).result(DEADLINE)
    assert [run.task for run in second.runs] == ["b_minute"]
    assert runs == ["b_minute"]
    assert not first.done()
    stuck.go.set()
    assert [run.task for run in first.result(DEADLINE).runs] == ["a_stuck"]


def for_visitors(cron: LazyCron) -> list[str]:
    """Register a minute task that visitors' ticks alone may run."""
    runs: list[str] = []
    cron.task(every="minute", name="for_visitors", only_on=["traffic"])(
        lambda: runs.append("for_visitors")
    )
    return runs


def test_url_hits_that_follow_each_other_keep_no_visitors_task_from_running(
    cron: LazyCron, clock: ManualClock
) -> None:
    """However long their ticks take: they push no look of a visitor's away."""
    runs = for_visitors(cron)
    cron.task(every="minute", name="slow", only_on=["url"])(lambda: clock.tick(15))
    watcher, visit = watcher_of(cron), visitor(cron)
    visit()
    clock.tick(60)
    for _ in range(3):
        watcher.tick(None).result(DEADLINE)
        at_rest(cron)
        clock.tick(0.5)
    visit()
    assert runs == ["for_visitors"]


@pytest.mark.parametrize("tick_in", ["thread", "request"])
def test_a_url_hit_under_way_keeps_no_visitors_task_from_running(
    cron: LazyCron, clock: ManualClock, hang: Callable[[str], Hanging], tick_in: TickIn
) -> None:
    """A visitor's look has a further thread, or its request's own."""
    runs = for_visitors(cron)
    held = hang("held")
    app = Wsgi(hello_wsgi, cron, tick_in=tick_in, traffic=True)
    visitor(cron)()
    clock.tick(60)
    report = watcher_of(cron).tick(None)
    assert held.begun.wait(DEADLINE)
    call_wsgi(app, environ_of("/"))
    until(lambda: runs == ["for_visitors"])
    assert not report.done()
    held.go.set()
    assert [run.task for run in report.result(DEADLINE).runs] == ["held"]


def test_a_hit_during_a_visitors_tick_gets_that_ticks_report(
    cron: LazyCron, clock: ManualClock, hang: Callable[[str], Hanging]
) -> None:
    """It starts none of its own."""
    slow = hang("slow")
    app = Wsgi(hello_wsgi, cron)
    visitor(cron)()
    clock.tick(60)
    call_wsgi(app, environ_of("/"))
    assert slow.begun.wait(DEADLINE)
    report = watcher_of(cron).tick(None)
    slow.go.set()
    runs = report.result(DEADLINE).runs
    assert [(run.task, run.trigger) for run in runs] == [("slow", "traffic")]


def test_a_hundred_hits_at_once_are_one_tick(
    cron: LazyCron, clock: ManualClock, hang: Callable[[str], Hanging]
) -> None:
    """Before the tick has begun and while it runs they all wait for the same report."""
    slow = hang("slow")
    watcher = watcher_of(cron)
    watcher.tick(None).result(DEADLINE)
    clock.tick(60)
    reports = [watcher.tick(None) for _ in range(50)]
    assert slow.begun.wait(DEADLINE)
    reports += [watcher.tick(None) for _ in range(50)]
    assert len(set(map(id, reports))) == 1
    slow.go.set()
    assert reports[0].result(DEADLINE).runs[0].task == "slow"


def test_a_hit_in_the_head_start_of_anothers_tick_shares_it(
    cron: LazyCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The visit is taken by then, and its tick has not begun."""
    watcher = watcher_of(cron)
    asleep, awake = threading.Event(), threading.Event()

    def head_start(_: float) -> None:
        asleep.set()
        awake.wait(DEADLINE)

    monkeypatch.setattr("lazycron.web.watcher.time.sleep", head_start)
    first = watcher.tick(None)
    assert asleep.wait(DEADLINE)
    assert watcher.tick(None) is first
    awake.set()
    first.result(DEADLINE)
    monkeypatch.undo()
    at_rest(cron)
    assert watcher.tick(None) is not first
    at_rest(cron)


# jobs


@pytest.mark.parametrize("edge", ["asgi", "wsgi"])
def test_what_a_request_enqueues_is_worked_off_after_that_very_request(
    cron: LazyCron, clock: ManualClock, edge: str
) -> None:
    """Although a look was made a moment ago and no further visitor comes."""
    done = threading.Event()
    send = cron.task(name="send")(done.set)

    async def app(scope: Scope, receive: Receive, send_: Send) -> None:
        if scope["path"] == "/order":
            await send.aenqueue()
        await hello(scope, receive, send_)

    def wsgi_app(environ: Environ, start_response: StartResponse) -> list[bytes]:
        if environ["PATH_INFO"] == "/order":
            send.enqueue()
        return hello_wsgi(environ, start_response)

    with Site(Asgi(app, cron)) as site:
        wsgi = Wsgi(wsgi_app, cron)
        for path in ("/", "/order"):
            if edge == "asgi":
                site.get(path)
            else:
                call_wsgi(wsgi, environ_of(path))
            at_rest(cron)
            clock.tick(0.1)
        assert done.wait(DEADLINE)
        at_rest(cron)


def test_enqueueing_does_not_bring_visitors_ticks_closer_together(
    cron: LazyCron, clock: ManualClock
) -> None:
    """After a tick of ten seconds the next begins ten seconds later, whatever is enqueued."""
    began: list[float] = []

    @cron.task
    def slow() -> None:
        began.append(clock.monotonic())
        clock.tick(10)

    visit = visitor(cron)
    visit()
    for _ in range(25):
        slow.enqueue()
        visit()
        clock.tick(1)
    gaps = [round(after - before) for before, after in itertools.pairwise(began)]
    assert all(gap == 10 or gap >= 20 for gap in gaps)


# switches


def test_switched_off_visitors_run_nothing_and_the_url_does(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Also after the state file was deleted, since the switch lies in the database."""
    runs = register(cron)
    visit = visitor(cron)
    visit()
    cron.set_triggers(traffic=False)
    clock.tick(60)
    visit()
    cron._parts.statefile.path.unlink()
    clock.tick(60)
    visit()
    assert runs == []
    report = watcher_of(cron).tick(None).result(DEADLINE)
    assert [run.task for run in report.runs] == ["minute"]
    clock.tick(60)
    assert [run.task for run in cron.run_due(trigger="cli").runs] == ["minute"]
    cron.set_triggers(traffic=True)
    clock.tick(60)
    visit()
    assert len(runs) == 3


def test_admin_paths_trigger_as_admin_and_skip_paths_not_at_all(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Each has a switch of its own; `/administer` is not below `/admin`."""
    runs = register(cron)
    settings = {"admin_paths": ["/admin"], "skip_paths": ["/static/"]}
    admin, other, skipped = (
        visitor(cron, path, **settings) for path in ("/admin/x", "/administer", "/static/a.css")
    )
    skipped()
    assert not cron.is_used
    other()
    cron.set_triggers(traffic=False)
    clock.tick(60)
    skipped()
    clock.tick(2)
    other()
    assert runs == []
    clock.tick(2)
    admin()
    assert runs == ["minute"]
    assert cron.history("minute")[0].trigger == "admin"
    cron.set_triggers(traffic=True, admin=False)
    clock.tick(60)
    admin()
    assert len(runs) == 1
    clock.tick(2)
    other()
    assert len(runs) == 2


def test_switched_off_by_the_environment_nothing_looks(
    cron: LazyCron, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LAZYCRON=off: no thread, no file, no SQL; the cron URL still runs."""
    monkeypatch.setenv("LAZYCRON", "off")
    runs = register(cron)
    visit = visitor(cron)
    with count_statements() as statements, count_opens() as opened:
        for _ in range(3):
            clock.tick(61)
            visit()
    assert (statements, opened, cron.is_used) == ([], [], False)
    watcher = watcher_of(cron)
    watcher.tick(None).result(DEADLINE)
    clock.tick(60)
    watcher.tick(None).result(DEADLINE)
    assert len(runs) == 1


def test_requests_stand_back_for_a_loop_that_is_alive(cron: LazyCron, clock: ManualClock) -> None:
    """A heartbeat younger than 45 seconds in the state file keeps visitors from ticking."""
    runs = register(cron)
    visit = visitor(cron)
    visit()
    clock.tick(60)
    cron._parts.store.shared.put_setting("loop_at", clock.now().isoformat(), clock.now())
    cron._parts.refresh_state(settings=True)
    visit()
    assert runs == []
    clock.tick(46)
    visit()
    assert runs == ["minute"]


# outages and errors


@pytest.mark.parametrize("was_there", [False, True])
def test_attempts_at_a_lost_database_are_spaced_by_thirty_seconds(
    tmp_path: Path, make_cron: MakeCron, clock: ManualClock, *, was_there: bool
) -> None:
    """Requests go on, `why` says since when, and after the outage tasks run again."""
    database = tmp_path / "lost.db"
    cron = make_cron(f"sqlite:///{database}")
    runs = register(cron)
    visit = visitor(cron)
    if was_there:
        visit()
        cron._parts.close()
        database.rename(tmp_path / "kept.db")
        clock.tick(60)
    database.mkdir()  # what lies there now is no database file
    attempts: list[float] = []
    event.listen(
        cron._parts.store.engine, "do_connect", lambda *_: attempts.append(clock.monotonic())
    )
    began = clock.monotonic()
    for _ in range(95):
        visit()
        clock.tick(1)
    assert {round(one - began) // 30 for one in attempts} == {0, 1, 2, 3}
    assert len(attempts) <= 8
    assert "unreachable since" in str(cron.why("minute"))
    database.rmdir()
    if was_there:
        (tmp_path / "kept.db").rename(database)
    for _ in range(4):
        clock.tick(60)
        visit()
    assert runs


def test_what_is_wrong_with_the_settings_is_told_without_a_traceback(
    make_cron: MakeCron,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A database that cannot even be opened: requests go on, twice a minute the log says why."""
    monkeypatch.setenv("LAZYCRON_DATABASE", "mend it")
    cron = make_cron(None)
    visit = visitor(cron)
    for _ in range(60):
        visit()
        clock.tick(1)
    said = "a tick failed: ConfigurationError: database is not a URL that SQLAlchemy can read; "
    told = [(one.message.startswith(said), one.exc_info) for one in caplog.records]
    assert told == [(True, None)] * 2


def test_whatever_a_tick_raises_the_thread_lives_and_the_next_attempt_is_spaced(
    cron: LazyCron,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SystemExit and its kind included; thirty seconds later the same thread ticks."""
    runs = register(cron)
    visit = visitor(cron)
    visit()
    real = cron._parts.runner.run_due

    def broken(_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(cron._parts.runner, "run_due", broken)
    clock.tick(60)
    visit()
    monkeypatch.setattr(cron._parts.runner, "run_due", real)
    clock.tick(29)
    visit()
    assert runs == []
    clock.tick(1)
    visit()
    assert runs == ["minute"]
    assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == [
        "a tick failed: SystemExit"
    ]


def test_a_thread_that_cannot_be_started_is_tried_again(
    cron: LazyCron, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full process table breaks no request, and leaves no phantom that counts as idle."""
    runs = register(cron)
    visit = visitor(cron)

    def refuse(_: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        visit()
    for _ in range(2):
        clock.tick(60)
        visit()
    assert runs == ["minute"]


# processes


def test_a_forked_child_uses_no_thread_queue_or_lock_of_its_parent(
    cron: LazyCron, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process id alone tells a fork: under uWSGI nothing else does."""
    runs = register(cron)
    visit = visitor(cron)
    visit()
    watcher, parent = watcher_of(cron), watcher_of(cron)._threads()
    parts = cron._parts
    # Another thread of the parent held this lock at the fork. Both are undone before the teardown.
    with parent.lock, monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 4_000_000)
        visit()
        assert watcher._threads() is not parent
        assert cron._parts is not parts
        clock.tick(60)
        visit()
        assert runs == ["minute"]
        assert cron.close()  # the child's own
    # A real parent keeps its parts: here nothing else would close their connections.
    parts.close()


def test_two_first_requests_at_once_make_one_set_of_threads(cron: LazyCron) -> None:
    """However the threads interleave: one lock, one queue, one thread."""
    watcher, gate = watcher_of(cron), threading.Barrier(8)
    made: list[Any] = []

    def race() -> None:
        gate.wait()
        made.append(watcher._threads())

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, made))) == 1


# the end


def test_a_drain_waits_for_the_running_task_and_lets_nothing_begin(
    cron: LazyCron, clock: ManualClock, hang: Callable[[str], Hanging]
) -> None:
    """The run is recorded; requests after it look no more, and the URL is told so."""
    slow = hang("slow")
    app, watcher = Wsgi(hello_wsgi, cron), watcher_of(cron)
    visitor(cron)()
    clock.tick(60)
    call_wsgi(app, environ_of("/"))
    assert slow.begun.wait(DEADLINE)
    ended = threading.Event()

    def end() -> None:
        watcher.drain()
        ended.set()

    drain = threading.Thread(target=end)
    drain.start()
    until(lambda: watcher._threads().is_closed)
    assert not ended.is_set()
    slow.go.set()
    drain.join(DEADLINE)
    assert cron.history("slow")[0].status == "ok"
    clock.tick(60)
    call_wsgi(app, environ_of("/"))
    assert watcher.tick(None).cancelled()
    until(lambda: not any(one.is_alive() for one in _threads_of(watcher)))


def _threads_of(watcher: Watcher) -> list[threading.Thread]:
    idents = {hand.ident for hand in watcher._threads().ours}
    return [one for one in threading.enumerate() if one.ident in idents]


def test_a_drain_waits_no_longer_than_it_was_told(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """A task that hangs keeps a stopping process for the `drain` setting only."""
    cron = make_cron(sqlite, drain="0.2s")
    slow = Hanging(cron, "slow")
    visitor(cron)()
    clock.tick(60)
    call_wsgi(Wsgi(hello_wsgi, cron), environ_of("/"))
    assert slow.begun.wait(DEADLINE)
    begun = time.monotonic()
    watcher_of(cron).drain()
    assert 0.2 <= time.monotonic() - begun < 2
    slow.go.set()


def test_a_look_that_has_only_its_head_start_begins_no_run_after_a_drain(
    cron: LazyCron, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would wait for that run: it would be lost with the process."""
    runs = register(cron)
    visitor(cron)()
    clock.tick(60)
    asleep, awake = threading.Event(), threading.Event()

    def head_start(_: float) -> None:
        asleep.set()
        awake.wait(DEADLINE)

    monkeypatch.setattr("lazycron.web.watcher.time.sleep", head_start)
    call_wsgi(Wsgi(hello_wsgi, cron), environ_of("/"))
    assert asleep.wait(DEADLINE)
    monkeypatch.undo()
    watcher = watcher_of(cron)
    waiting = watcher.tick(None)
    watcher.drain()
    assert waiting.cancelled()
    awake.set()
    until(lambda: not _threads_of(watcher))
    assert runs == []


def test_a_process_that_was_drained_can_be_opened_again(cron: LazyCron, clock: ManualClock) -> None:
    """Test suites start and stop an app's lifespan many times in one process."""
    runs = register(cron)
    visit = visitor(cron)
    visit()
    for _ in range(2):
        watcher_of(cron).drain()
        watcher_of(cron).open()
        clock.tick(60)
        visit()
    assert len(runs) == 2


def lazycron_threads() -> set[threading.Thread]:
    """All threads of lazycron's own, of whatever LazyCron."""
    return {one for one in threading.enumerate() if one.name.startswith("lazycron")}


def serve(cron: LazyCron, edge: str) -> None:
    """Make one request to an app of its own."""
    if edge == "wsgi":
        call_wsgi(Wsgi(hello_wsgi, cron), environ_of("/"))
    else:
        with Site(Asgi(hello, cron)) as site:
            site.get("/")
    at_rest(cron)


@pytest.mark.parametrize("edge", ["asgi", "wsgi"])
def test_what_is_closed_leaves_no_thread_and_is_freed(
    tmp_path: Path, clock: ManualClock, edge: str
) -> None:
    """Test suites and app factories make many; each has been served, and has run a task."""
    before = lazycron_threads()
    made: list[ref[Any]] = []
    for number in range(5):
        cron = LazyCron(f"sqlite:///{tmp_path}/{number}.db", secret=SECRET, clock=clock)
        cron.task(every="minute", name="minute")(lambda: None)
        made += [ref(cron), ref(watcher_of(cron))]
        for _ in range(2):
            serve(cron, edge)
            clock.tick(60)
        assert [run.trigger for run in cron.history()] == ["traffic"]
        assert cron.close()
        del cron

    def freed() -> bool:
        gc.collect()
        return all(one() is None for one in made)

    until(lambda: lazycron_threads() <= before)
    until(freed)


def test_what_is_closed_is_opened_by_its_next_request(cron: LazyCron, clock: ManualClock) -> None:
    """By a visitor's as by the URL's, as often as it is closed."""
    runs = register(cron)
    visit = visitor(cron)
    visit()
    for number in range(1, 4):
        assert cron.close()
        clock.tick(60)
        visit()
        assert len(runs) == number
    assert cron.close()
    clock.tick(60)
    assert len(watcher_of(cron).tick(None).result(DEADLINE).runs) == 1


def test_what_was_drained_is_not_opened_by_closing_it(cron: LazyCron, clock: ManualClock) -> None:
    """Apps close it at their lifespan's end, after which a server may still answer requests."""
    runs = register(cron)
    visit = visitor(cron)
    visit()
    watcher_of(cron).drain()
    assert cron.close()
    clock.tick(60)
    visit()
    assert watcher_of(cron).tick(None).cancelled()
    assert runs == []


def test_a_look_that_meets_the_closing_does_not_end_all_looks(cron: LazyCron) -> None:
    """It had the old crew in its hand."""
    watcher = watcher_of(cron)
    visitor(cron)()
    threads = watcher._threads()
    cron.close()
    assert not watcher._may_look(threads)
    assert watcher.look_again_at == float("-inf")


def test_async_tasks_run_in_a_loop_of_their_own_behind_wsgi(
    cron: LazyCron, clock: ManualClock
) -> None:
    """There is no app's loop."""
    loops: list[asyncio.AbstractEventLoop] = []

    @cron.task(every="minute")
    async def noted() -> None:
        loops.append(asyncio.get_running_loop())

    visit = visitor(cron)
    visit()
    clock.tick(60)
    visit()
    assert len(loops) == 1
    assert loops[0].is_closed()


def test_the_url_of_a_database_shows_in_no_log(
    tmp_path: Path, make_cron: MakeCron, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed tick is told by its error's kind."""
    caplog.set_level(logging.DEBUG, logger="lazycron")
    url = make_url("postgresql+psycopg://me:a_password@127.0.0.1:1/none")
    cron = make_cron(url, state_file=tmp_path / "s.json")
    register(cron)
    visitor(cron)()
    clock.tick(31)
    watcher_of(cron).tick(None).exception(DEADLINE)
    assert "a tick failed: OperationalError" in caplog.text
    assert "a_password" not in caplog.text
    assert "127.0.0.1" not in caplog.text
