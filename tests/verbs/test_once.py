"""Once keys: an effect happens once, whoever asks for it, and whatever becomes of him."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine, func, insert, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from lazycron import LazyCron, Retry, Run
from lazycron.errors import ArgumentsError, BusyError, ConfigurationError, ScheduleError
from lazycron.model.once import First
from lazycron.schema import lazycron_setting, once_key
from lazycron.store import Probe
from lazycron.testing import Crash, ManualClock, drain, repeat
from tests.conftest import START, MakeCron
from tests.processes import Child, Wire, children, rounds
from tests.tables import asynchronous, text_of


@pytest.fixture
def app(url: URL) -> Iterator[Engine]:
    """The app's own engine."""
    engine = create_engine(url)
    yield engine
    engine.dispose()


def keys(engine: Engine) -> dict[str, tuple[bool, int]]:
    """Read the keys: whether each is finished, and how often it was refused."""
    found = select(once_key.c.key, once_key.c.finished_at, once_key.c.refused)
    with engine.connect() as connection:
        rows = connection.execute(found).all()
    return {key: (finished is not None, refused) for key, finished, refused in rows}


def test_a_key_is_the_first_callers_and_refused_to_all_others(
    cron: LazyCron, engine: Engine, clock: ManualClock
) -> None:
    """Who are told since when, and whether the effect was finished; each refusal is counted."""
    with cron.once("key") as first:
        assert first
        assert (first.created_at, first.is_finished) == (START, False)
        with cron.once("key") as second:
            assert not second
            assert (second.created_at, second.finished_at) == (START, None)
        clock.tick("1m")
    with cron.once("key") as third:
        assert not third
        assert third.finished_at == START + timedelta(minutes=1)
        assert third.is_finished
    with cron.once("Key") as other:
        assert other
    assert keys(engine) == {"key": (True, 2), "Key": (True, 0)}


def test_an_exception_gives_the_key_back_and_goes_on(cron: LazyCron, engine: Engine) -> None:
    """Of the one who had it; a refused caller's error gives nothing back."""
    with pytest.raises(LookupError), cron.once("key"):
        raise LookupError
    assert keys(engine) == {}
    with cron.once("key") as second:
        assert second
        with pytest.raises(LookupError), cron.once("key"):
            raise LookupError
        assert keys(engine) == {"key": (False, 1)}


def crash(wire: Wire, url: str, folder: str) -> None:
    """Be killed in the middle of an effect."""
    cron = LazyCron(url, state_file=f"{folder}/state.json", clock=ManualClock(START))
    with cron.once("for ever") as first, cron.once("for an hour", expires="1h") as second:
        wire.say("has", (bool(first), bool(second)))
        wire.hear()


def test_a_crash_keeps_the_key_for_ever_or_until_it_expires(
    url: URL, cron: LazyCron, clock: ManualClock, tmp_path: Path
) -> None:
    """Who comes next cannot know how far the effect has gone."""
    with Child(crash, text_of(url), str(tmp_path)) as child:
        assert child.expect("has") == (True, True)
        child.kill()
    clock.set(START + timedelta(minutes=59))
    for key in ("for ever", "for an hour"):
        with cron.once(key) as first:
            assert (bool(first), first.finished_at) == (False, None)
    clock.set(START + timedelta(hours=1))
    with cron.once("for an hour") as first:
        assert first
    clock.tick("3000d")
    with cron.once("for ever") as first:
        assert not first


def test_an_expired_key_that_is_somebody_elses_by_now_is_neither_finished_nor_given_back(
    cron: LazyCron, engine: Engine, clock: ManualClock
) -> None:
    """Its first holder was slow."""
    for error in (None, LookupError):
        slow, other = cron.once("key", expires="1m"), cron.once("key", expires="1h")
        first = slow.__enter__()
        clock.tick("1m")
        second = other.__enter__()
        assert first
        assert second
        slow.leave(first, error)
        assert keys(engine) == {"key": (False, 0)}
        other.leave(second, LookupError)
        assert keys(engine) == {}


def test_expired_keys_are_pruned_within_the_tick(
    cron: LazyCron, engine: Engine, clock: ManualClock
) -> None:
    """Once a minute; those without an end stay."""
    for n in range(3):
        with cron.once(f"{n}", expires="1h"):
            pass
    with cron.once("stays"):
        pass
    cron.run_due()
    assert len(keys(engine)) == 4
    clock.tick("61m")
    cron.run_due()
    assert set(keys(engine)) == {"stays"}


