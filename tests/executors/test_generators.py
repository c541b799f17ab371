"""Long work in pieces: checkpoints, generators that are paused, and crashes in between."""

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine

from lazycron import Budget, LazyCron, Postpone, Retry, Run
from lazycron.clock import EPOCH
from lazycron.errors import ArgumentsError, LeaseLostError
from lazycron.model.settle import OnLost, Status
from lazycron.testing import ManualClock, drain
from tests.conftest import START
from tests.processes import Child, Wire, rounds
from tests.tables import row_of, statuses, text_of

LEASE = timedelta(minutes=5)
SECOND = Budget(5, 1)

Add = Callable[[LazyCron, ManualClock, list[object]], None]


def generator(cron: LazyCron, clock: ManualClock, seen: list[object]) -> None:
    """Register a generator that takes three seconds."""

    @cron.task(every="1h", first_run=0, name="long")
    def work(run: Run) -> Iterator[int]:
        for n in range(run.progress or 0, 3):
            seen.append(n)
            clock.tick()
            yield n + 1


def async_generator(cron: LazyCron, clock: ManualClock, seen: list[object]) -> None:
    """Register an async one."""

    @cron.task(every="1h", first_run=0, name="long")
    async def work(run: Run) -> AsyncIterator[int]:
        for n in range(run.progress or 0, 3):
            seen.append(n)
            clock.tick()
            yield n + 1


both = pytest.mark.parametrize("add", [generator, async_generator])


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────


@both
def test_a_generator_that_has_used_up_the_budget_is_paused_and_others_get_their_turn(
    add: Add, cron: LazyCron, clock: ManualClock
) -> None:
    """It goes on at its last yield, after those that were due before."""
    seen: list[object] = []
    add(cron, clock, seen)
    cron.task(name="other")(seen.append)
    cron.sync()
    cron.enqueue("other", "first")
    cron.enqueue("other", "second")
    reports = [cron.run_due(budget=SECOND) for _ in range(4)]
    assert [[(run.task, run.status) for run in report.runs] for report in reports] == [
        [("long", "paused")],
        [("other", "ok"), ("other", "ok"), ("long", "paused")],
        [("long", "paused")],
        [("long", "ok")],
    ]
    assert seen == [0, "first", "second", 1, 2]
    assert reports[0].stopped_by == "seconds"


@both
def test_the_slices_of_one_run_share_one_history_row(
    add: Add, cron: LazyCron, engine: Engine, clock: ManualClock
) -> None:
    """From its first slice's start; its milliseconds are theirs, without the waiting."""
    seen: list[object] = []
    add(cron, clock, seen)
    cron.sync()
    clock.tick("10s")
    for number in range(4):
        assert len(cron.run_due(budget=SECOND).runs) == 1
        assert statuses(engine) == (["ok"] if number == 3 else [])
        clock.tick("1m")
    [run] = cron.history("long")
    assert (run.started_at, run.ms, run.attempt) == (START + timedelta(seconds=10), 3000, 1)
    assert run.scheduled_for == START
    [status] = cron.overview()
    assert (status.counters["runs"], status.counters["late"]) == (1, 0)
    assert (status.counters["lateness"], status.counters["most_lateness"]) == (10, 10)
    assert not [name for name in status.counters if "slice" in name or "goes_on" in name]


@both
def test_the_next_run_begins_anew(add: Add, cron: LazyCron, clock: ManualClock) -> None:
    """A success clears the progress, and its slices are not the next run's."""
    seen: list[object] = []
    add(cron, clock, seen)
    cron.sync()
    for _ in range(4):
        cron.run_due(budget=SECOND)
    assert row_of(cron._parts.store.engine, "long")["progress"] is None
    clock.tick("1h")
    assert [run.status for run in cron.run_due(budget=Budget(5, 60)).runs] == ["ok"]
    assert seen == [0, 1, 2, 0, 1, 2]
    assert [run.ms for run in cron.history("long")] == [3000, 3000]


def test_a_job_is_paused_too_and_its_result_is_found(cron: LazyCron, clock: ManualClock) -> None:
    """What a generator returns is its result, what it says last its message."""

    @cron.task
    def work(run: Run, number: int) -> Generator[int, None, dict[str, int]]:
        total = run.progress or 0
        for _ in range(total, number):
            clock.tick()
            total += 1
            yield total
        return {"total": total}

    job = work.enqueue(3)
    assert job.id is not None
    found = []
    while cron.jobs():
        cron.run_due(budget=SECOND)
        found.append(cron.result(job.id).status)
    assert found == ["waiting", "waiting", "waiting", "ok"]
    assert cron.result(job.id).value == {"total": 3}
    assert len(cron.history()) == 1


