"""The state file: a hint, shared by a host's processes, about when anything is next due."""

import errno
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from lazycron.files import (
    STATE_SUFFIX,
    lock_of,
    make_folder,
    open_or_make,
    open_own,
    unlooked_of,
)
from lazycron.locks import locked

FORMAT = 1
LARGEST = 4096
OLDEST = timedelta(minutes=1)
UNCHANGED_LIFE = timedelta(seconds=30)
SETTINGS_LIFE = timedelta(seconds=30)
REMEMBERED = 5.0
LOOP_LIFE = timedelta(seconds=45)
CLOCK_GRACE = timedelta(seconds=1)
# How every state file begins, whatever its format; a crash may leave one that is empty or zeros.
OURS = re.compile(rb'\0*\Z|\{"lazycron": \d+, "')


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the state file says.

    `next` is when a row is due or a lease ends (None: nothing ever); `instead` has that moment for
    triggers that may run other tasks than visitors' requests. `traffic` and `admin` are the
    switches, `loop_at` is the last heartbeat of a `run --loop`, `written_at` the file's own stamp,
    `settings_at` when the switches were last read from the database, and `installation` tells this
    installation's file from another's. Moments are UTC.
    """

    next: datetime | None
    traffic: bool = True
    admin: bool = True
    loop_at: datetime | None = None
    settings_at: datetime
    written_at: datetime
    instead: Mapping[str, datetime | None] = field(default_factory=dict)
    installation: str = ""

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


Place = Literal["given", "beside", "private"]


class StateFile:
    """Reads and replaces the file; whatever happens to it, lazycron only looks more often.

    Only what is of the same `installation` is believed; it is "" until the database was asked. At
    a `place` that the app has given, a file is replaced only if it is a state file, and no other
    installation's that is in use. In the private folder each installation has a file of its own.
    """

    def __init__(
        self, path: Path, monotonic: Callable[[], float], *, place: Place = "given"
    ) -> None:
        self.path = path
        self.installation = ""
        self.problem: str | None = None
        self._monotonic = monotonic
        self._place = place
        self._base = path
        self._parsed: tuple[bytes, State | None] = (b"", None)
        self._remembered: tuple[float, State] | None = None
        self._had_lock = True

    def belong_to(self, installation: str) -> None:
        """Believe what is of this installation from now on, and nothing else."""
        if installation == self.installation:
            return
        self.installation = installation
        self._remembered = None
        if self._place == "private":
            name = self._base.name.removesuffix(STATE_SUFFIX)
            self.path = self._base.with_name(f"{name}-{installation}{STATE_SUFFIX}")

    def read(self, now: datetime) -> State | None:
        """Return what the file says, or None where it cannot be believed.

        Missing, torn, of others, from the future and older than a minute are all the same here.
        """
        state = self.peek()
        if state is not None and not state.is_fresh(now):
            state = None
        own = self._own()
        if own is None or state is None:
            return own or state
        if self.problem is not None:
            # Another user's process may be able to write: the latest look knows most.
            return state if state.written_at > own.written_at else own
        # A process that held the lock may have written older knowledge since.
        return own if own.is_sooner_than(state) else state

    def _own(self) -> State | None:
        """Return what this process wrote last, for seconds, where the file may not have it."""
        if self._remembered is None or (self.problem is None and self._had_lock):
            return None
        until, remembered = self._remembered
        return remembered if self._monotonic() < until else None

    def peek(self) -> State | None:
        """Return what the file says of this installation, however old; None where nothing."""
        try:
            found = self._parsed_from(self._content())
        except OSError:
            return None
        return found if found is not None and found.installation == self.installation else None

    def _parsed_from(self, content: bytes) -> State | None:
        last, state = self._parsed
        if content != last:
            state = _parse(content) if len(content) <= LARGEST else None
            self._parsed = (content, state)
        return state

    def _content(self) -> bytes:
        descriptor = open_own(self.path, os.O_RDONLY)
        try:
            return os.read(descriptor, LARGEST + 1)
        finally:
            os.close(descriptor)

    def names(self, due: datetime, now: datetime) -> bool:
        """Tell whether this moment or a sooner one is named, by a file that can be believed.

        It is read inside the lock: a process that asked the database before the caller's commit has
        written by then, and one that writes later has seen it.
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

        `ask` is given the old state and must begin a fresh transaction: a read outside the lock
        could overwrite a wake-up that it does not know of. A process that cannot have the lock
        within 0.2 s, because its holder's database hangs, goes on without it and trusts what it
        knew for seconds.
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
            make_folder(self.path.parent)
            if self._place == "given":
                self._check_is_ours(state)
            descriptor = open_own(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
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

    def _check_is_ours(self, state: State) -> None:
        """Raise OSError where the app chose a place at which there is something of others."""
        has_own_name = self.path.name.endswith(STATE_SUFFIX)
        try:
            content = self._content()
        except FileNotFoundError:
            return
        except OSError:
            if has_own_name:
                return
            raise
        found = self._parsed_from(content)
        if found is None:
            if not has_own_name and (len(content) > LARGEST or not OURS.match(content)):
                message = "it is no state file, so it is left alone: pass another state_file="
                raise OSError(errno.EEXIST, message)
        elif found.installation != state.installation and found.is_fresh(state.written_at):
            message = "another installation uses it: pass each its own state_file="
            raise OSError(errno.EEXIST, message)

    def _note_written(self, state: State) -> None:
        self.problem = None
        self._remembered = (self._monotonic() + REMEMBERED, state)

    @property
    def unlooked_at(self) -> datetime | None:
        """When a process ended before its first look, if no process has looked since."""
        try:
            return datetime.fromtimestamp(unlooked_of(self._base).lstat().st_mtime, UTC)
        except OSError:
            return None

    def mark_unlooked(self) -> None:
        """Leave word for others that this process ends before its first look."""
        with suppress(OSError):
            os.close(open_or_make(unlooked_of(self._base), os.O_WRONLY | os.O_TRUNC))
            os.utime(unlooked_of(self._base))

    def forget_unlooked(self) -> None:
        """Take that word back: a process has looked."""
        with suppress(OSError):
            unlooked_of(self._base).unlink()

    @contextmanager
    def _locked(self, *, shared: bool = False) -> Iterator[bool]:
        try:
            descriptor = open_or_make(lock_of(self.path), os.O_RDWR)
        except OSError:
            yield False
            return
        try:
            with locked(descriptor, shared=shared) as held:
                yield held
        finally:
            os.close(descriptor)


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
    if state.installation:
        content["installation"] = state.installation
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
            installation=str(found.get("installation", "")),
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
