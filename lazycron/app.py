"""LazyCron: checks the settings once, wires the parts, and is what an app holds in its hand."""

import asyncio
import hashlib
import hmac
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

from sqlalchemy import URL, Engine

from lazycron.clock import Clock, to_moment
from lazycron.durations import Duration, to_duration
from lazycron.errors import (
    ConfigurationError,
    LazyCronError,
)
from lazycron.executors.thread import Bridge, in_a_new_loop, on_loop
from lazycron.model.registry import Registry
from lazycron.model.report import Budget, RunResult, TickReport, Trigger, to_trigger
from lazycron.model.retry import Retry
from lazycron.model.settle import OnLost
from lazycron.model.task import FirstRun, Missed, OnlyOn, Task, make_task, to_schedule
from lazycron.schedules.shaped import Crontab, Schedule, in_zone
from lazycron.settings import Settings, check_settings
from lazycron.store import Store
from lazycron.store.driver.engine import clone_engine, open_engine, to_url
from lazycron.texts import shown
from lazycron.tick.tick import Door
from lazycron.verbs.jobs import Enqueuing
from lazycron.verbs.operator import Moment, Name, to_name
from lazycron.wiring import Edge, Parts, who_we_are, wire

DEFAULT_DATABASE = "sqlite:///lazycron.db"
TOKEN_LENGTH = 40