def test_a_run_registers_its_keys_for_its_task(cron: LazyCron, clock: ManualClock) -> None:
    """Refusals are counted by task, and `why` says what many of them mean."""

    @cron.task(every="1h")
    def send(run: Run) -> None:
        with run.once("mail") as first:
            assert bool(first) == (run.scheduled_for == START + timedelta(hours=1))
            assert first.task == "send"

    cron.sync()
    for _ in range(11):
        clock.tick("1h")
        assert [run.status for run in cron.run_due().runs] == ["ok"]
    [status] = cron.overview()
    assert status.counters["refused"] == 10
    assert "10 once keys of send were refused" in str(cron.why("send"))
    clock.tick("1h")
    with cron.once("mail") as first:
        assert first.task == "send"


@pytest.mark.parametrize("key", ["", " a", "x" * 192, 5, None])
def test_a_key_that_is_no_printable_text_is_refused_before_the_block(
    key: str, cron: LazyCron
) -> None:
    """As a job's key is; and so is a time that cannot be meant."""
    for once in (cron.once, cron.aonce):
        with pytest.raises(ArgumentsError, match="pass 1 to 191 printable"):
            once(key)
        with pytest.raises(ScheduleError, match="expires"):
            once("key", expires=-1)


def test_a_run_without_a_lazycron_has_no_keys(cron: LazyCron, engine: Engine) -> None:
    """The task's own tests may call it with a run of their own making."""
    assert keys(engine) == {}
    assert not First(mine=False, task=None, created_at=START, finished_at=None)
    assert cron.jobs() == []


# ── in the caller's transaction ──────────────────────────────────────────────────────────────────


def write(connection: object, name: str) -> None:
    """Do the effect: a row of the app's own, in the same transaction."""
    row = {"name": name, "value": "1", "changed_at": START}
    connection.execute(insert(lazycron_setting).values(row))  # type: ignore[attr-defined]


def effects(engine: Engine) -> int:
    """Count the app's rows."""
    found = select(func.count()).select_from(lazycron_setting)
    with engine.connect() as connection:
        found = found.where(lazycron_setting.c.name.like("effect%"))
        return connection.execute(found).scalar() or 0


def test_with_the_callers_connection_key_and_effect_are_both_or_neither(
    cron: LazyCron, app: Engine, engine: Engine
) -> None:
    """Rolled back, the key is free; committed, it is not."""
    with app.connect() as connection:
        with cron.once("key", connection=connection) as first:
            assert first
            write(connection, "effect 1")
        connection.rollback()
    assert (keys(engine), effects(engine)) == ({}, 0)
    with app.begin() as connection, cron.once("key", connection=connection) as first:
        assert first
        write(connection, "effect 2")
    assert (keys(engine), effects(engine)) == ({"key": (True, 0)}, 1)
    with app.begin() as connection, cron.once("key", connection=connection) as first:
        assert not first
    assert keys(engine) == {"key": (True, 1)}


def test_an_error_of_the_database_in_the_block_is_the_one_that_is_raised(
    cron: LazyCron, app: Engine, engine: Engine
) -> None:
    """PostgreSQL takes nothing more in a failed transaction, not even the key's return."""
    with (
        pytest.raises(DBAPIError, match="no_such_table"),
        app.begin() as connection,
        cron.once("key", connection=connection),
    ):
        connection.execute(text("INSERT INTO no_such_table VALUES (1)"))
    assert keys(engine) == {}


def test_a_caught_error_gives_the_key_back_within_the_transaction(
    cron: LazyCron, app: Engine, engine: Engine
) -> None:
    """What the caller then commits has no key, and no effect."""
    with app.begin() as connection:
        with pytest.raises(LookupError), cron.once("key", connection=connection):
            raise LookupError
        write(connection, "another")
    assert keys(engine) == {}


