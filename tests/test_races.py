"""One due row and any number of threads, processes and hosts: one run."""

import asyncio
import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, ExceptionContext, create_engine, event, select, update

from lazycron import Budget, LazyCron, locks
from lazycron.cli.command import lazycron
from lazycron.clock import SystemClock
from lazycron.model.settle import Claim, Settlement
from lazycron.schema import scheduled_task, task_run
from lazycron.store import Stamp
from lazycron.store.driver.engine import open_engine
from lazycron.testing import ManualClock
from tests import doors
from tests.conftest import START, MakeCron, empty
from tests.doors import SharedClock
from tests.processes import PATIENCE, Child, Wire, children, rounds
from tests.tables import put_rows, row_of, set_row, statuses, text_of

pytestmark = pytest.mark.races

NAMES = [f"row-{number:03}" for number in range(200)]
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR_AWAY = datetime(2200, 1, 1, tzinfo=UTC)
UNLIMITED = Budget(tasks=None, seconds=None)


@dataclass
class Counts:
    """What a process has sent to its database, counted where SQLAlchemy sends it."""

    verbs: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def watch(self, engine: Engine | type[Engine]) -> None:
        """Count from now on."""

        @event.listens_for(engine, "before_cursor_execute")
        def statement(*values: Any) -> None:
            self.verbs[values[2].split(None, 1)[0]] += 1

        @event.listens_for(engine, "commit")
        def commit(connection: object) -> None:
            del connection
            self.commits += 1

        @event.listens_for(engine, "handle_error")
        def error(context: ExceptionContext) -> None:
            self.errors.append(repr(context.original_exception))

    def watch_log(self) -> None:
        """Collect what is logged as a warning or worse."""
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.warnings.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("lazycron").addHandler(handler)


# ── many processes, many rows ────────────────────────────────────────────────────────────────────


def racer(wire: Wire, url: str, folder: str, names: list[str], isolation: str | None) -> None:
    """Know these tasks, and run what is due or what is named each time it is told to."""
    database = url if isolation is None else create_engine(url, isolation_level=isolation)
    cron = LazyCron(database, state_file=f"{folder}/state.json", budget=UNLIMITED)
    ran: list[str] = []

    def task(name: str) -> Callable[[], None]:
        return lambda: ran.append(name)

    for name in names:
        cron.task(every="1h", name=name)(task(name))
    cron.run_due()
    counts = Counts()
    counts.watch(Engine)
    counts.watch_log()
    wire.say("ready")
    while (told := wire.hear())[0] != "end":
        ran.clear()
        if told[0] == "run now":
            cron.run_now(told[1])
        else:
            while cron.run_due().runs:
                pass
        wire.say("ran", (list(ran), counts.errors, counts.warnings))
    cron.close()


def make_due(engine: Engine, due: datetime) -> None:
    """Make every row due at one moment, and forget its runs."""
    with engine.begin() as connection:
        connection.execute(update(scheduled_task).values(next_run_at=due, scheduled_for=due))
        connection.execute(task_run.delete())


def race(crowd: list[Child], command: str, value: object = None) -> list[str]:
    """Let all begin at once; return what was run, once no error was seen anywhere."""
    for child in crowd:
        child.say(command, value)
    answers = [child.expect("ran") for child in crowd]
    assert [answer[1] for answer in answers] == [[] for _ in crowd]
    assert [answer[2] for answer in answers] == [[] for _ in crowd]
    return [name for answer in answers for name in answer[0]]


@contextmanager
def racers(  # noqa: PLR0917 - a crowd has many sides
    number: int, engine: Engine, folder: Path, names: list[str], url: URL, level: str | None = None
) -> Iterator[list[Child]]:
    """Start racers that have looked once at rows that are not due."""
    put_rows(engine, names, due=FAR_AWAY)
    values = (text_of(url), str(folder), names, level)
    with children(number, racer, *values) as crowd:
        for child in crowd:
            child.expect("ready")
        yield crowd
        for child in crowd:
            child.say("end")
        for child in crowd:
            child.end()


