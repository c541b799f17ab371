"""Enqueueing and once keys: what a request leaves behind, alone or in its own transaction."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from lazycron.arguments import Arguments, check_call, read_arguments, write_arguments
from lazycron.durations import Duration
from lazycron.errors import BusyError, ConfigurationError, KeyTakenError, UnknownTaskError
from lazycron.jobs import JOB_STATES, Enqueuer, Job, JobResult, Using, Wish
from lazycron.managing import Managing, Name, to_name
from lazycron.messages import readable_json, shown
from lazycron.once import AsyncOnce, First, Once
from lazycron.outcomes import State
from lazycron.parts import Parts
from lazycron.store import DatabaseError, Fault, JobRow, fault_of
from lazycron.store.joining import at_commit, in_connection, to_connection

logger = logging.getLogger("lazycron")

MOST_TRIES = 20
BUSY = (
    "the database file is being written by somebody else, perhaps by this very request: enqueue "
    "with connection= to join that transaction, or after it has ended"
)

T = TypeVar("T")


class Enqueuing(Managing):
    """The verbs about jobs and once keys."""

    waker: Callable[[], None] | None = None

    @property
    def enqueuer(self) -> Enqueuer:
        """The two functions by which a task reaches the store."""
        return Enqueuer(enqueue=self._enqueue, aenqueue=self._aenqueue)

    def enqueue(self, name: Name, /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call of a task, by its name.

        Raises UnknownTaskError, ArgumentsError and BusyError.
        """
        return self._enqueue(to_name(name), Wish(), args, kwargs)

    async def aenqueue(self, name: Name, /, *args: Any, **kwargs: Any) -> Job:
        """Do what `enqueue` does, from a coroutine."""
        return await self._aenqueue(to_name(name), Wish(), args, kwargs)

    def using(self, name: Name, **options: Any) -> Using:
        """Wish for more about a task's next job; see `Task.using`."""
        return Using(to_name(name), self.enqueuer).using(**options)

    def jobs(self, status: str | None = None, limit: int = 100) -> list[Job]:
        """Return jobs, the first due first: all, or the waiting, running or dead ones."""
        if status is not None and status not in JOB_STATES:
            message = f"status={shown(status)}: pass one of {', '.join(JOB_STATES)}"
            raise ConfigurationError(message)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            message = f"limit={shown(limit)}: pass a whole number from 1 up"
            raise ValueError(message)
        return [_to_job(row) for row in self._managing().store.jobs.listed(status, limit)]

    def retry_job(self, job_id: int) -> Job:
        """Start a dead job anew: due now, with all its attempts.

        Raises UnknownTaskError where there is no such job, BusyError for one that is not dead, and
        KeyTakenError, which names the holder, where another job has its key by now.
        """
        parts = self._managing()
        row = self._job(job_id)
        if row.state != State.DEAD:
            message = f"job {job_id} of {row.name} is {_to_job(row).status}, not dead"
            raise BusyError(message)
        key, now = read_arguments(row.arguments).key, self._moment(None)
        if not parts.store.jobs.retry(job_id, key, now):
            holder = key and parts.store.jobs.by_key(row.name, key)
            raise KeyTakenError(_taken(row.name, key or "", holder or None))
        self._tell(parts, now)
        return _to_job(self._job(job_id))

    def discard_job(self, job_id: int) -> None:
        """Delete a waiting or dead job.

        Raises UnknownTaskError where there is no such job, BusyError for a running one.
        """
        parts = self._managing()
        row = self._job(job_id)
        if not parts.store.jobs.discard(job_id, self._moment(None)):
            message = f"job {job_id} of {row.name} is running; it can be discarded afterwards"
            raise BusyError(message)
        self._refresh()

    def result(self, job_id: int) -> JobResult:
        """Tell what became of a job, from any process, its row gone or not."""
        parts = self._managing()
        row, run = parts.store.jobs.by_id(job_id), parts.store.jobs.last_run_of(job_id)
        status = _to_job(row).status if row else "unknown"
        if run is None:
            return JobResult(status=status)
        status = status if row else run.status
        error = None if run.status in ("ok", "postponed") else run.message
        return JobResult(status=status, value=run.result, error=error)

    def once(self, key: str, *, expires: Duration | None = None, connection: object = None) -> Once:
        """Guard an effect: `with cron.once(key) as first: if first: …`.

        The key is registered before the effect; a second registration is refused and counted. An
        exception gives it back, a crash keeps it, for ever or until it `expires`. With
        `connection=` key and effect are the caller's transaction: both or neither. Raises
        ArgumentsError for a key that is no text of 1 to 191 characters.
        """
        return self._once(key, expires=expires, connection=connection, task=None)

    def aonce(
        self, key: str, *, expires: Duration | None = None, connection: object = None
    ) -> AsyncOnce:
        """Do what `once` does, for `async with`; takes async connections and sessions too."""

        def once(joined: object) -> Once:
            return self._once(key, expires=expires, connection=joined, task=None)

        once(connection)  # a bad key is said here and not in the block
        return AsyncOnce(once, connection, _hop)

    def _once(
        self, key: str, *, expires: Duration | None, connection: object, task: str | None
    ) -> Once:
        return Once(_Keeper(self), key, task=task, expires=expires, connection=connection)

    # enqueueing

    def _enqueue(self, name: str, wish: Wish, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        arguments, due = self._checked(name, wish, args, kwargs)
        if wish.connection is not None:
            return self._enqueue_joined(name, wish, arguments, due, wish.connection)
        if wish.on_commit is not None:

            def write() -> None:
                self._enqueue_alone(name, wish, arguments, due)

            # A snapshot at the call: a list changed until the commit does not change the job.
            arguments = read_arguments(write_arguments(arguments))
            wish.on_commit(write)
            return _new_job(None, name, wish, arguments, due)
        return self._enqueue_alone(name, wish, arguments, due)

    async def _aenqueue(
        self, name: str, wish: Wish, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Job:
        if wish.connection is None and wish.on_commit is None:
            return await asyncio.to_thread(self._enqueue, name, wish, args, kwargs)
        if wish.connection is None:
            return self._enqueue(name, wish, args, kwargs)
        await asyncio.to_thread(self._managing)
        arguments, due = self._checked(name, wish, args, kwargs)

        def enqueue(joined: object) -> Job:
            return self._enqueue_joined(name, wish, arguments, due, joined)

        return await in_connection(wish.connection, enqueue)

    def _checked(
        self, name: str, wish: Wish, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Arguments, datetime]:
        task = self.parts.registry[name]
        arguments = Arguments(args, kwargs, wish.key)
        check_call(task.function, task.run_parameter, arguments)
        return arguments, wish.due(self._moment(None))

    def _enqueue_alone(self, name: str, wish: Wish, arguments: Arguments, due: datetime) -> Job:
        parts = self._managing()
        snapshot = write_arguments(arguments)
        try:
            job = self._put(None, name, wish, snapshot, due)
        except DatabaseError as error:
            if fault_of(error) is Fault.BUSY:
                raise BusyError(BUSY if parts.store.is_sqlite else None) from error
            raise
        self._tell(parts, due)
        return _with_arguments(job, wish, arguments)

    def _enqueue_joined(
        self, name: str, wish: Wish, arguments: Arguments, due: datetime, given: object
    ) -> Job:
        connection = to_connection(given)
        parts = self.parts
        job = self._put(connection, name, wish, write_arguments(arguments), due)
        at_commit(connection, lambda: self._mark(parts))
        self._mark(parts)
        return _with_arguments(job, wish, arguments)

    def _put(
        self,
        connection: Any,  # noqa: ANN401 - the store's own kind; only the store knows SQLAlchemy
        name: str,
        wish: Wish,
        snapshot: str,
        due: datetime,
    ) -> Job:
        """Insert the row, or settle with the one that holds its key."""
        store, now = self.parts.store.jobs, self._moment(None)
        for _ in range(MOST_TRIES):
            job_id = store.add(
                connection, name=name, key=wish.key, arguments=snapshot, due=due, now=now
            )
            if job_id is not None:
                return _new_job(job_id, name, wish, Arguments(), due)
            held = store.by_key(name, wish.key or "", connection)
            if held is None or held.key is None:
                continue  # it has ended between the two looks
            if wish.on_conflict == "raise":
                raise KeyTakenError(_taken(name, held.key, held))
            if wish.on_conflict == "keep":
                return replace(_to_job(held), created=False)
            if store.replace_arguments(connection, held.id, held.key, snapshot, due):
                return replace(_to_job(held), created=False, run_at=due)
        message = f"the holder of key {wish.key!r} of {name} changed at each of {MOST_TRIES} looks"
        raise BusyError(message)

    # waking up

    def _mark(self, parts: Parts) -> None:
        """Let this process's next looks ask the database whatever the state file says."""
        parts.facts.mark(parts.reference.monotonic())
        if self.waker is not None:
            self.waker()

    def _tell(self, parts: Parts, due: datetime) -> None:
        """Let the state file name the new row's due time, if it names a later one."""
        self._mark(parts)
        parts.facts.jobs_seen = True
        try:
            parts.tell_due(due)
        except DatabaseError:
            # The row is committed; who looks next, within a minute, finds it.
            logger.warning("the state file could not be refreshed", extra={"action": "no_refresh"})

    def _job(self, job_id: int) -> JobRow:
        if isinstance(job_id, bool) or not isinstance(job_id, int):
            message = f"job id {shown(job_id)}: pass a whole number"
            raise UnknownTaskError(message)
        row = self.parts.store.jobs.by_id(job_id)
        if row is None:
            message = f"no job has the id {job_id} (any more)"
            raise UnknownTaskError(message)
        return row


class _Keeper:
    """Once keys in the database, for the time of one block."""

    def __init__(self, cron: Enqueuing) -> None:
        self._cron = cron

    def register(
        self, key: str, task: str | None, expires: timedelta | None, connection: object
    ) -> First:
        now = self._cron._moment(None)  # noqa: SLF001 - one class in two halves
        until = None if expires is None else now + expires
        store, joined = self._open(connection)
        for _ in range(MOST_TRIES):
            if store.register_once(joined, key, task, now, until):
                return First(mine=True, task=task, created_at=now, finished_at=None)
            held = store.refuse_once(joined, key)
            if held is not None:
                return First(
                    mine=False,
                    task=held.task,
                    created_at=held.created_at,
                    finished_at=held.finished_at,
                )
        message = f"once key {key!r} was taken and given back at each of {MOST_TRIES} looks"
        raise BusyError(message)

    def finish(self, key: str, connection: object) -> None:
        store, joined = self._open(connection)
        store.finish_once(joined, key, self._cron._moment(None))  # noqa: SLF001 - as above

    def give_back(self, key: str, connection: object) -> None:
        store, joined = self._open(connection)
        store.give_back_once(joined, key)

    def _open(self, connection: object) -> tuple[Any, Any]:
        if connection is not None:
            return self._cron.parts.store.jobs, to_connection(connection)
        return self._cron._managing().store.jobs, None  # noqa: SLF001 - as above


async def _hop(connection: object, act: Callable[[object], T]) -> T:
    if connection is None:
        return await asyncio.to_thread(act, None)
    return await in_connection(connection, act)


def _new_job(job_id: int | None, name: str, wish: Wish, arguments: Arguments, due: datetime) -> Job:
    return Job(
        id=job_id,
        task=name,
        key=wish.key,
        args=arguments.args,
        kwargs=arguments.kwargs or {},
        run_at=due,
        status="unwritten" if job_id is None else "waiting",
        created=None if job_id is None else True,
    )


def _with_arguments(job: Job, wish: Wish, arguments: Arguments) -> Job:
    """Show the caller's own arguments, unless a job was given back that keeps its own."""
    if job.created is False and wish.on_conflict == "keep":
        return job
    return replace(job, args=arguments.args, kwargs=arguments.kwargs or {})


def _to_job(row: JobRow) -> Job:
    arguments = read_arguments(row.arguments)
    status = "dead" if row.state == State.DEAD else "running" if row.lock_token else "waiting"
    return Job(
        id=row.id,
        task=row.name,
        key=row.key if row.key is not None else arguments.key,
        args=arguments.args,
        kwargs=arguments.kwargs or {},
        run_at=row.scheduled_for if row.lock_token else row.next_run_at,
        status=status,
        attempts=row.attempts,
        message=row.last_message,
        progress=readable_json(row.progress),
        done=row.progress_done,
        total=row.progress_total,
    )


def _taken(name: str, key: str, holder: JobRow | None) -> str:
    who = f"job {holder.id}, which is {_to_job(holder).status}" if holder else "another job"
    return f"key {key!r} of {name} is held by {who}"
