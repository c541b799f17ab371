"""LazyCron: the object that an app holds; each verb calls one function with its parts."""

import asyncio
import os
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, Unpack, overload

from sqlalchemy import URL, Engine

from lazycron.clock import Clock
from lazycron.durations import Duration, to_duration
from lazycron.errors import ConfigurationError
from lazycron.executors.bridge import in_a_new_loop, on_loop
from lazycron.model.job import Job, JobResult, Using
from lazycron.model.once import AsyncOnce, Once, OnceKey
from lazycron.model.registry import Registry
from lazycron.model.report import Budget, RunResult, TickReport, Trigger
from lazycron.model.retry import Retry
from lazycron.model.settle import OnLost
from lazycron.model.task import FirstRun, Missed, OnlyOn, Task, TaskOptions, make_task, to_schedule
from lazycron.schedules.shaped import Crontab, Schedule
from lazycron.settings import CRON_TOKEN, HEALTH_TOKEN, Settings, changed, check_settings
from lazycron.statefile import State
from lazycron.store import RunRecord, Store
from lazycron.store.driver.source import check_database
from lazycron.tick.why import Explanation
from lazycron.verbs import check, enqueue, jobs, once, operator, overview, read, release, run
from lazycron.verbs.base import Moment, Name, refuse_in_loop, to_name
from lazycron.verbs.check import Problem
from lazycron.verbs.overview import TaskStatus
from lazycron.wiring import Edge, Parts, PerProcess, who_we_are, wire


