"""How a job is wished for, and what becomes of one: done, postponed, dead, retried, discarded."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import URL, Engine, update

from lazycron import Budget, LazyCron, Postpone, Retry, Run
from lazycron.errors import (
    ArgumentsError,
    BusyError,
    ConfigurationError,
    KeyTakenError,
    NotInstalledError,
    ScheduleError,
    UnknownTaskError,
)
from lazycron.model.job import Job, Wish, to_wish
from lazycron.schema import metadata, scheduled_task
from lazycron.testing import ManualClock, drain
from tests.conftest import START, MakeCron
from tests.processes import Child, Wire
from tests.tables import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

ALL = Budget(None, None)


def ids(jobs: list[Job]) -> list[int | None]:
    """Return the jobs' ids."""
    return [job.id for job in jobs]


def run_all(cron: LazyCron) -> list[tuple[int | None, str]]:
    """Tick once, and say what ran."""
    return [(run.job_id, run.status) for run in cron.run_due(budget=ALL).runs]


# ── the wish ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", ["", " a", "a ", "a\n", "\x00", "x" * 192, 5, b"a", "\ud800"])
def test_a_key_that_is_no_printable_text_is_refused(key: object) -> None:
    """1 to 191 characters, no blanks at either end."""
    with pytest.raises(ArgumentsError, match=r"pass 1 to 191 printable characters"):
        to_wish(Wish(), key=key)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["a", "x" * 191, "Größe 猫 😀", "%", "a'b\"c\\"])