def test_a_registration_in_an_open_transaction_is_waited_for(
    cron: LazyCron, app: Engine, engine: Engine
) -> None:
    """Then it is refused, or had."""
    if app.dialect.name == "sqlite":
        pytest.skip("on SQLite the file is waited for")
    for ending, had in (("commit", False), ("rollback", True)):
        key = f"key {ending}"
        got: list[bool] = []

        def register(key: str = key, got: list[bool] = got) -> None:
            with cron.once(key) as first:
                got.append(bool(first))

        with app.connect() as connection:
            with cron.once(key, connection=connection):
                pass
            waiter = threading.Thread(target=register)
            waiter.start()
            waiter.join(0.05)
            assert got == []
            getattr(connection, ending)()
            waiter.join(20)
        assert got == [had]
    assert set(keys(engine)) == {"key commit", "key rollback"}


def test_a_few_refusals_among_many_runs_of_jobs_are_no_alarm(cron: LazyCron) -> None:
    """Somebody clicked twice; a task without a schedule has no row that counts its runs."""

    @cron.task
    def welcome(run: Run, person: int) -> None:
        with run.once(f"welcome {person}"):
            pass

    for number in range(110):
        welcome.enqueue(min(number, 99))
    drain(cron)
    [status] = cron.overview()
    assert (status.counters["runs"], status.counters["refused"]) == (110, 10)
    assert "once keys" not in str(cron.why("welcome"))
    for number in range(2):
        welcome.enqueue(number)
    drain(cron)
    assert "12 once keys of welcome were refused" in str(cron.why("welcome"))


@pytest.mark.parametrize("expires", [0, 0.5, "0s"])
def test_a_key_that_expires_at_once_would_guard_nothing(cron: LazyCron, expires: object) -> None:
    """It is refused."""
    with pytest.raises(ScheduleError, match="from 1 second to"):
        cron.once("key", expires=expires)  # type: ignore[arg-type]


# ── from coroutines ──────────────────────────────────────────────────────────────────────────────


def test_coroutines_have_their_own_form(cron: LazyCron, engine: Engine) -> None:
    """Which blocks no loop; errors give the key back there too."""

    async def main() -> None:
        async with cron.aonce("key") as first:
            assert first
            async with cron.aonce("key") as second:
                assert not second
        with pytest.raises(LookupError):
            async with cron.aonce("other"):
                raise LookupError

    asyncio.run(main())
    assert keys(engine) == {"key": (True, 1)}


def test_a_run_has_it_too_and_its_keys_are_its_tasks(cron: LazyCron, engine: Engine) -> None:
    """As `run.once`, for tasks that are coroutines."""
    seen: list[First] = []

    @cron.task(retry=Retry(limit=1))
    async def send(run: Run) -> None:
        async with run.aonce("mail") as first:
            seen.append(first)
        async with run.aonce("fails"):
            raise LookupError

    send.enqueue()
    send.enqueue()
    cron.run_due()
    assert [(bool(first), first.task) for first in seen] == [(True, "send"), (False, "send")]
    assert keys(engine) == {"mail": (True, 1)}


