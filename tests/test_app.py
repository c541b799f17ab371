"""The object an app holds in its hand: settings, doors, loops, and its end."""

import asyncio
import hashlib
import hmac
import inspect
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, QueuePool

from lazycron import Budget, LazyCron, Retry, Run
from lazycron.errors import (
    ConfigurationError,
    LazyCronError,
    UnknownTaskError,
)
from lazycron.testing import ManualClock
from tests.conftest import SECRET, START, MakeCron
from tests.scenes import row_of, seconds, statuses


def test_making_one_does_no_io_and_starts_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a server may import the app before it forks."""
    monkeypatch.chdir(tmp_path)
    before = set(threading.enumerate())
    cron = LazyCron("sqlite:///nothing.db", secret=SECRET)
    cron.task(every="minute", name="minute")(lambda: None)
    assert cron.cron_token is not None
    assert [task.name for task in cron.registry] == ["minute"]
    assert not cron.is_used
    assert list(tmp_path.iterdir()) == []
    assert set(threading.enumerate()) <= before  # threads of earlier tests may end meanwhile


def test_the_environment_says_what_the_code_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Database and secret, read at the first use."""
    cron = LazyCron()
    monkeypatch.setenv("LAZYCRON_DATABASE", f"sqlite:///{tmp_path}/named.db")
    monkeypatch.setenv("LAZYCRON_SECRET", SECRET)
    assert cron.sync()
    assert (tmp_path / "named.db").exists()
    assert (tmp_path / "named.db.lazycron.json").exists()
    assert cron.cron_token == LazyCron(secret=SECRET).cron_token
    cron.close()


def test_tokens_are_made_of_the_first_secret_and_all_are_accepted() -> None:
    """HMAC-SHA256, forty hexadecimal digits, another one for health."""
    old, new = "the old secret, long enough", SECRET
    cron = LazyCron(secret=[new, old])

    def token(secret: str, purpose: str) -> str:
        return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()[:40]

    assert cron.cron_token == token(new, "lazycron-cron")
    assert cron.health_token == token(new, "lazycron-health")
    assert cron.cron_tokens == (token(new, "lazycron-cron"), token(old, "lazycron-cron"))
    short = LazyCron(secret="sesame")
    assert (short.cron_token, short.health_token, short.cron_tokens) == (None, None, ())


# Late binding


def test_configure_comes_before_the_first_use(sqlite: URL, tmp_path: Path) -> None:
    """What is not named stays as it was; afterwards it is an error."""
    cron = LazyCron(lease="7m", clock=ManualClock(START))
    task = cron.task(every="minute", name="minute")(lambda: None)
    cron.configure(str(sqlite), secret=SECRET, state_file=tmp_path / "state.json")
    cron.configure(budget=Budget(tasks=1))
    assert cron.run_now(task) is not None
    assert cron.settings.lease == seconds(420)
    assert cron.settings.budget == Budget(tasks=1)
    assert cron._parts.store.database == sqlite.database
    with pytest.raises(ConfigurationError, match="came after the first use"):
        cron.configure(lease="8m")
    cron.close()
    cron.configure(lease="8m")
    assert cron.settings.lease == seconds(480)


def test_configure_names_what_it_does_not_know() -> None:
    """And changes nothing where one value is bad."""
    cron = LazyCron(lease="7m")
    with pytest.raises(ConfigurationError, match="no setting is named leese; there are secret, "):
        cron.configure(leese="8m")
    with pytest.raises(LazyCronError, match="drain"):
        cron.configure(lease="8m", drain="soonish")
    assert cron.settings.lease == seconds(420)


def test_tasks_that_were_registered_earlier_get_the_defaults_configured_later(
    sqlite: URL, tmp_path: Path
) -> None:
    """Tasks are decorated at import; an app's factory says zone and retry afterwards."""
    cron = LazyCron(clock=ManualClock(START))
    cron.task(crontab="0 9 * * *", name="oslo")(lambda: None)
    cron.task(crontab="0 9 * * *", tz="UTC", name="utc")(lambda: None)

    def fail() -> None:
        raise RuntimeError

    cron.task(every="hour", name="failing")(fail)
    cron.task(every="hour", name="own", retry=Retry(base="2h"))(fail)
    cron.configure(
        str(sqlite), state_file=tmp_path / "s.json", tz="Europe/Oslo", retry=Retry(base="10m")
    )
    cron.sync()
    assert row_of(cron, "oslo").next_run_at == START + seconds(8 * 3600)
    assert row_of(cron, "utc").next_run_at == START + seconds(9 * 3600)
    for name in ("failing", "own"):
        cron.run_now(name)
    assert row_of(cron, "failing").next_run_at == START + seconds(20 * 60)
    assert row_of(cron, "own").next_run_at == START + seconds(4 * 3600)
    cron.close()