def test_any_printable_text_is_a_key(key: str) -> None:
    """Of any language."""
    assert to_wish(Wish(), key=key).key == key


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"delay": -1}, ScheduleError, "^delay -1"),
        ({"delay": "soon"}, ScheduleError, "^delay 'soon'"),
        ({"run_at": datetime(2026, 1, 1)}, ValueError, "no time zone"),  # noqa: DTZ001
        ({"run_at": datetime(1969, 1, 1, tzinfo=UTC)}, ScheduleError, "from 1970 to 9000"),
        ({"run_at": datetime(9999, 1, 1, tzinfo=UTC)}, ScheduleError, "from 1970 to 9000"),
        ({"run_at": "noon"}, TypeError, "is not a moment"),
        ({"delay": 1, "run_at": START}, ConfigurationError, "exclude each other"),
        ({"connection": 1, "on_commit": print}, ConfigurationError, "exclude each other"),
        ({"on_commit": 1}, ConfigurationError, "takes a callback"),
        ({"on_conflict": "merge"}, ConfigurationError, '"keep", "replace" or "raise"'),
        ({"on_conflict": []}, ConfigurationError, '"keep", "replace" or "raise"'),
    ],
    ids=str,
)
def test_a_wish_that_cannot_be_meant_is_refused_with_what_is_accepted(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    """At `using`, before anything is written."""
    with pytest.raises(error, match=said):
        to_wish(Wish(), **options)


def test_a_wish_is_kept_by_what_is_wished_for_later() -> None:
    """And what excludes it is found out, whenever it comes."""
    wish = to_wish(to_wish(Wish(), key="k", delay="1m"), on_conflict="replace")
    assert (wish.key, wish.delay, wish.on_conflict) == ("k", timedelta(minutes=1), "replace")
    with pytest.raises(ConfigurationError, match="exclude each other"):
        to_wish(wish, run_at=START)


# ── done ─────────────────────────────────────────────────────────────────────────────────────────


def test_of_two_jobs_the_sooner_due_is_first_then_the_one_that_was_enqueued_first(
    cron: LazyCron,
) -> None:
    """Due time, then id."""
    ran: list[object] = []
    cron.task(name="note")(ran.append)
    cron.using("note", run_at=START - timedelta(seconds=1)).enqueue("second")
    cron.using("note", run_at=START - timedelta(seconds=2)).enqueue("first")
    cron.enqueue("note", "third")
    cron.enqueue("note", "fourth")
    assert len(cron.run_due(budget=ALL).runs) == 4
    assert ran == ["first", "second", "third", "fourth"]


def test_a_job_runs_once_though_ticked_twice(cron: LazyCron, clock: ManualClock) -> None:
    """Its row goes, its run stays."""
    ran: list[object] = []
    cron.task(name="note")(ran.append)
    job = cron.enqueue("note", 1)
    assert run_all(cron) == [(job.id, "ok")]
    clock.tick("1d")
    assert run_all(cron) == []
    assert ran == [1]
    assert cron.jobs() == []
    [run] = cron.history("note")
    assert (run.job_id, run.status, run.key, run.attempt) == (job.id, "ok", None, 1)


def test_a_job_is_not_run_before_its_time(cron: LazyCron, clock: ManualClock) -> None:
    """A delay, or a moment."""
    ran: list[object] = []
    cron.task(name="note")(ran.append)
    later = cron.using("note", delay="1h").enqueue("later")
    cron.using("note", run_at=START + timedelta(minutes=30)).enqueue("sooner")
    assert later.run_at == START + timedelta(hours=1)
    assert [job.args for job in cron.jobs()] == [("sooner",), ("later",)]
    assert run_all(cron) == []
    clock.tick("30m")
    assert len(run_all(cron)) == 1
    clock.tick("30m")
    assert len(run_all(cron)) == 1
    assert ran == ["sooner", "later"]


def test_a_result_is_found_by_the_jobs_id_after_its_row_is_gone(cron: LazyCron) -> None:
    """A text is the value and the message; too large is said, not kept."""

    @cron.task
    def give(value: int) -> object:
        return {1: None, 2: "said", 3: {"a": (1,)}, 4: "x" * 1000, 5: ["x" * 70_000]}[value]

    jobs = [give.enqueue(n) for n in range(1, 6)]
    assert [cron.result(job.id or 0).status for job in jobs] == ["waiting"] * 5
    drain(cron)
    results = [cron.result(job.id or 0) for job in jobs]
    assert {result.status for result in results} == {"ok"}
    assert {result.error for result in results} == {None}
    values = [None, "said", {"a": (1,)}, "x" * 1000, None]
    assert [result.value for result in results] == values
    assert [result.message for result in results[:3]] == ["Done.", "said", "Done."]
    assert "(1000 characters in all)" in (results[3].message or "")
    assert "The result was not stored: the result takes" in (results[4].message or "")
    assert cron.result(10**9).status == "unknown"


def give_result(wire: Wire, url: str, folder: str) -> None:
    """Be the process that runs the job."""
    cron = LazyCron(url, state_file=f"{folder}/state.json", clock=ManualClock(START))

    @cron.task
    def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    wire.say("ran", [run.status for run in cron.run_due().runs])
    cron.close()


def test_a_result_is_seen_from_another_process(url: URL, cron: LazyCron, tmp_path: Path) -> None:
    """Which enqueued the job, and did not run it."""
    cron.task(name="add")(divmod)
    job = cron.enqueue("add", 2, 3)
    with Child(give_result, text_of(url), str(tmp_path)) as child:
        assert child.expect("ran") == ["ok"]
        child.end()
    assert job.id is not None
    assert cron.jobs() == []
    assert cron.result(job.id).value == {"sum": 5}


def test_an_id_is_never_given_twice(url: URL, make_cron: MakeCron) -> None:
    """Not after the row is gone, not after a restart: results and idempotency keys hang on it."""
    seen: list[int | None] = []
    for _ in range(3):
        cron = make_cron(url)
        cron.task(name="note")(lambda: None)
        seen += [cron.enqueue("note").id, cron.using("note", key="k").enqueue().id]
        drain(cron)
        assert cron.jobs() == []
        cron.close()
    assert len(set(seen)) == 6
    assert seen == sorted(seen, key=lambda one: one or 0)


# ── postponed, failed, dead ──────────────────────────────────────────────────────────────────────


def test_a_job_that_waits_for_its_precondition_uses_up_no_attempt(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Postponed ten times with a limit of two; counted, its reason shown, and never late."""
    holds = False

    @cron.task(retry=Retry(limit=2))
    def wait() -> Postpone | None:
        return None if holds else Postpone("10m", reason="the other is not there yet")

    job = wait.enqueue()
    for _ in range(10):
        assert run_all(cron) == [(job.id, "postponed")]
        assert run_all(cron) == []
        clock.tick("10m")
    [waiting] = cron.jobs("waiting")
    assert (waiting.message, waiting.attempts) == ("the other is not there yet", 0)
    holds = True
    assert run_all(cron) == [(job.id, "ok")]
    [status] = cron.overview()
    found = {name: status.counters[name] for name in ("postponed", "ok", "retries", "late")}
    assert found == {"postponed": 10, "ok": 1, "retries": 0, "late": 0}


def kill_after(cron: LazyCron, clock: ManualClock, attempts: int) -> list[float]:
    """Let a job fail until it is dead; return the seconds between its attempts."""
    waits = []
    for number in range(1, attempts + 1):
        [(_, status)] = run_all(cron)
        assert status == "failed"
        if number < attempts:
            [waiting] = cron.jobs("waiting")
            waits.append((waiting.run_at - clock.now()).total_seconds())
            clock.set(waiting.run_at)
    return waits


def test_a_job_that_has_used_up_its_attempts_is_dead_kept_listed_and_counted(
    cron: LazyCron, clock: ManualClock
) -> None:
    """Five by default, with 60, 120, 240 and 480 seconds in between; never run again by itself."""

    @cron.task
    def fail(n: int) -> None:
        raise ValueError(n)

    job = fail.using(key="k").enqueue(3)
    assert kill_after(cron, clock, 5) == [60, 120, 240, 480]
    clock.tick("1d")
    assert run_all(cron) == []
    [dead] = cron.jobs("dead")
    assert (dead.id, dead.key, dead.args, dead.attempts) == (job.id, "k", (3,), 5)
    assert dead.message is not None
    assert dead.message.startswith("ValueError: 3 (test_jobs.py:")
    assert cron.jobs("waiting") == cron.jobs("running") == []
    result = cron.result(dead.id or 0)
    assert (result.status, result.value, result.error) == ("dead", None, dead.message)
    [status] = cron.overview()
    assert status.counters["jobs_dead"] == 1
    assert (status.counters["failures"], status.counters["retries"]) == (5, 4)
    assert cron.state().next is None


def test_a_dead_job_gives_its_key_up(cron: LazyCron, clock: ManualClock) -> None:
    """Or nobody could enqueue another one."""
    fails = True

    @cron.task(retry=Retry(limit=1))
    def work(n: int) -> None:
        if fails:
            raise ValueError(n)

    first = work.using(key="k").enqueue(1)
    kill_after(cron, clock, 1)
    second = work.using(key="k").enqueue(2)
    assert second.created
    assert second.id != first.id
    assert set(ids(cron.jobs())) == {first.id, second.id}

    # Its own key is somebody else's now.
    with pytest.raises(KeyTakenError, match=f"'k' of work is held by job {second.id}.*waiting"):
        cron.retry_job(first.id or 0)
    fails = False
    assert run_all(cron) == [(second.id, "ok")]
    again = cron.retry_job(first.id or 0)
    assert (again.key, again.attempts, again.status) == ("k", 0, "waiting")
    assert not work.using(key="k").enqueue(3).created
    assert run_all(cron) == [(first.id, "ok")]
    assert cron.jobs() == []


def test_a_retried_job_has_all_its_attempts_again(cron: LazyCron, clock: ManualClock) -> None:
    """And goes on from its last checkpoint, under its own idempotency key."""
    seen = []

    @cron.task(retry=Retry(limit=2))
    def work(run: Run) -> None:
        seen.append((run.attempt, run.progress, run.idempotency_key))
        run.checkpoint(len(seen))
        raise ValueError

    job = work.enqueue()
    kill_after(cron, clock, 2)
    assert cron.retry_job(job.id or 0).run_at == clock.now()
    kill_after(cron, clock, 2)
    assert [one[:2] for one in seen] == [(1, None), (2, 1), (1, 2), (2, 3)]
    assert len({one[2] for one in seen}) == 1
    assert cron.jobs("dead") != []


def test_only_a_dead_job_can_be_retried_and_only_a_job(cron: LazyCron) -> None:
    """Recurring rows and unknown ids are no jobs."""
    cron.task(every="1h", name="hourly")(lambda: None)
    cron.task(name="work")(lambda: None)
    cron.sync()
    job = cron.enqueue("work")
    with pytest.raises(BusyError, match=f"job {job.id} of work is waiting, not dead"):
        cron.retry_job(job.id or 0)
    row = cron._parts.store.recurring.of("hourly")
    assert row is not None
    for wrong in ("1", True, None, 0, 2**63):
        with pytest.raises(UnknownTaskError, match="whole number from 1 up"):
            cron.result(wrong)  # type: ignore[arg-type]
    for wrong in (row.id, 10**9, "1", True, None, 0, 2**63):
        for verb in (cron.retry_job, cron.discard_job):
            with pytest.raises(UnknownTaskError):
                verb(wrong)  # type: ignore[arg-type]


def test_a_job_is_discarded_unless_it_runs(cron: LazyCron, clock: ManualClock) -> None:
    """Waiting and dead ones; a running one says so."""
    tried = []

    @cron.task(retry=Retry(limit=1))
    def work(run: Run) -> None:
        try:
            cron.discard_job(run.id)
        except BusyError as error:
            tried.append(str(error))
        raise ValueError

    dead = work.enqueue()
    kill_after(cron, clock, 1)
    [said] = tried
    assert said.startswith(f"job {dead.id} of work is running; discard it once it has ended")
    assert f"`lazycron release --job {dead.id}`" in said
    waiting = work.using(delay="1h").enqueue()
    for job in (dead, waiting):
        cron.discard_job(job.id or 0)
        with pytest.raises(UnknownTaskError, match="any more"):
            cron.discard_job(job.id or 0)
    assert cron.jobs() == []
    assert cron.state().next is None


@pytest.mark.parametrize("limit", [1, 2])
def test_a_running_job_is_released_by_force_and_its_loss_is_an_attempt(
    cron: LazyCron, clock: ManualClock, limit: int
) -> None:
    """It runs again, or is dead after its last; the end of the run that hung changes nothing."""
    seen = []

    @cron.task(retry=Retry(limit=limit))
    def work(run: Run) -> None:
        seen.append(run.attempt)
        if len(seen) == 1:
            with pytest.raises(BusyError, match=rf"job {run.id} of work is running in .* lately"):
                cron.release_job(run.id)
            assert cron.release_job(run.id, force=True)
            assert not cron.release_job(run.id, force=True)

    job = work.enqueue()
    assert not cron.release_job(job.id or 0)
    assert [run.status for run in cron.run_due().runs] == []
    assert [run.status for run in cron.history("work")] == ["lost"]
    assert [one.status for one in cron.jobs()] == (["dead"] if limit == 1 else ["waiting"])
    clock.tick("1s")
    cron.run_due()
    assert seen == [1, 2][:limit]
    with pytest.raises(UnknownTaskError, match="no job has the id 999"):
        cron.release_job(999)


def test_an_unknown_wish_is_named_with_those_there_are(cron: LazyCron) -> None:
    """As a misspelt keyword of any function."""
    work = cron.task(name="work")(lambda: None)
    with pytest.raises(TypeError, match=r"using\(\) takes no dely, kee; there are key, delay, run"):
        work.using(dely="1h", kee="k")


@pytest.mark.parametrize("schedule", [{"every": "1h"}, {}], ids=["scheduled", "only enqueued"])
def test_why_tells_of_a_tasks_jobs(cron: LazyCron, schedule: dict[str, Any]) -> None:
    """Whether it has a schedule too or not."""
    work = cron.task(name="work", **schedule)(lambda: None)
    cron.sync()
    assert "it has jobs" not in str(cron.why("work"))
    work.using(delay="1m").enqueue()
    assert "it has jobs: 1 waiting, the first due at 2026-01-01" in str(cron.why("work"))


def test_jobs_are_listed_by_what_they_are_doing(cron: LazyCron) -> None:
    """Seen from within a run as well."""
    seen = []

    @cron.task
    def work(name: str) -> str:
        seen.append({s: [job.args for job in cron.jobs(s)] for s in ("waiting", "running")})
        return name

    work.enqueue("a")
    work.using(delay="1h").enqueue("b")
    run_all(cron)
    assert seen == [{"waiting": [("b",)], "running": [("a",)]}]
    with pytest.raises(ConfigurationError, match="pass one of waiting, running, dead"):
        cron.jobs("gone")
    for limit in (0, True, "5"):
        with pytest.raises(ValueError, match="whole number from 1 up"):
            cron.jobs(limit=limit)  # type: ignore[arg-type]
    assert len(cron.jobs(limit=1)) == 1


# ── rows that somebody else has made ─────────────────────────────────────────────────────────────


def test_jobs_of_a_task_that_nobody_knows_wait_for_their_code(
    url: URL, make_cron: MakeCron, clock: ManualClock
) -> None:
    """First in line, they keep nobody waiting; they are listed, and never forgotten."""
    newer = make_cron(url)
    newer.task(name="new")(lambda: None)
    job = newer.using("new", run_at=START - timedelta(days=1)).enqueue()
    older = make_cron(url)
    ran: list[object] = []
    older.task(name="old")(ran.append)
    for n in range(3):
        older.enqueue("old", n)
        assert len(run_all(older)) == 1
        clock.tick("10d")
    assert ran == [0, 1, 2]
    assert [(one.name, one.known) for one in older.overview()] == [("new", False), ("old", True)]
    assert ids(older.jobs("waiting")) == [job.id]
    assert older.run_due().decisions["new"].verdict == "unbound"
    assert run_all(newer) == [(job.id, "ok")]


@pytest.mark.parametrize("text", ["{", "[]", "5", '{"args": [{"$": "no"}]}', '{"args": 5}', None])
def test_arguments_that_a_hand_has_made_unreadable_are_one_jobs_failure(
    text: str | None, cron: LazyCron, engine: Engine
) -> None:
    """It is listed, and the others run."""
    ran: list[object] = []
    cron.task(name="note", retry=Retry(limit=1))(ran.append)
    broken = cron.enqueue("note", 1)
    cron.enqueue("note", 2)
    with engine.begin() as connection:
        found = scheduled_task.c.id == broken.id
        connection.execute(update(scheduled_task).where(found).values(arguments=text))
    assert len(cron.jobs()) == 2
    assert [status for _, status in run_all(cron)] == ["failed", "ok"]
    assert ran == [2]
    assert ids(cron.jobs("dead")) == [broken.id]


def test_verbs_about_jobs_say_that_the_tables_are_missing(
    cron: LazyCron, engine: Engine, url: URL, make_cron: MakeCron
) -> None:
    """Never there, or dropped under this process."""
    if engine.dialect.name != "sqlite":
        pytest.skip("the servers' tables are shared by the tests of this run")
    cron.task(name="note")(lambda: None)
    cron.enqueue("note")
    metadata.drop_all(engine)
    stranger = make_cron(url, create_tables=False)
    stranger.task(name="note")(lambda: None)
    verbs: tuple[Callable[[LazyCron], object], ...] = (
        lambda one: one.enqueue("note"),
        lambda one: one.jobs(),
        lambda one: one.result(1),
        lambda one: one.retry_job(1),
        lambda one: one.discard_job(1),
        lambda one: one.release_job(1),
        lambda one: one.once("key").__enter__(),
    )
    for verb in verbs:
        with pytest.raises(NotInstalledError):
            verb(stranger)
    parts = cron._parts
    for verb in verbs:
        parts.facts.installed = True
        with pytest.raises(NotInstalledError):
            verb(cron)
