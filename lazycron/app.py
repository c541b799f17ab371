"""LazyCron: checks the settings once, wires the parts, and is what an app holds in its hand."""

import asyncio
import hashlib
import hmac
import os
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, overload

from sqlalchemy import URL, Engine

from lazycron.clock import Clock, to_moment
from lazycron.durations import Duration, to_duration
from lazycron.errors import (
    BusyError,
    ConfigurationError,
    LazyCronError,
    NotInstalledError,
    UnknownTaskError,
)
from lazycron.execute import Bridge, in_a_new_loop, on_loop
from lazycron.migrate import migrate
from lazycron.outcomes import OnLost, Outcome, Policy, Status, settle
from lazycron.parts import Parts, who_we_are, wire
from lazycron.refresh import OFF, ON
from lazycron.registry import Registry
from lazycron.reports import Budget, RunResult, TickReport, Trigger, to_trigger
from lazycron.retry import Retry
from lazycron.runner import Door
from lazycron.schedules import Every, Schedule, parse
from lazycron.settings import SHORTEST_SECRET, Settings, check_settings
from lazycron.statefile import State
from lazycron.status import Problem, TaskStatus, status_of
from lazycron.store import DatabaseError, Fault, RunRecord, Store, TaskRow, fault_of
from lazycron.store.engine import clone_engine, open_engine, to_url
from lazycron.sync import moved_to, scheduled_for
from lazycron.tasks import FirstRun, Task, make_task, to_schedule
from lazycron.why import Explanation

DEFAULT_DATABASE = "sqlite:///lazycron.db"
SHORTEST_OVERRIDE = timedelta(seconds=60)
LONGEST_OVERRIDE = timedelta(days=30)
TOKEN_LENGTH = 40
MOST_TRIES = 10

Moment = datetime | float | None
Name = str | Task


