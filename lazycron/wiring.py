"""The parts of one LazyCron in one process, wired once and dropped at a fork."""

import hashlib
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lazycron.clock import Moments, Reference
from lazycron.executors.thread import ThreadExecutor
from lazycron.files import STATE_SUFFIX, log_of, private_folder
from lazycron.logfile import LogFile
from lazycron.migrate import is_current, make_within, migrate
from lazycron.model.registry import Registry
from lazycron.model.run import MakeAsyncOnce, MakeOnce
from lazycron.model.settle import Claim
from lazycron.process import Activity, Facts
from lazycron.settings import Settings
from lazycron.statefile import Place, State, StateFile
from lazycron.store import Store
from lazycron.tick.burial import Burial
from lazycron.tick.claimed import Claimed
from lazycron.tick.decisions import Deciding
from lazycron.tick.leases import Leases
from lazycron.tick.missed import Missed
from lazycron.tick.next_due import Refresh
from lazycron.tick.pruning import Pruning
from lazycron.tick.recorder import Recorder
from lazycron.tick.run_one import Running
from lazycron.tick.runner import Runner
from lazycron.tick.sync import Sync
from lazycron.tick.why import Why


def _nothing() -> None:
    """Do nothing: no edge is mounted."""


@dataclass(slots=True)
class Edge:
    """What a LazyCron calls in the edge it is mounted in; nothing without an edge."""

    wake: Callable[[], None] = _nothing
    let_go: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a LazyCron works with in this process."""

    settings: Settings
    registry: Registry
    edge: Edge
    facts: Facts
    store: Store
    statefile: StateFile
    logfile: LogFile
    sync: Sync
    refresh: Refresh
    why: Why
    reference: Reference
    leases: Leases
    runner: Runner

    def refresh_state(self, *, settings: bool = False) -> State:
        """Write the state file from the database, at the reference's own moment."""
        return self.refresh.refresh(Moments(self.reference), settings=settings)

    def tell_due(self, due: datetime) -> None:
        """Write the state file again if it names a later moment than a row that was just made."""
        if self.sync.is_wanted:
            # The store does not know the tasks' names yet: nothing would be due.
            self.sync.bring_in(self.reference.now())
        self.refresh.know_installation(self.reference.now())
        if not self.statefile.names(self.reference.to_host(due), self.settings.clock.now()):
            self.refresh_state()

    def note_commit(self, connection: object = None) -> None:
        """Make this process's next looks ask the database, whatever the state file says."""
        del connection
        self.facts.mark(self.reference.monotonic())
        self.edge.wake()

    def close(self) -> None:
        """Close the database's connections, and end the renewal thread once no run needs it."""
        self.leases.stop()
        self.store.close()
        self.runner.activity.close_behind(self.store.close)


class PerProcess:
    """The parts of this process, wired at its first use of them, and again after a close."""

    def __init__(self, make: Callable[[], Parts]) -> None:
        self._make = make
        self._held: tuple[int, Parts] | None = None
        # One for each process: a lock that the parent held at a fork would be held for ever.
        self._locks: dict[int, threading.Lock] = {}

    def held(self) -> Parts | None:
        """Return the parts if they are wired in this process, else None."""
        held = self._held
        return held[1] if held is not None and held[0] == os.getpid() else None

    def get(self) -> Parts:
        """Return the parts, wired now if need be."""
        found = self.held()
        if found is not None:
            return found
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            found = self.held()
            if found is None:
                found = self._make()
                self._held = (os.getpid(), found)
            return found

    def close(self, patience: float) -> bool:
        """Begin no further run, wait for the one under way, and close the parts.

        Returns False if a run was still going on after `patience` seconds.
        """
        parts = self.held()
        if parts is None:
            return True
        parts.runner.activity.stopping.set()
        idle = parts.runner.activity.wait_idle(patience)
        if self.held() is parts:
            self._held = None
        parts.close()
        return idle


def wire(
    *,
    settings: Settings,
    registry: Registry,
    edge: Edge,
    store: Store,
    once: MakeOnce,
    aonce: MakeAsyncOnce,
) -> Parts:
    """Build the parts for this process."""
    clock = settings.clock
    facts = Facts()
    path, place = settings.state_file or default_state_file(store), place_of(settings, store)
    statefile = StateFile(path, clock.monotonic, place=place)
    logfile = LogFile(log_of(path))
    sync = Sync(store, registry, facts, clock.monotonic, settings.lease)
    reference = Reference(clock, asks_server=not store.is_sqlite)
    refresh = Refresh(store, statefile, facts, registry.barred_from)

    def make_tables(joined: Any = None) -> bool:  # noqa: ANN401 - only migrate knows SQLAlchemy
        may_make = store.is_sqlite if settings.create_tables is None else settings.create_tables
        if joined is not None:
            return make_within(joined, may_make=may_make)
        if may_make:
            if not is_current(store.engine):
                migrate(store.engine)
            return True
        return store.has_tables()

    activity = Activity(clock.monotonic)
    why = Why(
        facts,
        registry.schedule_of,
        store.shared.last_switched,
        activity,
        Claimed(sync.lease_of_name, settings.hanging_after),
        switched_on=settings.is_on,
    )

    def outlived() -> None:
        logfile.flush()
        with activity.in_use():
            refresh.refresh(Moments(reference))

    def renew(claim: Claim, until: datetime) -> bool:
        with activity.in_use():
            return store.renew(claim, until)

    leases = Leases(renew, outlived, clock)
    running = Running(
        store=store,
        registry=registry,
        facts=facts,
        reference=reference,
        activity=activity,
        lease_of=sync.lease_of,
        leases=leases,
        executor=ThreadExecutor(),
        recorder=Recorder(
            store=store,
            policy_of=registry.policy_of,
            logfile=logfile,
            monotonic=clock.monotonic,
        ),
        once=once,
        aonce=aonce,
    )
    runner = Runner(
        store=store,
        registry=registry,
        facts=facts,
        reference=reference,
        activity=activity,
        sync=sync,
        burial=Burial(store, registry.policy_of, logfile, reference, sync.lease_of_name),
        running=running,
        refresh=refresh,
        pruning=Pruning(
            store, clock.monotonic, keep_runs=settings.keep_runs, keep_age=settings.keep_age
        ),
        deciding=Deciding(registry, store, why, facts),
        missed=Missed(store, registry, logfile),
        make_tables=make_tables,
    )
    return Parts(
        settings=settings,
        registry=registry,
        edge=edge,
        facts=facts,
        store=store,
        statefile=statefile,
        logfile=logfile,
        sync=sync,
        refresh=refresh,
        why=why,
        reference=reference,
        leases=leases,
        runner=runner,
    )


def who_we_are() -> str:
    """Return `host:pid`, with which claims are signed."""
    return f"{socket.gethostname()[:150]}:{os.getpid()}"


def place_of(settings: Settings, store: Store) -> Place:
    """Return which kind of place the state file has."""
    if settings.state_file is not None:
        return "given"
    return "beside" if store.is_sqlite else "private"


def default_state_file(store: Store) -> Path:
    """Return the state file's path: beside SQLite's file, else in a private folder."""
    if store.is_sqlite:
        database = Path(store.database)
        return database.with_name(database.name + STATE_SUFFIX)
    name = hashlib.sha256(store.identity.encode()).hexdigest()[:16]
    return private_folder() / f"{name}{STATE_SUFFIX}"