class LazyCron(Enqueuing):
    """Scheduled work for an app without cron and without a worker process.

    Making one does no I/O and starts no thread; the parts are wired at the first use in each
    process, and again after a fork. API.md's comments on each setting hold; bad ones raise
    ConfigurationError or ScheduleError, which name the value and what is accepted.
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
        self._without_retry: set[str] = set()
        self._without_tz: set[str] = set()
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
        self._database = _check_database(database)
        self._settings = check_settings(**self._given)
        self._edge = Edge()
        self._held: tuple[int, Parts] | None = None
        # Keyed by process: a lock that the parent held at a fork would be held for ever.
        self._locks: dict[int, threading.Lock] = {}

    def configure(self, database: str | URL | Engine | None = None, **settings: Any) -> None:
        """Set what was not known at import, before the first use; takes what LazyCron() takes.

        What is not named stays as it was. Raises ConfigurationError for an unknown setting, and
        once this LazyCron has been used in this process.
        """
        if self._held is not None and self._held[0] == os.getpid():
            message = "configure() came after the first use; call it before any request or tick"
            raise ConfigurationError(message)
        unknown = sorted(set(settings) - set(self._given))
        if unknown:
            message = (
                f"no setting is named {', '.join(unknown)}; there are {', '.join(self._given)}"
            )
            raise ConfigurationError(message)
        given = self._given | settings
        checked = check_settings(**given)
        if database is not None:
            self._database = _check_database(database)
        self._given, self._settings = given, checked
        self._hand_on_defaults()

    def _hand_on_defaults(self) -> None:
        """Give tasks that were registered before the settings came what they left to them."""
        for task in self._registry:
            changed = task
            if task.name in self._without_retry:
                changed = replace(changed, retry=self._settings.retry)
            if task.name in self._without_tz and task.schedule is not None:
                changed = replace(changed, schedule=in_zone(task.schedule, self._settings.tz))
            self._registry.replace(changed)

    # the parts, for the doors and edges

    @property
    def settings(self) -> Settings:
        """The checked settings."""
        return self._settings

    @property
    def registry(self) -> Registry:
        """The tasks this process knows."""
        return self._registry

    @property
    def _parts(self) -> Parts:
        """The parts of this process, wired at the first use."""
        held = self._held
        if held is not None and held[0] == os.getpid():
            return held[1]
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            held = self._held
            if held is None or held[0] != os.getpid():
                store = Store(self._open(), who_we_are())
                held = (os.getpid(), self._wire(store))
                self._held = held
            return held[1]

    def _wire(self, store: Store) -> Parts:
        return wire(
            settings=self._settings,
            registry=self._registry,
            edge=self._edge,
            store=store,
            once=self._once,
            aonce=self._aonce,
        )

    @property
    def is_used(self) -> bool:
        """Whether the parts have been wired in this process."""
        return self._held is not None and self._held[0] == os.getpid()

    def _open(self) -> Engine:
        database = self._database
        if database is None:
            database = _check_database(os.environ.get("LAZYCRON_DATABASE") or DEFAULT_DATABASE)
        if isinstance(database, Engine):
            return clone_engine(database)
        assert database is not None  # noqa: S101 - for the type checker: the default is a URL
        return open_engine(database)

    # tasks

    @overload
    def task(self, function: Callable[..., Any], /) -> Task: ...

    @overload
    def task(
        self,
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
    ) -> Callable[[Callable[..., Any]], Task]: ...

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
        enqueued. `first_run` None means one interval after registration, "soon" two minutes.
        `enabled` is the first value only; afterwards it is the operator's. `between` holds the
        schedule to a window such as "02:00-05:00" in the zone `tz`, `jitter` spreads it,
        `missed="skip"` passes over what is later than `grace`, and `only_on` names the triggers
        that may run it. Raises ScheduleError, ConfigurationError and DuplicateTaskError.
        """
        due = to_schedule(
            every, crontab, schedule, tz, self._settings.tz, between=between, jitter=jitter
        )

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
            self._registry.add(made)
            if retry is None:
                self._without_retry.add(made.name)
            if tz is None and not isinstance(schedule, Crontab):
                self._without_tz.add(made.name)
            return made

        return register if function is None else register(function)

    # looking and running

    def run_due(
        self, trigger: Trigger = "manual", *, budget: Budget | None = None, now: Moment = None
    ) -> TickReport:
        """Run due tasks within the budget, in this thread, and report.

        Raises LazyCronError where an event loop runs in the calling thread, and lets the
        database's errors out.
        """
        _refuse_in_loop("run_due", "await cron.arun_due()")
        return self._run_due(trigger, budget, now, in_a_new_loop)

    async def arun_due(
        self, trigger: Trigger = "manual", *, budget: Budget | None = None, now: Moment = None
    ) -> TickReport:
        """Do what `run_due` does in another thread; `async def` tasks run on this loop."""
        bridge = on_loop(asyncio.get_running_loop())
        return await asyncio.to_thread(self._run_due, trigger, budget, now, bridge)

    def _run_due(
        self, trigger: str, budget: Budget | None, now: Moment, bridge: Bridge
    ) -> TickReport:
        return self._parts.runner.run_due(self._door(trigger, budget, now, bridge))

    def run_now(
        self, name: Name, *, trigger: Trigger = "manual", now: Moment = None
    ) -> RunResult | None:
        """Run one task now, due or not, enabled or not; None where it is running already.

        Raises UnknownTaskError, NotInstalledError, BusyError where the database is busy, and
        LazyCronError where an event loop runs in the calling thread.
        """
        _refuse_in_loop("run_now", "await cron.arun_now(…)")
        return self._run_now(name, trigger, now, in_a_new_loop)

    async def arun_now(
        self, name: Name, *, trigger: Trigger = "manual", now: Moment = None
    ) -> RunResult | None:
        """Do what `run_now` does in another thread; an `async def` task runs on this loop."""
        bridge = on_loop(asyncio.get_running_loop())
        return await asyncio.to_thread(self._run_now, name, trigger, now, bridge)

    def _run_now(self, name: Name, trigger: str, now: Moment, bridge: Bridge) -> RunResult | None:
        return self._parts.runner.run_now(to_name(name), self._door(trigger, None, now, bridge))

    def _door(self, trigger: str, budget: Budget | None, now: Moment, bridge: Bridge) -> Door:
        budget = self._settings.budget if budget is None else budget
        if not isinstance(budget, Budget):
            message = f"budget={shown(budget)}: pass a Budget(…) or None"
            raise ConfigurationError(message)
        return Door(
            trigger=to_trigger(trigger),
            budget=budget,
            now=None if now is None else to_moment(now),
            bridge=bridge,
        )

    # tokens

    @property
    def cron_token(self) -> str | None:
        """The cron URL's token; None without a secret of at least 16 characters."""
        return next(iter(self.cron_tokens), None)

    @property
    def health_token(self) -> str | None:
        """The token for health checks; None without a secret of at least 16 characters."""
        good = self._settings.good_secrets()
        return _token(good[0], "lazycron-health") if good else None

    @property
    def cron_tokens(self) -> tuple[str, ...]:
        """Every accepted cron token: the first secret's, then the older ones'."""
        return tuple(_token(one, "lazycron-cron") for one in self._settings.good_secrets())

    # ending

    def close(self, *, timeout: Duration | None = None) -> bool:
        """Stop after the run under way, wait for it, and let connections and threads go.

        `timeout` None is the `drain` setting. Returns False if a run was still going on after
        that. The next use opens everything again. Raises LazyCronError where an event loop runs in
        the calling thread.
        """
        _refuse_in_loop("close", "await cron.aclose()")
        return self._close(timeout)

    async def aclose(self, app: object = None, /, *, timeout: Duration | None = None) -> bool:  # noqa: ASYNC109 - it waits in a thread
        """Do what `close` does, without blocking the loop that async tasks may need to end.

        It also serves as a framework's shutdown hook: an app that is handed to it is ignored.
        """
        del app
        return await asyncio.to_thread(self._close, timeout)

    def _close(self, timeout: Duration | None) -> bool:
        length = self._settings.drain if timeout is None else to_duration(timeout, what="timeout")
        self._edge.let_go()
        held = self._held
        if held is None or held[0] != os.getpid():
            return True
        parts = held[1]
        parts.runner.activity.stopping.set()
        idle = parts.runner.activity.wait_idle(length.total_seconds())
        if self._held is held:
            self._held = None
        parts.close()
        return idle


def parts_of(cron: LazyCron) -> Parts:
    """Return the parts of a LazyCron in this process: the one door to them for edges and CLI."""
    return cron._parts  # noqa: SLF001 - the class's own module


def attach(cron: LazyCron, *, wake: Callable[[], None], let_go: Callable[[], None]) -> None:
    """Let an edge be told that something was enqueued, and that the LazyCron is closed."""
    cron._edge.wake, cron._edge.let_go = wake, let_go  # noqa: SLF001 - the class's own module


def _check_database(database: str | URL | Engine | None) -> URL | Engine | None:
    if database is None or isinstance(database, Engine):
        return database
    if isinstance(database, URL):
        return to_url(database.render_as_string(hide_password=False))
    if isinstance(database, str):
        return to_url(database)
    message = (
        f"database is a {type(database).__name__}; pass a URL such as {DEFAULT_DATABASE!r}, or a "
        "sqlalchemy.Engine (of an AsyncEngine: its sync_engine's URL with a sync driver)"
    )
    raise ConfigurationError(message)


def _token(secret: str, purpose: str) -> str:
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()[:TOKEN_LENGTH]


def _refuse_in_loop(verb: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    message = f"{verb}() blocks and an event loop runs in this thread; call `{instead}`"
    raise LazyCronError(message)
