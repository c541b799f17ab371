"""A job: one enqueued call of a task, as a row that runs once; and the options for enqueueing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from lazycron.clock import to_moment
from lazycron.durations import Duration, to_duration
from lazycron.errors import ArgumentsError, ConfigurationError, ScheduleError
from lazycron.schema import NAME_LENGTH
from lazycron.texts import shown

OnConflict = Literal["keep", "replace", "raise"]
JobState = Literal["waiting", "running", "dead"]
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
JOB_STATES: tuple[JobState, ...] = get_args(JobState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as it stood when it was enqueued or looked up; moments are UTC.

    `status` is "waiting", "running" or "dead". It is "unwritten" for one whose row is written at
    the caller's commit (`on_commit=`): such a job has no id yet. `created` is True if this call
    made the row, False if it returned a waiting or running job, and None if the job was looked up.
    `progress`, `done` and `total` are from its last checkpoint; `started_at` is when a running
    job's run began.
    """

    id: int | None
    task: str
    key: str | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    run_at: datetime
    status: str
    created: bool | None = None
    attempts: int = 0
    message: str | None = None
    progress: Any = None
    done: int | None = None
    total: int | None = None
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What became of a job.

    `status` is "waiting", "running" or "dead". Once the row is gone it is the last run's ("ok", or
    "paused" if the job was discarded in the middle), and "unknown" where neither row nor run exists
    (any more). `value` is what the function returned, a text included. `message` is the last run's
    text; `error` is the same if the run failed or was lost.
    """

    status: str
    value: Any = None
    error: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The options of a job: its key, its time, and the transaction it joins."""

    key: str | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    connection: Any = None
    on_commit: Callable[[Callable[[], None]], Any] | None = None
    on_conflict: OnConflict = "keep"

    def due(self, now: datetime) -> datetime:
        """Return when the job is due if it is enqueued now."""
        if self.run_at is not None:
            return self.run_at
        return now if self.delay is None else now + self.delay


Enqueue = Callable[[str, Wish, tuple[Any, ...], dict[str, Any]], Job]
AEnqueue = Callable[[str, Wish, tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueuer:
    """The two functions by which a task reaches the store; the app provides them."""

    enqueue: Enqueue
    aenqueue: AEnqueue


@dataclass(frozen=True, slots=True)
class Using:
    """A task with options for its next job: `task.using(…).enqueue(…)`."""

    name: str
    enqueuer: Enqueuer
    wish: Wish = field(default_factory=Wish)

    def enqueue(self, /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call; raises ArgumentsError, KeyTakenError and BusyError."""
        return self.enqueuer.enqueue(self.name, self.wish, args, kwargs)

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> Job:
        """Do what `enqueue` does, from a coroutine."""
        job: Job = await self.enqueuer.aenqueue(self.name, self.wish, args, kwargs)
        return job

    def using(self, **options: Any) -> "Using":
        """Add or replace options; the others stay as they were."""
        unknown = options.keys() - OPTIONS
        if unknown:
            message = (
                f"using() takes no {', '.join(sorted(unknown))}; there are {', '.join(OPTIONS)}"
            )
            raise TypeError(message)
        return replace(self, wish=to_wish(self.wish, **options))


OPTIONS = tuple(one.name for one in fields(Wish))


def to_wish(
    before: Wish,
    *,
    key: str | None = None,
    delay: Duration | None = None,
    run_at: datetime | float | None = None,
    connection: Any = None,  # noqa: ANN401 - four SQLAlchemy kinds, told apart where it is used
    on_commit: Callable[[Callable[[], None]], Any] | None = None,
    on_conflict: OnConflict | None = None,
) -> Wish:
    """Check a job's options; raises ConfigurationError, ScheduleError and ArgumentsError."""
    wish = Wish(
        key=before.key if key is None else check_key(key),
        delay=before.delay if delay is None else to_duration(delay, what="delay"),
        run_at=before.run_at if run_at is None else _to_due(run_at),
        connection=before.connection if connection is None else connection,
        on_commit=before.on_commit if on_commit is None else on_commit,
        on_conflict=before.on_conflict if on_conflict is None else on_conflict,
    )
    if wish.delay is not None and wish.run_at is not None:
        message = f"delay={wish.delay} and run_at={wish.run_at} exclude each other"
        raise ConfigurationError(message)
    if wish.connection is not None and wish.on_commit is not None:
        message = "connection= and on_commit= exclude each other: both tie the row to a commit"
        raise ConfigurationError(message)
    if wish.on_conflict not in get_args(OnConflict):
        message = f'on_conflict={shown(on_conflict)}: pass "keep", "replace" or "raise"'
        raise ConfigurationError(message)
    if wish.on_commit is not None and not callable(wish.on_commit):
        message = f"on_commit={shown(on_commit)}: pass a callable that takes a callback"
        raise ConfigurationError(message)
    return wish


def _to_due(run_at: datetime | float) -> datetime:
    due = to_moment(run_at)
    # Other zones and clocks must be able to express it, and claims look from 1970 on.
    if not EARLIEST <= due <= LATEST:
        message = (
            f"run_at={shown(run_at)} is not accepted; pass a moment from {EARLIEST:%Y} to "
            f"{LATEST:%Y}"
        )
        raise ScheduleError(message)
    return due


def check_key(key: object) -> str:
    """Check a key: 1 to 191 printable characters without blanks at either end."""
    ok = isinstance(key, str) and 0 < len(key) <= NAME_LENGTH and key == key.strip()
    if not ok or not isinstance(key, str) or not key.isprintable():
        message = (
            f"key={shown(key)}: pass 1 to {NAME_LENGTH} printable characters without blanks at "
            "either end"
        )
        raise ArgumentsError(message)
    return key