def test_a_generators_last_text_is_its_message(cron: LazyCron) -> None:
    """Unless it returns another."""

    @cron.task(name="one")
    def one() -> Iterator[str]:
        yield "first"
        yield "last"

    @cron.task(name="two")
    async def two() -> AsyncIterator[object]:
        yield "said"
        yield None

    @cron.task(name="three")
    def three() -> Generator[str, None, str]:
        yield "first"
        return "returned"

    for task in (one, two, three):
        task.enqueue()
    assert [run.message for run in cron.run_due().runs] == ["last", "said", "returned"]


def test_a_generator_may_postpone_itself(cron: LazyCron, clock: ManualClock) -> None:
    """Raised or returned; its progress stays."""
    seen = []

    @cron.task
    def work(run: Run, how: str) -> Generator[int, None, Postpone | None]:
        seen.append((how, run.progress))
        if run.progress is None:
            yield 1
            if how == "raised":
                raise Postpone(60, reason="not yet")
            return Postpone("1m", reason="not yet")
        return None

    work.enqueue("raised")
    work.enqueue("returned")
    assert [run.status for run in cron.run_due().runs] == ["postponed", "postponed"]
    clock.tick("1m")
    assert [run.status for run in cron.run_due().runs] == ["ok", "ok"]
    assert seen == [("raised", None), ("returned", None), ("raised", 1), ("returned", 1)]


def test_a_paused_generator_is_closed(cron: LazyCron, clock: ManualClock) -> None:
    """So that what it holds is let go at once."""
    closed = []

    @cron.task
    def sync() -> Iterator[int]:
        try:
            for n in range(10):
                clock.tick()
                yield n
        finally:
            closed.append("sync")

    @cron.task(name="async")
    async def async_() -> AsyncIterator[int]:
        try:
            for n in range(10):
                clock.tick()
                yield n
        finally:
            closed.append("async")

    for task in (sync, async_):
        job = task.enqueue()
        assert cron.run_due(budget=Budget(1, 1)).runs[0].status == "paused"
        cron.discard_job(job.id or 0)
    assert closed == ["sync", "async"]


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────


BAD: list[tuple[object, str]] = [
    (object(), "the checkpoint is a builtins.object, <object"),
    ({1, 2}, "the checkpoint is a builtins.set, {1, 2}; a checkpoint may be text, numbers"),
    ({3: "page"}, "the checkpoint has the key 3, which is not a text"),
    ({"at": [Status.OK]}, "the checkpoint['at'][0] is a lazycron.model.settle.Status"),
    (float("nan"), "which JSON cannot express"),
    ("x" * 65_535, "the checkpoint takes 65537 bytes as JSON, more than 65536"),
    (10**5000, "more than 4300 digits"),
]