def test_eight_processes_run_two_hundred_due_rows_once_each(
    url: URL, engine: Engine, tmp_path: Path
) -> None:
    with racers(8, engine, tmp_path, NAMES, url) as crowd:
        for _ in range(rounds()):
            make_due(engine, LONG_AGO)
            ran = race(crowd, "run due")
            assert Counter(ran) == Counter(NAMES)
            assert statuses(engine) == ["ok"] * len(NAMES)


def test_of_eight_processes_that_run_one_task_now_one_does(
    url: URL, engine: Engine, tmp_path: Path
) -> None:
    # A process that comes after the first has finished runs it again, as it was told to; so the
    # lease of a run that has not ended makes the others lose.
    with racers(8, engine, tmp_path, ["one"], url) as crowd:
        for number in range(5 * rounds()):
            make_due(engine, FAR_AWAY)
            ran = race(crowd, "run now", "one")
            with engine.connect() as connection:
                runs = list(connection.execute(select(task_run).order_by(task_run.c.started_at)))
            assert len(ran) == len(runs) >= 1, number
            for before, after in pairwise(runs):
                assert before.finished_at <= after.started_at + timedelta(milliseconds=2)
            assert row_of(engine, "one")["lock_token"] is None


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
@pytest.mark.parametrize("where", ["the app's engine", "the session's default"])
def test_under_an_app_wide_isolation_level_one_wins_and_the_losers_are_quiet(
    level: str, kind: str, where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url: URL = request.getfixturevalue(kind)
    empty(url)
    engine = open_engine(url)
    names: list[str] = NAMES[:40]
    isolation: str | None = level
    if where == "the session's default":
        isolation = None
        option = {
            "postgresql": {
                "options": f"-c default_transaction_isolation={level.lower()}".replace(
                    "e r", "e\\ r"
                )
            },
            "mariadb": {"init_command": f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"},
        }
        url = url.update_query_dict(option[kind])
    with racers(4, engine, tmp_path, names, url, isolation) as crowd:
        for _ in range(rounds()):
            make_due(engine, LONG_AGO)
            assert Counter(race(crowd, "run due")) == Counter(names)
            assert statuses(engine) == ["ok"] * len(names)
    engine.dispose()


def test_a_further_run_costs_one_commit_and_three_statements_or_one(
    url: URL, engine: Engine, make_cron: MakeCron
) -> None:
    """PostgreSQL 1, SQLite 3, MariaDB 4; and one indexed look for what is to be pruned."""
    cron = make_cron(url, budget=UNLIMITED)
    names = NAMES[:20]
    for name in names:
        cron.task(every="1h", name=name)(lambda: None)
    put_rows(engine, names, due=FAR_AWAY)
    cron.run_due()
    own = cron._parts.store.engine
    seen: list[tuple[Counter[str], int]] = []
    counts = Counts()
    counts.watch(own)
    for number in (10, 20):
        make_due(engine, FAR_AWAY)
        for name in names[:number]:
            set_row(engine, name, next_run_at=START, scheduled_for=START)
        counts.verbs.clear()
        counts.commits = 0
        assert len(cron.run_due().runs) == number
        seen.append((counts.verbs.copy(), counts.commits))
    (fewer, few_commits), (more, more_commits) = seen
    further = {verb: (more[verb] - fewer[verb]) / 10 for verb in more if more[verb] != fewer[verb]}
    prune = {"SELECT": 1}
    assert (
        further
        == {
            "sqlite": {"UPDATE": 2, "INSERT": 1} | prune,
            "mariadb": {"UPDATE": 2, "INSERT": 1, "SELECT": 1 + prune["SELECT"]},
            "postgresql": {"WITH": 1} | prune,
        }[engine.dialect.name]
    )
    assert (more_commits - few_commits) / 10 == 1


# ── many doors, one row ──────────────────────────────────────────────────────────────────────────


def test_four_web_two_url_and_two_cli_processes_run_each_due_time_once(
    url: URL, engine: Engine, tmp_path: Path
) -> None:
    due_times = 200 if rounds() >= 3 else 40
    clock = SharedClock(tmp_path / "clock")
    clock.set(START)
    beats = tmp_path / "beats"
    beats.touch()
    put_rows(engine, ["beat"], due=START + timedelta(seconds=1), every=timedelta(seconds=1))
    where = (str(tmp_path), text_of(url))
    roles = [doors.visitors] * 4 + [doors.monitor] * 2 + [doors.commands] * 2
    crowd = [Child(role, *where) for role in roles]
    try:
        for child in crowd:
            child.expect("ready")
        for number in range(1, due_times + 1):
            clock.set(START + timedelta(seconds=number))
            wait_for(partial(has_lines, beats, number))
        for child in crowd:
            child.say("stop")
        assert all(child.expect("served") > 0 for child in crowd)
        for child in crowd:
            child.end()
    finally:
        for child in crowd:
            child.__exit__()
    due = [f"{START + timedelta(seconds=number):%H:%M:%S.%f}" for number in range(1, due_times + 1)]
    assert [line.split()[0] for line in beats.read_text().splitlines()] == due
    assert statuses(engine)[-due_times:] == ["ok"] * min(due_times, 100)


def has_lines(path: Path, number: int) -> bool:
    """Tell whether a file has so many lines."""
    return path.read_text().count("\n") >= number


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until something is so; fails after half a minute."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it did not come to be within half a minute"
        time.sleep(0.001)


# ── leases ───────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Gate:
    """A place in a task where it says that it is there and waits."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def pass_through(self) -> None:
        """Wait until it is opened."""
        self.reached.set()
        assert self.opened.wait(PATIENCE)

    def wait(self) -> None:
        """Wait until somebody stands before it."""
        assert self.reached.wait(PATIENCE)

    def open(self) -> None:
        """Let him go on."""
        self.opened.set()


def bury(cron: LazyCron, clock: ManualClock) -> None:
    """Bury a claim whose lease has ended, and run nothing: two looks, as it takes on SQLite."""
    cron.sync()
    for _ in range(2):
        cron._parts.runner.burial.look(clock.now(), EPOCH)
        clock.tick()


def test_a_stale_finisher_changes_nothing(
    url: URL, engine: Engine, make_cron: MakeCron, tmp_path: Path
) -> None:
    """A's lease ends while A runs, B claims, A finishes while B runs: B's claim stands."""
    later = ManualClock(START)
    a, b = make_cron(url), make_cron(url, clock=later, state_file=tmp_path / "b.json")
    gates = {a: Gate(), b: Gate()}
    for cron, gate in gates.items():
        cron.task(every="1h", name="slow")(gate.pass_through)
    put_rows(engine, ["slow"], due=START)
    with ThreadPoolExecutor() as pool:
        run_of_a = pool.submit(a.run_due)
        gates[a].wait()
        later.tick("6m")
        bury(b, later)
        assert statuses(engine) == ["lost"]
        run_of_b = pool.submit(b.run_due)
        gates[b].wait()
        before = row_of(engine, "slow")
        gates[a].open()
        assert run_of_a.result(PATIENCE).runs == []
        assert row_of(engine, "slow") == before
        assert before["lock_token"] is not None
        assert statuses(engine) == ["lost"]
        gates[b].open()
        assert [run.status for run in run_of_b.result(PATIENCE).runs] == ["ok"]
    assert statuses(engine) == ["lost", "ok"]
    assert "slow  ok (not recorded)" in a.log_tail(1)[0]
    after = row_of(engine, "slow")
    assert (after["lock_token"], after["losses"], after["last_status"]) == (None, 0, "ok")


class Renewals:
    """Every renewal of a LazyCron, made to happen when the test's clock says so."""

    def __init__(self, cron: LazyCron, clock: ManualClock) -> None:
        self._clock = clock
        self._leases = cron._parts.runner.running.leases
        self._renew = self._leases._renew
        self._leases._renew = self._seen
        self._done = threading.Semaphore(0)

    def _seen(self, claim: Claim, until: datetime) -> bool:
        try:
            return self._renew(claim, until)
        finally:
            self._done.release()

    def let_a_third_pass(self, lease: timedelta) -> None:
        """Let a third of the lease pass, and wait for the renewal that this brings."""
        self._clock.tick(lease / 3)
        with self._leases._changed:
            self._leases._changed.notify_all()
        assert self._done.acquire(timeout=PATIENCE)


def test_a_blocked_event_loop_does_not_lose_the_lease(
    url: URL, engine: Engine, make_cron: MakeCron, clock: ManualClock
) -> None:
    """An async task that blocks its loop for three leases is renewed all the same: one run."""
    lease, gate = timedelta(minutes=1), Gate()
    a, b = make_cron(url, lease=lease), make_cron(url, lease=lease)

    async def blocking() -> None:
        gate.pass_through()

    for cron in (a, b):
        cron.task(every="1h", name="blocking")(blocking)
    put_rows(engine, ["blocking"], due=START)
    renewals = Renewals(a, clock)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(lambda: asyncio.run(a.arun_due()))
        gate.wait()
        for _ in range(9):
            renewals.let_a_third_pass(lease)
            assert b.run_due().runs == []
        gate.open()
        assert [one.status for one in run.result(PATIENCE).runs] == ["ok"]
    assert statuses(engine) == ["ok"]


def test_renewals_go_on_until_the_outcome_is_recorded(
    url: URL, engine: Engine, make_cron: MakeCron, clock: ManualClock
) -> None:
    """The task has ended and its record takes three leases: nobody buries it meanwhile."""
    lease, gate = timedelta(minutes=1), Gate()
    a, b = make_cron(url, lease=lease), make_cron(url, lease=lease)
    for cron in (a, b):
        cron.task(every="1h", name="done")(lambda: None)
    put_rows(engine, ["done"], due=START)
    renewals = Renewals(a, clock)
    record = a._parts.store.record

    def slowly(settlement: Settlement, then: Stamp | None) -> object:
        gate.pass_through()
        return record(settlement, then)

    a._parts.store.record = slowly  # type: ignore[assignment, method-assign]
    with ThreadPoolExecutor() as pool:
        run = pool.submit(a.run_due)
        gate.wait()
        for _ in range(9):
            renewals.let_a_third_pass(lease)
            assert b.run_due().runs == []
        gate.open()
        assert [one.status for one in run.result(PATIENCE).runs] == ["ok"]
    assert statuses(engine) == ["ok"]


LOOP: LazyCron  # what `--app tests.test_races:LOOP` names, in the process that sets it


def loop(wire: Wire, url: str, folder: str) -> None:
    """Be `run --loop`, with a task that ends when told to."""
    global LOOP  # noqa: PLW0603 - the command line finds it by its name
    LOOP = LazyCron(url, state_file=f"{folder}/state.json", lease="1s")

    @LOOP.task(every="1h")
    def patient() -> None:
        wire.halt_here("in the task")

    lazycron(["--app", f"{__name__}:LOOP", "run", "--loop"], standalone_mode=False)


def test_renewal_outlives_sigterm(url: URL, engine: Engine, tmp_path: Path) -> None:
    put_rows(engine, ["patient"], due=LONG_AGO)
    with Child(loop, text_of(url), str(tmp_path)) as child:
        child.expect("in the task")
        child.terminate()
        ends = {row_of(engine, "patient")["next_run_at"]}

        def renewed_thrice() -> bool:
            ends.add(row_of(engine, "patient")["next_run_at"])
            return len(ends) > 3

        wait_for(renewed_thrice)
        child.say("go on")
        child.end()
    assert statuses(engine) == ["ok"]


def test_a_task_that_holds_the_write_lock_for_three_leases_is_not_buried(
    sqlite: URL, make_cron: MakeCron
) -> None:
    """Renewal cannot come through meanwhile; at the lock's release it is first all the same."""
    for _ in range(rounds()):
        settings: dict[str, Any] = {"clock": SystemClock(), "lease": "1s"}
        a, b = make_cron(sqlite, **settings), make_cron(sqlite, **settings)

        def writer() -> None:
            connection = sqlite3.connect(str(sqlite.database), isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(3.3)
            connection.execute("COMMIT")
            connection.close()

        for cron in (a, b):
            cron.task(every="1h", name="writer")(writer)
        a.sync()
        b.sync()
        engine = a._parts.store.engine
        set_row(engine, "writer", next_run_at=LONG_AGO, scheduled_for=LONG_AGO)
        with ThreadPoolExecutor() as pool:
            run = pool.submit(a.run_due)
            burial = b._parts.runner.burial
            while not run.done():
                time.sleep(0.02)
                now = datetime.now(UTC)
                assert burial.look(now, EPOCH) == 0
            assert [one.status for one in run.result().runs] == ["ok"]
        assert set(statuses(engine)) == {"ok"}


# ── the state file ───────────────────────────────────────────────────────────────────────────────


def test_a_slow_writer_of_the_state_file_cannot_hide_a_row_that_became_due_meanwhile(
    url: URL, engine: Engine, make_cron: MakeCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A has read "nothing due" and stops before its write; B enables a due row; A writes."""
    a, b = make_cron(url), make_cron(url)
    for cron in (a, b):
        cron.task(every="1h", name="off", enabled=False)(lambda: None)
    put_rows(engine, ["off"], due=START)
    set_row(engine, "off", enabled=False)
    a.sync()
    b.sync()
    gate, b_waits_or_is_done = Gate(), threading.Event()
    next_due = a._parts.store.next_due
    lock_within = locks._lock_within

    def slowly(*values: Any) -> object:
        found = next_due(*values)
        gate.pass_through()
        return found

    def watched(descriptor: int, seconds: float, *, shared: bool) -> bool:
        if gate.reached.is_set():
            b_waits_or_is_done.set()
        return lock_within(descriptor, seconds, shared=shared)

    monkeypatch.setattr(a._parts.store, "next_due", slowly)
    monkeypatch.setattr(locks, "_lock_within", watched)
    with ThreadPoolExecutor() as pool:
        writes_of_a = pool.submit(a._parts.refresh_state)
        gate.wait()
        writes_of_b = pool.submit(b.enable, "off")
        writes_of_b.add_done_callback(lambda _: b_waits_or_is_done.set())
        assert b_waits_or_is_done.wait(PATIENCE)
        gate.open()
        assert writes_of_a.result(PATIENCE).next is None
        writes_of_b.result(PATIENCE)
    found = a._parts.statefile.peek()
    assert found is not None
    assert found.next == START


# ── many processes, the same once keys ───────────────────────────────────────────────────────────


def keyed(wire: Wire, url: str, folder: str, keys: list[str]) -> None:
    """Ask for each key, and enqueue a job under it, the moment that all others do."""
    cron = LazyCron(url, state_file=f"{folder}/state.json")
    cron.task(name="work")(print)
    cron.sync()
    wire.halt_here("ready")
    effects: list[str] = []
    made: list[str] = []
    for key in keys:
        with cron.once(key) as first:
            if first:
                effects.append(key)
        if cron.using("work", key=key).enqueue(key).created:
            made.append(key)
    wire.say("done", (effects, made))
    cron.close()


def test_many_processes_on_the_same_once_keys_wait_for_each_other(url: URL, tmp_path: Path) -> None:
    """Each key has one effect and one job, and nobody gets an error."""
    keys = [f"key-{number:03}" for number in range(200)]
    with children(8, keyed, text_of(url), str(tmp_path), keys) as crowd:
        for child in crowd:
            child.expect("ready")
        for child in crowd:
            child.say("go on")
        done = [child.expect("done") for child in crowd]
    assert sorted(key for effects, _ in done for key in effects) == keys
    assert sorted(key for _, made in done for key in made) == keys