class LazyCron:
    """Scheduled work for an app without cron and without a worker process.

    Making one does no I/O and starts no thread; the parts are wired at the first use in each
    process, and again after a fork. A bad setting raises ConfigurationError or ScheduleError,
    which name the value and what is accepted.
    """

    def __init__(
        self,
        database: str | URL | Engine | None = None,
        *,
        secret: str | Sequence[str] | None = None,
        state_file: str | os.PathLike[str] | None = None,
        budget: Budget = Budget(),  # noqa: B008 - frozen
        lease: Duration = "5m",
        retry: Retry = Retry(),  # noqa: B008 - frozen
        tz: str = "UTC",
        keep_runs: int = 100,
        keep_age: Duration = "30d",
        create_tables: bool | None = None,
        drain: Duration = "10s",
        enabled: bool | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._registry = Registry()
        self._given: dict[str, Any] = {
            "secret": secret,
            "state_file": state_file,
            "budget": budget,
            "lease": lease,
            "retry": retry,
            "tz": tz,
            "keep_runs": keep_runs,
            "keep_age": keep_age,
            "create_tables": create_tables,
            "drain": drain,
            "enabled": enabled,
            "clock": clock,
        }
        self._source = check_database(database)
        self._settings = check_settings(**self._given)
        self._edge = Edge()
        self._held = PerProcess(self._wire)
        self._enqueuer = enqueue.enqueuer_of(self._held.get)
        self._once = partial(once.once, self._held.get)
        self._aonce = partial(once.aonce, self._held.get)

    def configure(self, database: str | URL | Engine | None = None, **settings: Any) -> None:
        """Set what was not known at import, before the first use; takes what LazyCron() takes.

        Other settings stay as they were. Raises ConfigurationError, also after the first use.
        """
        if self.is_used:
            message = "configure() came after the first use; call it before any request or tick"
            raise ConfigurationError(message)
        given = changed(self._given, {"state_file": self._settings.state_file} | settings)
        checked = check_settings(**given)
        if database is not None:
            self._source = check_database(database)
        self._given, self._settings = given, checked
        self._registry.configure(checked.retry, checked.tz)

    @property
    def settings(self) -> Settings:
        """The checked settings."""
        return self._settings

    @property
    def registry(self) -> Registry:
        """The tasks this process knows."""
        return self._registry

    @property
    def is_used(self) -> bool:
        """Whether this LazyCron has been used in this process."""
        return self._held.held() is not None

    @property
    def _parts(self) -> Parts:
        return self._held.get()

    def _wire(self) -> Parts:
        return wire(
            settings=self._settings,
            registry=self._registry,
            edge=self._edge,
            store=Store(self._source.open(), who_we_are()),
            once=self._once,
            aonce=self._aonce,
        )

    # tasks

    @overload
    def task(self, function: Callable[..., Any], /) -> Task: ...

    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Callable[[Callable[..., Any]], Task]: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        every: Duration | None = None,
        crontab: str | None = None,
        schedule: Schedule | None = None,
        tz: str | None = None,
        name: str | None = None,
        label: str | None = None,
        explanation: str | None = None,
        first_run: FirstRun = None,
        enabled: bool = True,
        retry: Retry | None = None,
        lease: Duration | None = None,
        on_lost: OnLost = "rerun",
        timeout: Duration | None = None,
        missed: Missed = "once",
        grace: Duration | None = None,
        jitter: Duration | None = None,
        between: str | None = None,
        only_on: OnlyOn = None,
    ) -> Task | Callable[[Callable[..., Any]], Task]:
        """Register a function as a task, as a decorator with or without options.

        `every`, `crontab` and `schedule` exclude each other; without one the task is only
        enqueued. `first_run` None is one interval after its row is made, "soon" two minutes.
        `enabled` is only the first value; operators may change it. `between` holds the
        schedule to a window such as "02:00-05:00" in the zone `tz`, `jitter` spreads it,
        `missed="skip"` skips a run that is later than `grace`, and `only_on` names the triggers
        that may run it. Raises ScheduleError, ConfigurationError and DuplicateTaskError.
        """
        due = to_schedule(
            every, crontab, schedule, tz, self._settings.tz, between=between, jitter=jitter
        )
        own_zone = tz is not None or isinstance(schedule, Crontab)
        without = ["retry"] * (retry is None) + ["tz"] * (not own_zone)

        def register(function: Callable[..., Any]) -> Task:
            made = make_task(
                function,
                schedule=due,
                name=name,
                label=label,
                explanation=explanation,
                first_run=first_run,
                enabled=enabled,
                retry=self._settings.retry if retry is None else retry,
                lease=lease,
                on_lost=on_lost,
                timeout=timeout,
                missed=missed,
                grace=grace,
                only_on=only_on,
                enqueuer=self._enqueuer,
            )
            self._registry.add(made, without=without)
            return made

        return register if function is None else register(function)

    # looking and running

    def run_due(
        self, trigger: Trigger = "manual", *, budget: Budget | None = None, now: Moment = None
    ) -> TickReport:
        """Run due tasks within the budget, in this thread, and report.

        Raises LazyCronError where an event loop runs in this thread, and the database's errors.
        """
        refuse_in_loop("run_due", "await cron.arun_due()")
        return run.run_due(self._parts, trigger, budget, now, in_a_new_loop)

    async def arun_due(
        self, trigger: Trigger = "manual", *, budget: Budget | None = None, now: Moment = None
    ) -> TickReport:
        """Do what `run_due` does in another thread; `async def` tasks run on this loop."""
        bridge = on_loop(asyncio.get_running_loop())
        return await asyncio.to_thread(
            lambda: run.run_due(self._parts, trigger, budget, now, bridge)
        )

    def run_now(
        self, name: Name, *, trigger: Trigger = "manual", now: Moment = None
    ) -> RunResult | None:
        """Run one task now, due or not, enabled or not; None where it is running already.

        Raises UnknownTaskError, NotInstalledError, BusyError where the database is busy, and
        LazyCronError where an event loop runs in the calling thread.
        """
        refuse_in_loop("run_now", "await cron.arun_now(…)")
        return run.run_now(self._parts, name, trigger, now, in_a_new_loop)

    async def arun_now(
        self, name: Name, *, trigger: Trigger = "manual", now: Moment = None
    ) -> RunResult | None:
        """Do what `run_now` does in another thread; an `async def` task runs on this loop."""
        bridge = on_loop(asyncio.get_running_loop())
        return await asyncio.to_thread(lambda: run.run_now(self._parts, name, trigger, now, bridge))

    # jobs

    def enqueue(self, name: Name, /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call of a task, by its name.

        Raises UnknownTaskError, ArgumentsError, BusyError, and LazyCronError where an event loop
        runs in the calling thread.
        """
        return Using(to_name(name), self._enqueuer).enqueue(*args, **kwargs)

    async def aenqueue(self, name: Name, /, *args: Any, **kwargs: Any) -> Job:
        """Do what `enqueue` does, from a coroutine."""
        return await Using(to_name(name), self._enqueuer).aenqueue(*args, **kwargs)

    def using(self, name: Name, **options: Any) -> Using:
        """Set options of a task's next job; see `Task.using`."""
        return Using(to_name(name), self._enqueuer).using(**options)

    def jobs(self, status: str | None = None, limit: int = 100) -> list[Job]:
        """Return jobs, the first due first: all, or the waiting, running or dead ones."""
        return jobs.jobs(self._parts, status, limit)

    def retry_job(self, job_id: int) -> Job:
        """Start a dead job again: due now, with all its attempts, from its last checkpoint.

        Raises UnknownTaskError, BusyError for one that is not dead, and KeyTakenError.
        """
        return jobs.retry_job(self._parts, job_id)

    def release_job(self, job_id: int, *, force: bool = False) -> bool:
        """End a job's claim and record its run as lost; False where it is not running.

        The loss counts as an attempt: the job runs again, or is dead. Raises as `release` does.
        """
        return release.release_job(self._parts, job_id, force=force)

    def discard_job(self, job_id: int) -> None:
        """Delete a waiting or dead job; raises UnknownTaskError, or BusyError for a running one."""
        jobs.discard_job(self._parts, job_id)

    def result(self, job_id: int) -> JobResult:
        """Tell what became of a job, from any process, whether its row is still there or not."""
        return jobs.result(self._parts, job_id)

    # once keys

    def once(self, key: str, *, expires: Duration | None = None, connection: object = None) -> Once:
        """Guard an effect: `with cron.once(key) as first: if first: …`.

        The key is registered before the effect; a second registration is refused and counted. An
        exception gives the key back; a crash keeps it until it `expires` or is released. With
        `connection=` key and effect are in the caller's transaction: both happen or neither.
        Raises ArgumentsError, and LazyCronError where an event loop runs in the calling thread.
        """
        return self._once(key, expires=expires, connection=connection, task=None)

    def aonce(
        self, key: str, *, expires: Duration | None = None, connection: object = None
    ) -> AsyncOnce:
        """Do what `once` does, for `async with`; takes async connections and sessions too."""
        return self._aonce(key, expires=expires, connection=connection, task=None)

    def once_keys(self, *, unfinished: bool = False, limit: int = 100) -> list[OnceKey]:
        """Return once keys, the oldest first: all, or those whose effect was not finished."""
        return once.once_keys(self._parts, unfinished=unfinished, limit=limit)

    def finish_once(self, key: str) -> bool:
        """Note that an unfinished key's effect was done; False where there is no such key."""
        return once.finish_once(self._parts, key)

    def release_once(self, key: str) -> bool:
        """Delete an unfinished key: the effect is the next caller's. False where there is none."""
        return once.release_once(self._parts, key)

    # looking

    def overview(self, now: Moment = None) -> list[TaskStatus]:
        """Return an overview of every task, by name; rows and jobs without code included."""
        return overview.overview(self._parts, now)

    def upcoming(self, name: Name, count: int = 10, now: Moment = None) -> list[datetime]:
        """Return when a task will be due next, in UTC, if each of its runs begins on time.

        An overdue or disabled task counts as run at `now`. Raises UnknownTaskError.
        """
        return read.upcoming(self._parts, name, count, now)

    def zone_of(self, name: Name) -> tzinfo:
        """Return the time zone that a task uses; LazyCron's where zones do not matter."""
        return read.zone_of(self._parts, name)

    def why(self, name: Name, now: Moment = None) -> Explanation:
        """Say why a task is not running now and what would make it run; never raises for that."""
        return read.why(self._parts, name, now)

    def history(self, name: Name | None = None, limit: int = 40) -> list[RunRecord]:
        """Return the newest runs, newest first, of one task or of all."""
        return read.history(self._parts, name, limit)

    def log_tail(self, lines: int = 40) -> list[str]:
        """Return the newest lines of this host's log file, newest first."""
        return read.log_tail(self._parts, lines)

    def state(self) -> State:
        """Return what the state file says, asking the database where it says nothing."""
        return read.state(self._parts)

    def check(self) -> list[Problem]:
        """Return problems and advice, each with what to do; empty if there are none."""
        return check.check(self._parts)

    # managing: a verb that takes a task's name acts on its recurring row

    def sync(self, now: Moment = None) -> bool:
        """Make rows for new tasks and store changed schedules; False if not installed yet."""
        return operator.sync(self._parts, now)

    def enable(self, name: Name) -> None:
        """Let a task run; its row stays due as it was. Raises UnknownTaskError."""
        operator.switch(self._parts, name, enabled=True)

    def disable(self, name: Name) -> None:
        """Keep a task from running; a run under way is finished. Raises UnknownTaskError."""
        operator.switch(self._parts, name, enabled=False)

    def set_interval(self, name: Name, duration: Duration) -> None:
        """Override a task's schedule by an interval, until `reset_schedule`.

        Its window and jitter stay, and the next run is one interval after the last, or at once.
        Takes 60 seconds to 30 days; raises ScheduleError, a ValueError, and UnknownTaskError.
        """
        operator.set_interval(self._parts, name, duration)

    def reset_schedule(self, name: Name) -> None:
        """Remove an operator's interval: the code's schedule applies again, from now on."""
        operator.reset_schedule(self._parts, name)

    def release(self, name: Name, *, force: bool = False) -> bool:
        """End a claim and record its run as lost; False where the row is not claimed.

        A claim renewed within half its lease is very likely alive: raises BusyError unless
        `force`. If its run still goes on, it can no longer change the row.
        """
        return release.release(self._parts, name, force=force)

    def forget(self, name: Name) -> None:
        """Delete the row of a task whose code is gone.

        Raises UnknownTaskError, ConfigurationError for a task this process knows, and BusyError.
        """
        operator.forget(self._parts, name)

    def set_triggers(self, *, traffic: bool | None = None, admin: bool | None = None) -> None:
        """Switch requests on or off as a trigger, for all hosts within a minute.

        `admin` is those on the app's own admin paths. The cron URL, CLI and direct calls still run.
        """
        operator.set_triggers(self._parts, traffic=traffic, admin=admin)

    def prune(self) -> int:
        """Delete runs beyond `keep_runs` and `keep_age`; return how many were deleted."""
        return operator.prune(self._parts)

    def migrate(self) -> None:
        """Bring the database's tables to this version's shape."""
        operator.migrate(self._parts)

    # tokens

    @property
    def cron_token(self) -> str | None:
        """The cron URL's token; None without a secret of at least 16 characters."""
        return next(iter(self.cron_tokens), None)

    @property
    def health_token(self) -> str | None:
        """The token for health checks; None without a secret of at least 16 characters."""
        return next(iter(self._settings.tokens(HEALTH_TOKEN)), None)

    @property
    def cron_tokens(self) -> tuple[str, ...]:
        """Every accepted cron token: the first secret's, then the older ones'."""
        return self._settings.tokens(CRON_TOKEN)

    # ending

    def close(self, *, timeout: Duration | None = None) -> bool:
        """Stop after the run under way, wait for it, and close connections and threads.

        `timeout` None is the `drain` setting. Returns False if a run was still going on then. The
        next use opens everything again. Raises LazyCronError where an event loop runs here.
        """
        refuse_in_loop("close", "await cron.aclose()")
        return self._close(timeout)

    async def aclose(self, app: object = None, /, *, timeout: Duration | None = None) -> bool:  # noqa: ASYNC109 - it waits in a thread
        """Do what `close` does, from a coroutine; as a shutdown hook it ignores the app it gets."""
        del app
        return await asyncio.to_thread(self._close, timeout)

    def _close(self, timeout: Duration | None) -> bool:
        length = self._settings.drain if timeout is None else to_duration(timeout, what="timeout")
        self._edge.let_go()
        return self._held.close(length.total_seconds())


def parts_of(cron: LazyCron) -> Parts:
    """Return the parts of a LazyCron in this process: the only way to them for edges and CLI."""
    return cron._parts  # noqa: SLF001 - the class's own module


def attach(cron: LazyCron, *, wake: Callable[[], None], let_go: Callable[[], None]) -> None:
    """Register an edge's callbacks: something was enqueued, and the LazyCron is closed."""
    cron._edge.wake, cron._edge.let_go = wake, let_go  # noqa: SLF001 - the class's own module
