"""The state file: a hint, shared by a host's processes, about when anything is next due."""

import errno
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows has no flock; filelock knows its ways
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
LARGEST = 4096
OLDEST = timedelta(minutes=1)
UNCHANGED_LIFE = timedelta(seconds=30)
SETTINGS_LIFE = timedelta(seconds=30)
REMEMBERED = 5.0
LOCK_PATIENCE = 0.2
LOCK_POLL = 0.005
LOOP_LIFE = timedelta(seconds=45)
CLOCK_GRACE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the state file says.

    `next` is when a row is due or a lease ends (None: nothing ever); `instead` has that moment for
    triggers that may run other tasks than visitors' requests. `traffic` and `admin` are the
    switches, `loop_at` is the last heartbeat of a `run --loop`, `written_at` the file's own stamp
    and `settings_at` when the switches were last read from the database. Moments are UTC.
    """

    next: datetime | None
    traffic: bool = True
    admin: bool = True
    loop_at: datetime | None = None
    settings_at: datetime
    written_at: datetime
    instead: Mapping[str, datetime | None] = field(default_factory=dict)

    def next_for(self, trigger: str) -> datetime | None:
        """Return when a tick of this trigger would have something to do."""
        return self.instead.get(trigger, self.next)

    def is_due(self, now: datetime, trigger: str = "traffic") -> bool:
        """Tell whether something is due now that a tick of this trigger may run."""
        following = self.next_for(trigger)
        return following is not None and following <= now

    def loop_is_alive(self, now: datetime) -> bool:
        """Tell whether a `run --loop` has given a sign of life lately: requests stand back."""
        return self.loop_at is not None and abs(now - self.loop_at) < LOOP_LIFE

    def is_fresh(self, now: datetime) -> bool:
        """Tell whether the hint can be believed: neither too old nor from the future."""
        return now - OLDEST <= self.written_at <= now + CLOCK_GRACE

    def is_sooner_than(self, other: "State") -> bool:
        """Tell whether this state's next moment comes before the other's."""
        return self.next is not None and (other.next is None or self.next < other.next)

    def says_the_same(self, other: "State") -> bool:
        """Tell whether two states differ in nothing but their stamps, or are both due."""
        mine = replace(self, written_at=other.written_at, settings_at=other.settings_at)
        both_due = self.is_due(other.written_at) and other.is_due(other.written_at)
        return mine == other or (both_due and replace(mine, next=other.next) == other)


class StateFile:
    """Reads and replaces the file; whatever happens to it, lazycron only looks more often."""

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        self.path = path
        self.problem: str | None = None
        self._monotonic = monotonic
        self._lock = path.with_name(f"{path.name}.lock")
        self._parsed: tuple[bytes, State | None] = (b"", None)
        self._remembered: tuple[float, State] | None = None
        self._had_lock = True

    def read(self, now: datetime) -> State | None:
        """Return what the file says, or None where it cannot be believed.

        Missing, torn, foreign, from the future and older than a minute are all the same here.
        """
        state = self.peek()
        if state is not None and not state.is_fresh(now):
            state = None
        own = self._own()
        if own is None or state is None:
            return own or state
        if self.problem is not None:
            # Another user's process may be able to write: whoever has looked last knows more.
            return state if state.written_at > own.written_at else own
        # Whoever held the lock may since have written what he knew before.
        return own if own.is_sooner_than(state) else state

    def _own(self) -> State | None:
        """Return what this process wrote last, for seconds, where the file may not have it."""
        if self._remembered is None or (self.problem is None and self._had_lock):
            return None
        until, remembered = self._remembered
        return remembered if self._monotonic() < until else None

    def peek(self) -> State | None:
        """Return what the file says, however old; None where it says nothing."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return None
        try:
            content = os.read(descriptor, LARGEST + 1)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        last, state = self._parsed
        if content != last:
            state = _parse(content) if len(content) <= LARGEST else None
            self._parsed = (content, state)
        return state

    def names(self, due: datetime, now: datetime) -> bool:
        """Tell whether this moment or a sooner one is named, by a file that can be believed.

        Read inside the lock: whoever asked the database before the caller's commit has written by
        then, and whoever writes later has seen it.
        """
        with self._locked(shared=True) as held:
            state = self.read(now)
        if state is None or state.next is None or not (held or self.problem):
            return False
        return state.next <= due

    @property
    def trouble(self) -> str | None:
        """Why the file cannot be written, as far as that can be told without writing it."""
        folder = self.path.parent
        if self.problem is None and folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            return f"state file {self.path}: {os.strerror(errno.EACCES)}"
        return self.problem

    def refresh(self, ask: Callable[[State | None], State]) -> State:
        """Ask the database, inside the file's lock, and write what it says.

        `ask` is given the old state and must begin a fresh transaction: whoever reads outside the
        lock could overwrite a wake-up he did not know of. Who cannot have the lock within 0.2 s,
        because its holder's database hangs, goes on without, and trusts what he knew for seconds.
        """
        with self._locked() as self._had_lock:
            old = self.peek()
            state = ask(old)
            age = state.written_at - old.written_at if old else UNCHANGED_LIFE
            young = timedelta(0) <= age < UNCHANGED_LIFE
            if old and young and state.says_the_same(old) and old.settings_at == state.settings_at:
                self._note_written(state)
                return state
            self._write(state)
        return state

    def _write(self, state: State) -> None:
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                content = _format(state)
                if os.write(descriptor, content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
            beside.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                beside.unlink()
            self.problem = f"state file {self.path}: {error.strerror or error}"
            self._remembered = (self._monotonic() + REMEMBERED, state)
        else:
            self._note_written(state)

    def _note_written(self, state: State) -> None:
        self.problem = None
        self._remembered = (self._monotonic() + REMEMBERED, state)

    @contextmanager
    def _locked(self, *, shared: bool = False) -> Iterator[bool]:
        if fcntl is None:
            from filelock import FileLock, Timeout

            held = FileLock(self._lock, timeout=LOCK_PATIENCE)
            try:
                held.acquire()
            except (Timeout, OSError):
                yield False
                return
            try:
                yield True
            finally:
                held.release()
            return
        try:
            descriptor = self._open_lock()
        except OSError:
            yield False
            return
        try:
            with flocked(descriptor, shared=shared) as held_now:
                yield held_now
        finally:
            os.close(descriptor)

    def _open_lock(self) -> int:
        try:
            return os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)