class LazyCron:
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
        self._parts: tuple[int, Parts] | None = None
        # Keyed by process: a lock that the parent held at a fork would be held for ever.
        self._locks: dict[int, threading.Lock] = {}

    def configure(self, database: str | URL | Engine | None = None, **settings: Any) -> None:
        """Set what was not known at import, before the first use; takes what LazyCron() takes.

        What is not named stays as it was. Raises ConfigurationError for an unknown setting, and
        once this LazyCron has been used in this process.
        """
        if self._parts is not None and self._parts[0] == os.getpid():
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
    def parts(self) -> Parts:
        """The parts of this process, wired at the first use."""
        held = self._parts
        if held is not None and held[0] == os.getpid():
            return held[1]
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            held = self._parts
            if held is None or held[0] != os.getpid():
                store = Store(self._open(), who_we_are())
                held = (os.getpid(), wire(self._settings, self._registry, store))
                self._parts = held
            return held[1]

    @property
    def is_used(self) -> bool:
        """Whether the parts have been wired in this process."""
        return self._parts is not None and self._parts[0] == os.getpid()

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
    ) -> Task | Callable[[Callable[..., Any]], Task]:
        """Register a function as a task, as a decorator with or without options.

        `every`, `crontab` and `schedule` exclude each other; without one the task is only
        enqueued. `first_run` None means one interval after registration, "soon" two minutes.
        `enabled` is the first value only; afterwards it is the operator's. Raises ScheduleError,
        ConfigurationError and DuplicateTaskError.
        """
        due = to_schedule(every, crontab, schedule, tz, self._settings.tz)

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
            )
            self._registry.add(made)
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
        return self.parts.runner.run_due(self._door(trigger, budget, now, bridge))

    def run_now(
        self, name: Name, *, trigger: Trigger = "manual", now: Moment = None
    ) -> RunResult | None:
        """Run one task now, due or not, enabled or not; None where it is running already.

        Raises UnknownTaskError, NotInstalledError, and LazyCronError where an event loop runs in
        the calling thread.
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
        return self.parts.runner.run_now(_name(name), self._door(trigger, None, now, bridge))

    def _door(self, trigger: str, budget: Budget | None, now: Moment, bridge: Bridge) -> Door:
        return Door(
            trigger=to_trigger(trigger),
            budget=self._settings.budget if budget is None else budget,
            now=None if now is None else to_moment(now),
            bridge=bridge,
        )

    # managing

    def sync(self, now: Moment = None) -> bool:
        """Make rows for new tasks and store changed schedules; False: not installed yet."""
        parts = self.parts
        if not parts.runner.install():
            return False
        parts.sync.bring_in(self._moment(now))
        self._refresh()
        return True

    def overview(self, now: Moment = None) -> list[TaskStatus]:
        """Return every task at a glance, by name, rows without code included."""
        parts, moment = self._managing(), self._moment(now)
        rows = {row.name: row for row in parts.store.rows()}
        names = sorted(rows.keys() | {task.name for task in self._registry})
        return [
            status_of(name, self._registry.get(name), rows.get(name), parts.why, moment)
            for name in names
        ]

    def enable(self, name: Name) -> None:
        """Let a task run; its row stays due as it was. Raises UnknownTaskError."""
        self._switch(_name(name), enabled=True)

    def disable(self, name: Name) -> None:
        """Keep a task from running; a run under way is finished. Raises UnknownTaskError."""
        self._switch(_name(name), enabled=False)

    def _switch(self, name: str, *, enabled: bool) -> None:
        if not self._managing().store.enable(name, enabled=enabled):
            raise _unknown(name)
        self._refresh()

    def set_interval(self, name: Name, duration: Duration) -> None:
        """Override a task's schedule by an interval, until `reset_schedule`.

        Takes 60 seconds to 30 days; raises ScheduleError, a ValueError, for anything else, and
        UnknownTaskError. The row moves to the new interval after its last run, if that is sooner.
        """
        length = to_duration(
            duration, what="interval", least=SHORTEST_OVERRIDE, most=LONGEST_OVERRIDE
        )
        self._override(_name(name), Every(length))

    def reset_schedule(self, name: Name) -> None:
        """Take an operator's interval back: the code's schedule counts again."""
        self._override(_name(name), None)

    def _override(self, name: str, schedule: Schedule | None) -> None:
        parts = self._managing()
        for _ in range(MOST_TRIES):
            row = self._row(name)
            now = self._moment(None)
            counts = schedule or parse(row.schedule or "")
            moved = moved_to(row, counts, now)
            text = schedule.text if schedule else None
            nominal = scheduled_for(row, moved)
            if parts.store.override(row, text, next_run_at=moved, scheduled_for=nominal):
                self._refresh()
                return
        message = f"the row of {name} changed each of {MOST_TRIES} times it was looked at"
        raise BusyError(message)

    def release(self, name: Name, *, force: bool = False) -> bool:
        """End a claim and record its run as lost; False where nobody holds the row.

        A claim renewed within half its lease is very likely alive: raises BusyError unless
        `force`. Its run, if it still goes on, then changes nothing any more.
        """
        name, parts = _name(name), self._managing()
        row, held = self._row(name), parts.store.claim_of(_name(name))
        if held is None:
            return False
        task, now = self._registry.get(row.name), self._moment(None)
        lease = (task.lease if task else None) or self._settings.lease
        renewed = held.claim.lease_until - lease
        if not force and now - renewed < lease / 2:
            message = (
                f"{name} is running in {held.by}, which renewed its lease lately; "
                "force=True (--force) releases it all the same"
            )
            raise BusyError(message)
        outcome = Outcome(status=Status.LOST, message="Lost: released by hand.", ms=None)
        policy = task.policy if task else Policy(schedule=None, retry=self._settings.retry)
        settlement = settle(held.claim, outcome, policy, now=now, earliest=now)
        released = parts.store.release(settlement, held.by)
        if released:
            rest = f"{held.claim.trigger}  {outcome.message}"
            parts.logfile.note(now, name, Status.LOST, None, rest)
            self._refresh()
        return released

    def forget(self, name: Name) -> None:
        """Delete the row of a task whose code is gone.

        Raises UnknownTaskError where there is no row, ConfigurationError for a task this process
        knows (its row would come back at once) and BusyError for one that is running.
        """
        name, parts = _name(name), self._managing()
        if name in self._registry:
            message = f"{name} is registered, so its row would come back; disable it instead"
            raise ConfigurationError(message)
        self._row(name)
        if not parts.store.forget(name):
            message = f"{name} is running; release it first"
            raise BusyError(message)
        self._refresh()

    def why(self, name: Name, now: Moment = None) -> Explanation:
        """Say why a task is not running now and what would make it run; never raises for that."""
        parts, name, moment = self.parts, _name(name), self._moment(now)
        try:
            if not parts.runner.install():
                return parts.why.not_installed()
            row = parts.store.row(name)
        except DatabaseError as error:
            if fault_of(error) is Fault.MISSING:
                return parts.why.not_installed()
            return parts.why.unreachable(type(error).__name__)
        found = parts.why.about(self._registry.get(name), row, moment)
        return parts.why.with_switches(found, self.state())

    def history(self, name: Name | None = None, limit: int = 40) -> list[RunRecord]:
        """Return the newest runs, newest first, of one task or of all."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            message = f"limit={limit!r}: pass a whole number from 1 up"
            raise ValueError(message)
        wanted = None if name is None else _name(name)
        found = self._managing().store.history(wanted, limit)
        if not found and wanted is not None and wanted not in self._registry:
            self._row(wanted)
        return found

    def log_tail(self, lines: int = 40) -> list[str]:
        """Return the newest lines of this host's log file, newest first."""
        return self.parts.logfile.tail(lines)

    def state(self) -> State:
        """Return what the state file says, asking the database where it says nothing."""
        parts = self.parts
        found = parts.statefile.read(self._moment(None))
        if found is not None:
            return found
        self._managing()
        return self._refresh()

    def set_triggers(self, *, traffic: bool | None = None, admin: bool | None = None) -> None:
        """Switch requests on or off as a trigger, for all hosts within a minute.

        `traffic` is any request, `admin` one on the app's own admin paths. The cron URL, the CLI
        and direct calls run regardless.
        """
        parts = self._managing()
        for name, value in (("traffic", traffic), ("admin", admin)):
            if value is None:
                continue
            if not isinstance(value, bool):
                message = f"{name}={value!r}: pass True or False"
                raise ConfigurationError(message)
            parts.store.put_setting(name, ON if value else OFF, self._moment(None))
        self._refresh(settings=True)

    def prune(self) -> int:
        """Delete history beyond `keep_runs` and `keep_age` at once; return how many runs went."""
        parts = self._managing()
        gone = sum(
            parts.store.prune_beyond(name, self._settings.keep_runs)
            for name in (row.name for row in parts.store.rows())
        )
        before = self._moment(None) - self._settings.keep_age
        while deleted := parts.store.prune_older(before):
            gone += deleted
        return gone

    def migrate(self) -> None:
        """Bring the database's tables to this version's shape."""
        parts = self.parts
        migrate(parts.store.engine)
        parts.facts.installed = True

    def acted(self, who: str, verb: str, name: str | None = None, detail: str = "") -> None:
        """Note in the database who did what."""
        at = self._moment(None)
        self.parts.store.act(who=who, verb=verb, name=name, detail=detail, at=at)

    def check(self) -> list[Problem]:
        """Return what is wrong or advisable, each with what to do; empty if nothing is."""
        problems = [*self._check_secret(), *self._check_database()]
        parts = self.parts
        for part, problem in (
            ("state_file", parts.statefile.problem),
            ("log_file", parts.logfile.problem),
        ):
            if problem:
                problems.append(
                    Problem(part, f"{problem}; every process looks for itself until it is mended")
                )
        if not self._settings.is_on:
            text = "LAZYCRON=off (or enabled=False): no request and no loop runs tasks here"
            problems.append(Problem("off", text))
        return problems

    def _check_secret(self) -> list[Problem]:
        good, given = self._settings.good_secrets(), self._settings.all_secrets()
        if good and len(good) == len(given):
            return []
        what = "a secret is missing" if not given else "a secret is too short"
        off = "" if good else ", so the cron URL is off"
        text = (
            f"{what}{off}: set secret= or LAZYCRON_SECRET to {SHORTEST_SECRET} characters or more"
        )
        return [Problem("secret", text)]

    def _check_database(self) -> list[Problem]:
        parts = self.parts
        try:
            if not parts.runner.install():
                return [Problem("tables", "the tables are missing: run `lazycron migrate`")]
            self._refresh()
            rows = parts.store.rows()
            advice = parts.store.advice()
        except DatabaseError as error:
            text = f"the database cannot be used ({type(error).__name__}: {fault_of(error)})"
            return [Problem("database", text)]
        unknown = [row.name for row in rows if row.enabled and row.name not in self._registry]
        problems = [Problem("database_settings", text) for text in advice]
        if unknown:
            text = (
                f"rows without code here: {', '.join(unknown)}; `lazycron forget NAME` removes one"
            )
            problems.append(Problem("unknown_tasks", text))
        return problems

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

    def close(self, timeout: Duration | None = None) -> bool:
        """Stop after the run under way, wait for it, and close the connections.

        `timeout` None is the `drain` setting. Returns False if a run was still going on after
        that. The next use opens everything again. Raises LazyCronError where an event loop runs in
        the calling thread.
        """
        _refuse_in_loop("close", "await cron.aclose()")
        return self._close(timeout)

    async def aclose(self, timeout: Duration | None = None) -> bool:  # noqa: ASYNC109 - it waits in a thread
        """Do what `close` does, without blocking the loop that async tasks may need to end."""
        return await asyncio.to_thread(self._close, timeout)

    def _close(self, timeout: Duration | None) -> bool:
        held = self._parts
        if held is None or held[0] != os.getpid():
            return True
        length = self._settings.drain if timeout is None else to_duration(timeout, what="timeout")
        parts = held[1]
        parts.runner.stopping.set()
        idle = parts.runner.wait_idle(length.total_seconds())
        if self._parts is held:
            self._parts = None
        parts.close()
        return idle

    # helpers

    def _managing(self) -> Parts:
        parts = self.parts
        if not parts.runner.install():
            raise NotInstalledError
        parts.sync.bring_in_when_due(self._moment(None))
        return parts

    def _row(self, name: str) -> TaskRow:
        row = self.parts.store.row(name)
        if row is None:
            raise _unknown(name)
        return row

    def _moment(self, now: Moment) -> datetime:
        return self._settings.clock.now() if now is None else to_moment(now)

    def _refresh(self, *, settings: bool = False) -> State:
        from lazycron.moments import Moments

        moments = Moments(self._settings.clock)
        return self.parts.refresh.refresh(moments, settings=settings)


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


def _name(name: Name) -> str:
    if isinstance(name, Task):
        return name.name
    if isinstance(name, str):
        return name
    message = f"{name!r} is no task; pass a task's name or the task"
    raise UnknownTaskError(message)


def _unknown(name: str) -> UnknownTaskError:
    return UnknownTaskError(f"no row is named {name!r}; `lazycron list` shows what there is")


def _token(secret: str, purpose: str) -> str:
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()[:TOKEN_LENGTH]


def _refuse_in_loop(verb: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    message = f"{verb}() blocks and an event loop runs in this thread; call `{instead}`"
    raise LazyCronError(message)