# Loops


def test_blocking_verbs_refuse_to_stop_a_loop(cron: LazyCron) -> None:
    """They name what to await instead; nothing was opened for that."""

    async def main() -> list[str]:
        texts = []
        for verb in (cron.run_due, lambda: cron.run_now("chore"), cron.close):
            with pytest.raises(LazyCronError) as caught:
                verb()
            texts.append(str(caught.value))
        return texts

    texts = asyncio.run(main())
    for text, instead in zip(texts, ("arun_due()", "arun_now(…)", "aclose()"), strict=True):
        assert text.endswith(f"an event loop runs in this thread; call `await cron.{instead}`")
    assert not cron.is_used


def test_enqueueing_and_once_keys_refuse_to_stop_a_loop(cron: LazyCron) -> None:
    """Nothing is written; what the caller's own transaction carries, or comes after it, passes."""
    work = cron.task(name="work")(print)
    cron.sync()
    engine = cron._parts.store.engine
    committed: list[Any] = []

    async def main() -> None:
        for enqueue in (work.enqueue, work.using(key="k").enqueue, partial(cron.enqueue, "work")):
            with pytest.raises(LazyCronError, match=r"call `await aenqueue\(…\)`$"):
                enqueue()
        block = cron.once("key")
        with pytest.raises(LazyCronError, match=r"call `async with aonce\(…\)`$"):
            block.__enter__()
        with engine.begin() as connection:
            work.using(connection=connection).enqueue(1)
            with cron.once("joined", connection=connection) as first:
                assert first
        work.using(on_commit=committed.append).enqueue(2)
        for write in committed:
            write()
        await work.aenqueue(3)
        async with cron.aonce("key") as first:
            assert first

    asyncio.run(main())
    assert [job.args for job in cron.jobs()] == [(1,), (2,), (3,)]


def test_a_task_on_the_loop_is_told_to_await(cron: LazyCron, clock: ManualClock) -> None:
    """Its run fails with the words that mend it."""
    work = cron.task(name="work")(print)

    @cron.task(every="minute")
    async def blocks(run: Run) -> None:
        with run.once("key"):
            pass

    @cron.task(every="minute")
    async def enqueues() -> None:
        work.enqueue()

    cron.sync()
    clock.tick("60s")
    blocked, enqueued = (run.message for run in cron.run_due().runs)
    why = "blocks and an event loop runs in this thread; call"
    assert blocked.startswith(f"LazyCronError: once() {why} `async with aonce(…)`")
    assert enqueued.startswith(f"LazyCronError: enqueue() {why} `await aenqueue(…)`")