@contextmanager
def flocked(descriptor: int, *, shared: bool = False) -> Iterator[bool]:
    """Hold the lock of an open file, or go on without it after 0.2 s; say which.

    Holders of a `shared` lock do not keep each other out. Without flock, on Windows, always
    without.
    """
    within = _flock_shared_within if shared else _flock_within
    held = fcntl is not None and within(descriptor, LOCK_PATIENCE)
    try:
        yield held
    finally:
        if held:
            # Unlocked by name: after a fork in the middle of the hold, closing our copy of the
            # descriptor would leave the lock with the child's.
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _flock_within(descriptor: int, seconds: float) -> bool:
    return _lock_within(descriptor, seconds, fcntl.LOCK_EX)


def _flock_shared_within(descriptor: int, seconds: float) -> bool:
    return _lock_within(descriptor, seconds, fcntl.LOCK_SH)


def _lock_within(descriptor: int, seconds: float, kind: int) -> bool:
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= end:
                return False
            time.sleep(LOCK_POLL)
        else:
            return True


def _format(state: State) -> bytes:
    content: dict[str, Any] = {
        "lazycron": FORMAT,
        "next": _seconds(state.next),
        "traffic": state.traffic,
        "admin": state.admin,
        "loop_at": _seconds(state.loop_at),
        "settings_at": _seconds(state.settings_at),
        "written_at": _seconds(state.written_at),
    }
    if state.instead:
        content["instead"] = {name: _seconds(at) for name, at in state.instead.items()}
    return json.dumps(content).encode() + b"\n"


def _parse(content: bytes) -> State | None:
    try:
        found = json.loads(content)
        if not isinstance(found, dict) or found.get("lazycron") != FORMAT:
            return None
        written_at = _moment(found["written_at"])
        settings_at = _moment(found["settings_at"])
        traffic, admin = found["traffic"], found["admin"]
        if not isinstance(traffic, bool) or not isinstance(admin, bool):
            return None
        if written_at is None or settings_at is None:
            return None
        return State(
            next=_moment(found["next"]),
            traffic=traffic,
            admin=admin,
            loop_at=_moment(found["loop_at"]),
            settings_at=settings_at,
            written_at=written_at,
            instead={str(name): _moment(at) for name, at in found.get("instead", {}).items()},
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        OSError,
        RecursionError,
    ):
        return None


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _moment(value: object) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        message = f"{value!r} is no number of seconds"
        raise TypeError(message)
    return datetime.fromtimestamp(value, UTC)
