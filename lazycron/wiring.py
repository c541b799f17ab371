"""The parts of one LazyCron in one process, wired once; nothing of them survives a fork."""

import hashlib
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lazycron.clock import Moments, Reference
from lazycron.logfile import LogFile
from lazycron.migrate import is_current, migrate
from lazycron.model.registry import Registry
from lazycron.model.run import MakeAsyncOnce, MakeOnce
from lazycron.process import Activity, Facts
from lazycron.settings import Settings
from lazycron.statefile import State, StateFile
from lazycron.store import Store
from lazycron.tick.burial import Burial
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

STATE_SUFFIX = ".lazycron.json"


def _nothing() -> None:
    """Do nothing: no edge is mounted."""


@dataclass(slots=True)
class Edge:
    """What a LazyCron asks of the edge that it is mounted in; of none, nothing."""

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
        """Write the state file anew from the database, at the reference's own moment."""
        return self.refresh.refresh(Moments(self.reference), settings=settings)

    def tell_due(self, due: datetime) -> None:
        """Write the state file anew if it names a later moment than a row that was just made."""
        if self.sync.is_wanted:
            # The names of the known tasks are not known to the store yet: nothing would be due.
            self.sync.bring_in(self.reference.now())
        if not self.statefile.names(self.reference.to_host(due), self.settings.clock.now()):
            self.refresh_state()

    def close(self) -> None:
        """Let the database's connections go, and the renewal thread once no run needs it."""
        self.leases.stop()
        self.store.close()


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
    path = settings.state_file or default_state_file(store)
    statefile = StateFile(path, clock.monotonic)
    logfile = LogFile(path.with_suffix(".log"))
    sync = Sync(store, registry, facts, clock.monotonic, settings.lease)
    reference = Reference(clock, asks_server=not store.is_sqlite)
    refresh = Refresh(store, statefile, facts, registry.barred_from)

    def install() -> bool:
        if settings.create_tables if settings.create_tables is not None else store.is_sqlite:
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
        settings.hanging_after,
        switched_on=settings.is_on,
    )

    def outlived() -> None:
        logfile.flush()
        refresh.refresh(Moments(reference))

    leases = Leases(store.renew, outlived, clock)
    running = Running(
        store=store,
        registry=registry,
        facts=facts,
        reference=reference,
        activity=activity,
        lease_of=sync.lease_of,
        leases=leases,
        recorder=Recorder(store, registry.policy_of, logfile, clock.monotonic),
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
        deciding=Deciding(registry, store, why),
        missed=Missed(store, registry, logfile),
        install=install,
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
    """Return `host:pid`, which claims are signed with."""
    return f"{socket.gethostname()[:150]}:{os.getpid()}"


def default_state_file(store: Store) -> Path:
    """Return where the state file lies: beside SQLite's file, else in a private folder."""
    if store.is_sqlite:
        database = Path(store.database)
        return database.with_name(database.name + STATE_SUFFIX)
    name = hashlib.sha256(store.identity.encode()).hexdigest()[:16]
    return private_folder() / f"{name}{STATE_SUFFIX}"


def private_folder() -> Path:
    """Return a folder of the user's own in the temp folder, mode 0700.

    What somebody else has made there first is not used: his files would be believed. Where
    nothing can be made the state file says so, and this process goes by its own memory.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    name = f"lazycron-{user}"
    try:
        folder = Path(tempfile.gettempdir()) / name
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        mine = not hasattr(os, "getuid") or found.st_uid == user
        if mine and stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077:
            return folder
        return Path(tempfile.mkdtemp(prefix="lazycron-"))
    except OSError:
        return Path(name)