@pytest.mark.parametrize(("value", "said"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("how", ["call", "await", "yield", "async yield"])
def test_a_checkpoint_that_cannot_be_stored_is_an_error_at_that_line(
    how: str, value: object, said: str, cron: LazyCron
) -> None:
    """Where the task can see it, and go on."""
    caught = []

    @cron.task(name="call")
    def call(run: Run) -> None:
        try:
            run.checkpoint(value)
        except ArgumentsError as error:
            caught.append(str(error))
        run.checkpoint("good")
        raise LookupError

    @cron.task(name="await")
    async def await_(run: Run) -> None:
        try:
            await run.acheckpoint(value)
        except ArgumentsError as error:
            caught.append(str(error))
        await run.acheckpoint("good")
        raise LookupError

    @cron.task(name="yield")
    def yield_() -> Iterator[object]:
        try:
            yield value
        except ArgumentsError as error:
            caught.append(str(error))
        yield "good"
        raise LookupError

    @cron.task(name="async yield")
    async def async_yield() -> AsyncIterator[object]:
        try:
            yield value
        except ArgumentsError as error:
            caught.append(str(error))
        yield "good"
        raise LookupError

    cron.enqueue(how)
    assert cron.run_due().runs[0].message.startswith("LookupError")
    [message] = caught
    assert said in message
    assert cron.jobs()[0].progress == "good"


@pytest.mark.parametrize("count", [-1, 1.5, "1", True, 2**63])
def test_done_and_total_are_whole_numbers(count: int, cron: LazyCron) -> None:
    """An error at that line too."""

    @cron.task
    def work(run: Run) -> None:
        run.checkpoint(1, done=3, total=2**63 - 1)
        for counts in ({"done": count}, {"total": count}):
            with pytest.raises(ValueError, match="pass a whole number from 0 up"):
                run.checkpoint(2, **counts)
        [job] = cron.jobs()
        assert (job.progress, job.done, job.total) == (1, 3, 2**63 - 1)

    work.enqueue()
    assert [run.status for run in cron.run_due().runs] == ["ok"]


def test_overview_shows_the_progress_of_rows_and_of_jobs(cron: LazyCron) -> None:
    """Of a running job, else of the oldest that has any."""
    seen = []

    def look(run: Run) -> None:
        run.checkpoint({"at": 5}, done=5, total=10)
        [status] = [one for one in cron.overview() if one.name == run.task]
        seen.append((status.running, status.progress, status.progress_done, status.progress_total))

    cron.task(every="1h", first_run=0, name="recurring")(look)
    cron.task(name="job")(look)
    cron.sync()
    cron.enqueue("job")
    assert [run.status for run in cron.run_due().runs] == ["ok", "ok"]
    assert seen == [(True, {"at": 5}, 5, 10)] * 2


def test_a_checkpoint_renews_the_lease_until_the_time_out(
    cron: LazyCron, engine: Engine, clock: ManualClock
) -> None:
    """Past it progress is kept, but the lease runs out: a second run may come."""
    ends = []

    @cron.task(every="1h", first_run=0, lease="5m", timeout="2m")
    def work(run: Run) -> None:
        for n in range(4):
            run.checkpoint(n)
            row = row_of(engine, "work")
            assert row["progress"] == str(n)
            ends.append((row["next_run_at"] - START).total_seconds())
            clock.tick("1m")

    cron.sync()
    cron.run_due()
    assert ends == [300, 360, 360, 360]


def test_a_checkpoint_of_a_lost_run_says_so(cron: LazyCron, engine: Engine) -> None:
    """By a call, or at the yield; it changes nothing any more."""
    caught = []

    @cron.task(every="1h", first_run=0, name="call")
    def call(run: Run) -> None:
        run.checkpoint(1)
        assert cron.release("call", force=True)
        with pytest.raises(LeaseLostError):
            run.checkpoint(2)
        assert run.should_stop()
        caught.append("call")

    @cron.task(every="1h", first_run=0, name="yield")
    def yield_() -> Iterator[int]:
        yield 1
        assert cron.release("yield", force=True)
        with pytest.raises(LeaseLostError):
            yield 2
        caught.append("yield")

    cron.sync()
    for name in ("call", "yield"):
        result = cron.run_now(name)
        assert result is not None
        assert result.status == "lost"
        assert row_of(engine, name)["progress"] == "1"
    assert caught == ["call", "yield"]


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────


def long_work(cron: LazyCron, each: int, ends: Callable[[int], None], seen: list[int]) -> None:
    """Register the work through 10,000 records, with a checkpoint after each so many."""

    @cron.task(lease=LEASE)
    def work(run: Run) -> Iterator[int]:
        for n in range(run.progress or 0, 10_000):
            seen.append(n)
            if (n + 1) % each == 0:
                yield n + 1
                ends(n + 1)


def die_at(wire: Wire, url: str, folder: str, at: int, each: int) -> None:
    """Say when the checkpoint of this record is stored, and wait to be killed."""
    cron = LazyCron(url, state_file=f"{folder}/state.json", clock=ManualClock(START))

    def ends(n: int) -> None:
        if n >= at:
            wire.halt_here("here")

    long_work(cron, each, ends, [])
    cron.run_due(budget=Budget(1, None))


@pytest.mark.parametrize("at", [1, 9000])
def test_a_run_that_is_killed_goes_on_from_its_last_checkpoint(
    at: int, url: URL, cron: LazyCron, clock: ManualClock, tmp_path: Path
) -> None:
    """Of 9,000 checkpoints, with the long races; else of every hundredth."""
    each = 1 if at == 1 or rounds() > 1 else 100
    seen: list[int] = []
    long_work(cron, 5000, print, seen)
    cron.enqueue("work")
    with Child(die_at, text_of(url), str(tmp_path), at, each) as child:
        child.expect("here")
        child.kill()
    clock.tick(LEASE)
    for _ in range(4):
        clock.tick()
        cron.run_due()
    assert seen == list(range(at, 10_000))
    assert [run.status for run in reversed(cron.history())] == ["lost", "ok"]
    assert cron.jobs() == []


def die_further_on(wire: Wire, url: str, folder: str, now: datetime) -> None:
    """Do ten pieces more, say so, and wait to be killed."""
    cron = LazyCron(url, state_file=f"{folder}/state.json", clock=ManualClock(now))

    @cron.task(lease=LEASE, retry=Retry(limit=2))
    def work(run: Run) -> None:
        for n in range(run.progress or 0, 50):
            run.checkpoint(n + 1)
            if (n + 1) % 10 == 0:
                wire.halt_here("here")

    cron.run_due(budget=Budget(1, None))


def test_a_job_that_is_killed_every_ten_pieces_comes_to_its_end(
    url: URL, cron: LazyCron, clock: ManualClock, tmp_path: Path
) -> None:
    """Its limit is two attempts; but it came further before each of four losses."""
    seen = []

    @cron.task(lease=LEASE, retry=Retry(limit=2))
    def work(run: Run) -> None:
        seen.append(run.progress)

    work.enqueue()
    for _ in range(4):
        with Child(die_further_on, text_of(url), str(tmp_path), clock.now()) as child:
            child.expect("here")
            child.kill()
        for wait in (LEASE, timedelta(seconds=1)):
            clock.tick(wait)
            cron._parts.runner.burial.look(clock.now(), EPOCH)
        [waiting] = cron.jobs("waiting")
        clock.set(max(clock.now(), waiting.run_at))
    assert [run.attempt for run in cron.run_due().runs] == [1]
    assert seen == [40]
    assert [run.status for run in reversed(cron.history("work"))] == ["lost"] * 4 + ["ok"]


def test_a_run_that_is_killed_before_its_first_checkpoint_begins_anew(
    url: URL, cron: LazyCron, clock: ManualClock, tmp_path: Path
) -> None:
    """Nothing is known of how far it came."""
    seen = []
    cron.task(name="poison", lease=LEASE)(lambda: seen.append(1))
    cron.enqueue("poison")
    with Child(die_now, text_of(url), str(tmp_path), START) as child:
        child.expect("here")
        child.kill()
    clock.tick(LEASE)
    for _ in range(4):
        clock.tick()
        cron.run_due()
    assert seen == [1]


@pytest.mark.parametrize(("on_lost", "limit"), [("rerun", 3), ("skip", 5)])
def test_a_job_that_kills_its_process_ends_dead(
    on_lost: OnLost, limit: int, cron: LazyCron, clock: ManualClock, tmp_path: Path
) -> None:
    """After as many losses as its limit, or the first if it must not be repeated."""
    url = cron._parts.store.engine.url
    cron.task(name="poison", lease=LEASE, on_lost=on_lost, retry=Retry(limit=limit))(print)
    others: list[object] = []
    cron.task(name="other")(others.append)
    job = cron.enqueue("poison")
    kills = 0
    while not cron.jobs("dead"):
        with Child(die_now, text_of(url), str(tmp_path), clock.now()) as child:
            child.expect("here")
            child.kill()
        kills += 1
        clock.tick(LEASE)
        cron.enqueue("other", kills)
        for _ in range(2):
            # Buried, and not run: this process would live, the job's next due time is later.
            clock.tick()
            cron._parts.runner.burial.look(clock.now(), START)
        if waiting := cron.jobs("waiting"):
            due = [one.run_at for one in waiting if one.task == "poison"]
            clock.set(max([clock.now(), *due]) + timedelta(seconds=1))
    assert kills == (limit if on_lost == "rerun" else 1)
    [dead] = cron.jobs("dead")
    assert (dead.id, dead.attempts) == (job.id, kills)
    drain(cron)
    assert others == list(range(1, kills + 1))
    assert cron.result(job.id or 0).status == "dead"
    assert [run.status for run in cron.history("poison")] == ["lost"] * kills


def die_now(wire: Wire, url: str, folder: str, now: datetime) -> None:
    """Run the poison at a moment, and wait to be killed."""
    cron = LazyCron(url, state_file=f"{folder}/state.json", lease=LEASE, clock=ManualClock(now))
    cron.task(name="poison")(lambda: wire.halt_here("here"))
    cron.run_due()
    wire.say("nothing was due")