def test_async_tasks_run_on_the_loop_that_awaits_the_tick(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Sync ones in a thread beside it; from every other door in a loop of their own."""
    where: list[tuple[str, Any]] = []

    @cron.task(every="minute")
    async def on_loop() -> str:
        await asyncio.sleep(0)
        where.append(("async", asyncio.get_running_loop()))
        return "Awaited."

    @cron.task(every="minute")
    def in_thread() -> None:
        where.append(("sync", threading.current_thread()))

    async def main() -> Any:  # noqa: ANN401 - a loop
        await cron.arun_due()
        clock.tick("60s")
        report = await cron.arun_due()
        assert [(run.task, run.message) for run in report.runs] == [
            ("on_loop", "Awaited."),
            ("in_thread", "Done."),
        ]
        result = await cron.arun_now(on_loop)
        assert result is not None
        assert await cron.aclose()
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert [where[0], where[2]] == [("async", loop)] * 2
    assert where[1][1] is not threading.current_thread()
    cron.run_now("on_loop")
    assert where[3][1] is not loop
    assert statuses(cron) == ["ok"] * 4


def test_a_cancelled_tick_lets_its_row_go(sqlite: URL, make_cron: MakeCron) -> None:
    """The thread that ticks goes on to the end of its run and records it."""
    cron = make_cron(sqlite)
    entered, go_on = threading.Event(), threading.Event()

    @cron.task(every="minute")
    def slow() -> None:
        entered.set()
        assert go_on.wait(10)

    async def main() -> None:
        running = asyncio.create_task(cron.arun_now("slow"))
        await asyncio.to_thread(entered.wait, 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        go_on.set()
        assert await cron.aclose(timeout=10)

    asyncio.run(main())
    assert statuses(cron) == ["ok"]


# What the doors are told


@pytest.mark.parametrize("now", [START + seconds(60), 1767225660])
def test_now_is_an_aware_datetime_or_epoch_seconds(cron: LazyCron, now: Any) -> None:  # noqa: ANN401
    """The tick takes it for the moment throughout."""
    cron.task(every="minute", name="minute")(lambda: None)
    cron.sync()
    (run,) = cron.run_due(now=now).runs
    assert run.scheduled_for == START + seconds(60)
    assert row_of(cron, "minute").last_run_at == START + seconds(60)


def test_what_makes_no_sense_is_refused(cron: LazyCron) -> None:
    """A naive moment, an unknown trigger, a name that is none."""
    with pytest.raises(ValueError, match="no time zone"):
        cron.run_due(now=START.replace(tzinfo=None))
    with pytest.raises(ConfigurationError, match="trigger 'cron' is none of traffic, admin, url"):
        cron.run_due(trigger="cron")  # type: ignore[arg-type]
    with pytest.raises(UnknownTaskError):
        cron.run_now("typo")


# The end


def test_close_waits_for_the_run_under_way_and_starts_no_other(
    sqlite: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """It says whether that was in time; the next use opens everything again."""
    cron = make_cron(sqlite)
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert go_on.wait(10)

    for name in ("first", "second"):
        cron.task(every="minute", name=name)(slow)
    cron.run_due()
    clock.tick("60s")
    reports = []
    ticking = threading.Thread(target=lambda: reports.append(cron.run_due()))
    ticking.start()
    assert entered.wait(10)
    assert cron.close(timeout=0) is False
    go_on.set()
    ticking.join(10)
    (report,) = reports
    assert [run.task for run in report.runs] == ["first"]
    assert report.stopped_by == "shutdown"
    assert cron.close() is True
    assert [run.task for run in cron.run_due().runs] == ["second"]


def test_a_run_that_outlives_close_leaves_no_connection_open(
    cron: LazyCron, clock: ManualClock
) -> None:
    """It opens connections again to record what it came to; the last one out closes them."""
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert go_on.wait(10)

    cron.task(every="minute", name="slow")(slow)
    cron.run_due()
    store = cron._parts.store
    clock.tick("60s")
    ticking = threading.Thread(target=cron.run_due)
    ticking.start()
    assert entered.wait(10)
    assert cron.close(timeout=0) is False
    go_on.set()
    ticking.join(10)
    pool = store.engine.pool
    assert isinstance(pool, QueuePool)
    assert (pool.checkedin(), pool.checkedout()) == (0, 0)
    assert cron.history()[0].status == "ok"


def test_aclose_is_a_shutdown_hook_of_every_framework(
    cron: LazyCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Litestar hands its app to a hook that takes anything; others hand it nothing."""
    cron.run_due()
    patience = []
    wait_idle = cron._parts.runner.activity.wait_idle

    def waited(timeout: float) -> bool:
        patience.append(timeout)
        return wait_idle(timeout)

    monkeypatch.setattr(cron._parts.runner.activity, "wait_idle", waited)
    app = object()
    hook = cron.aclose
    assert asyncio.run(hook(app) if inspect.signature(hook).parameters else hook())
    assert patience == [cron.settings.drain.total_seconds()]
    assert not cron.is_used
    cron.run_due()
    assert asyncio.run(hook())
    with pytest.raises(TypeError, match="positional argument"):
        cron.close(5)  # type: ignore[call-arg]


def test_a_budget_of_another_kind_is_refused(cron: LazyCron) -> None:
    """Before any row is made."""
    with pytest.raises(ConfigurationError, match="budget='x': pass a Budget"):
        cron.run_due(budget="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["off", "OFF", "0", "false", "No"])
def test_lazycron_is_off_by_every_usual_word(
    word: str, cron: LazyCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test suite that sets one of them runs nobody's tasks."""
    monkeypatch.setenv("LAZYCRON", word)
    assert not cron.settings.is_on