def test_a_coroutine_that_is_cancelled_while_it_registers_leaves_no_key(
    cron: LazyCron, engine: Engine
) -> None:
    """The registration is under way in a thread by then."""
    going, go_on = threading.Event(), threading.Event()
    register = cron._parts.store.once.register

    def slowly(*values: object) -> bool:
        going.set()
        assert go_on.wait(20)
        return register(*values)  # type: ignore[arg-type]

    cron._parts.store.once.register = slowly  # type: ignore[assignment, method-assign]

    async def enter() -> None:
        async with cron.aonce("key"):
            pytest.fail("it was cancelled")

    async def main() -> None:
        task = asyncio.create_task(enter())
        await asyncio.to_thread(going.wait, 20)
        task.cancel()
        asyncio.get_running_loop().call_later(0.01, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert keys(engine) == {}


def test_async_sessions_are_joined(cron: LazyCron, url: URL, engine: Engine) -> None:
    """Both or neither."""

    async def main() -> None:
        app = create_async_engine(asynchronous(url))
        for ending in ("rollback", "commit"):
            async with AsyncSession(app) as session:
                async with cron.aonce("key", connection=session) as first:
                    assert first
                    await session.run_sync(lambda sync: write(sync, "effect"))
                await getattr(session, ending)()
        session = AsyncSession(app)
        with pytest.raises(ConfigurationError, match="await the a… verb"):
            cron.once("key", connection=session).__enter__()
        await app.dispose()

    asyncio.run(main())
    assert (keys(engine), effects(engine)) == ({"key": (True, 0)}, 1)


# ── races, and repetition ────────────────────────────────────────────────────────────────────────


def race(wire: Wire, url: str, folder: str, number: int) -> None:
    """Do every effect that nobody else does."""
    cron = LazyCron(url, state_file=f"{folder}/state.json")
    cron.task(name="effect")(print)
    cron.sync()
    wire.say("ready")
    wire.expect("go")
    mine = []
    for n in range(number):
        done = False
        while not done:
            # On a busy machine eight writers of one file may starve one of them for seconds.
            with (
                suppress(BusyError),
                cron._once(f"key {n}", expires=None, connection=None, task="effect") as first,
            ):
                if first:
                    mine.append(n)
                done = True
    wire.say("did", mine)


@pytest.mark.races
def test_eight_processes_that_race_for_two_hundred_keys_do_two_hundred_effects(
    url: URL, engine: Engine, tmp_path: Path
) -> None:
    """And 1,400 refusals are counted."""
    number = 200 * rounds()
    with children(8, race, text_of(url), str(tmp_path), number) as racers:
        for racer in racers:
            racer.expect("ready")
        for racer in racers:
            racer.say("go")
        did = [racer.expect("did") for racer in racers]
    assert sorted(n for mine in did for n in mine) == list(range(number))
    found = keys(engine)
    assert len(found) == number
    assert set(found.values()) == {(True, 7)}


def test_what_is_guarded_by_once_keys_may_be_repeated(cron: LazyCron) -> None:
    """Twice for one due time, with a crash before its record, and one after a checkpoint."""
    sent: list[int] = []
    naive: list[int] = []

    @cron.task
    def mails(run: Run, number: int) -> None:
        for n in range(run.progress or 0, number):
            with run.once(f"{run.idempotency_key} {n}") as first:
                if first:
                    sent.append(n)
            run.checkpoint(n + 1)

    @cron.task(every="1h")
    def careless() -> None:
        naive.append(1)

    assert repeat(cron, mails, sent.copy, 3) == [[0, 1, 2]] * 4
    assert repeat(cron, "careless", lambda: len(naive)) == [1, 2, 4, 6]
    statuses = [run.status for run in reversed(cron.history("mails"))]
    assert statuses == ["ok", "ok", "lost", "ok", "lost", "ok"]
    assert len({run.scheduled_for for run in cron.history("mails")}) == 1
    assert drain(cron)[0].runs == []
    assert cron.jobs() == []


class Dead(Probe):
    """A process that has ended."""

    is_alive = False


def test_after_a_crash_that_a_test_plays_the_key_is_kept(cron: LazyCron, engine: Engine) -> None:
    """As after a real one: the effect is neither repeated nor finished."""
    with pytest.raises(Crash), cron._parts.store.probed(Dead()), cron.once("key"):
        raise Crash
    assert keys(engine) == {"key": (False, 0)}


def test_idempotency_keys_tell_due_times_jobs_and_installations_apart(
    cron: LazyCron, make_cron: MakeCron, clock: ManualClock, tmp_path: Path
) -> None:
    """And are the same for each attempt of one."""
    seen: dict[str, list[str]] = {}

    def register(cron: LazyCron, fails: set[int]) -> None:
        @cron.task(every="1h", first_run=0)
        def pay(run: Run) -> None:
            seen.setdefault("recurring", []).append(run.idempotency_key)
            if len(seen["recurring"]) in fails:
                raise ValueError

        @cron.task
        def job(run: Run) -> None:
            seen.setdefault("job", []).append(run.idempotency_key)
            if run.attempt < 3:
                raise ValueError

    register(cron, {1, 2})
    cron.sync()
    for _ in range(4):
        cron.run_due()
        clock.tick("6h")
    first, second, third, following = seen["recurring"]
    assert first == second == third != following
    for _ in range(2):
        cron.enqueue("job")
        for _ in range(3):
            cron.run_due()
            clock.tick("10m")
    made = seen["job"]
    assert len(made) == 6
    assert (len(set(made[:3])), len(set(made[3:])), len(set(made))) == (1, 1, 2)

    before = {key for found in seen.values() for key in found}
    elsewhere = make_cron(f"sqlite:///{tmp_path}/elsewhere.db")
    clock.set(START + timedelta(days=2))
    register(elsewhere, set())
    elsewhere.sync()
    elsewhere.run_due()
    assert seen["recurring"][-1] not in before
    assert {len(key) for key in before} == {32}
