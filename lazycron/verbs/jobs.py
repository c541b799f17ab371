"""Enqueueing: what a request leaves behind, alone or in its own transaction."""

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from lazycron.errors import (
    BusyError,
    ConfigurationError,
    KeyTakenError,
    UnknownTaskError,
)
from lazycron.model.arguments import (
    Arguments,
    ask_again,
    check_call,
    is_snapshot,
    read_arguments,
    write_arguments,
)
from lazycron.model.job import JOB_STATES, Enqueuer, Job, JobResult, Using, Wish
from lazycron.model.settle import State, Status
from lazycron.store import DatabaseError, JobRow, Jobs
from lazycron.store.joining import at_commit, in_connection, to_connection
from lazycron.texts import readable_json, shown
from lazycron.tick.tick import EARLIEST
from lazycron.verbs.once import Keeping
from lazycron.verbs.operator import Name, check_limit, on_tables, to_name
from lazycron.wiring import Parts

logger = logging.getLogger("lazycron")

MOST_TRIES = 20


class Enqueuing(Keeping):
    """The verbs about jobs."""

    @property
    def _enqueuer(self) -> Enqueuer:
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
        return Using(to_name(name), self._enqueuer).using(**options)

    @on_tables
    def jobs(self, status: str | None = None, limit: int = 100) -> list[Job]:
        """Return jobs, the first due first: all, or the waiting, running or dead ones."""
        if status is not None and status not in JOB_STATES:
            message = f"status={shown(status)}: pass one of {', '.join(JOB_STATES)}"
            raise ConfigurationError(message)
        check_limit("limit", limit)
        return [_to_job(row) for row in self._ready().store.jobs.listed(status, limit)]

    @on_tables
    def retry_job(self, job_id: int) -> Job:
        """Start a dead job anew: due now, with all its attempts, from its last checkpoint.

        Raises UnknownTaskError where there is no such job, BusyError for one that is not dead, and
        KeyTakenError, which names the holder, where another job has its key by now.
        """
        parts = self._managing()
        row = self._job(job_id)
        key, now = _to_job(row).key, self._moment(None)
        done = row.state == State.DEAD and parts.store.jobs.retry(job_id, key, now)
        if done is None and key is not None:
            raise KeyTakenError(_taken(row.name, key, parts.store.jobs.by_key(row.name, key)))
        if not done:
            message = f"job {job_id} of {row.name} is {_to_job(self._job(job_id)).status}, not dead"
            raise BusyError(message)
        self._tell(parts, now, now)
        return _to_job(self._job(job_id))

    @on_tables
    def release_job(self, job_id: int, *, force: bool = False) -> bool:
        """End a job's claim and record its run as lost; False where it is not running.

        The loss counts as an attempt: the job runs again, or is dead after its last one. Raises
        UnknownTaskError where there is no such job, and BusyError as `release` does.
        """
        parts = self._managing()
        row = self._job(job_id)
        what = f"job {job_id} of {row.name}"
        return self._release(lambda: parts.store.jobs.claim_of(job_id), what, force=force)

    @on_tables
    def discard_job(self, job_id: int) -> None:
        """Delete a waiting or dead job.

        Raises UnknownTaskError where there is no such job, BusyError for a running one.
        """
        parts = self._managing()
        row = self._job(job_id)
        if not parts.store.jobs.discard(job_id, self._moment(None)):
            self._job(job_id)  # gone by now?
            message = (
                f"job {job_id} of {row.name} is running; it can be discarded afterwards, or once "
                f"it is released (`lazycron release --job {job_id}`)"
            )
            raise BusyError(message)
        self._refresh()

    @on_tables
    def result(self, job_id: int) -> JobResult:
        """Tell what became of a job, from any process, its row gone or not."""
        _check_id(job_id)
        store = self._ready().store
        row, run = store.jobs.by_id(job_id), store.history.newest_of_job(job_id)
        if row is not None and run is not None and run.status == Status.OK:
            row = store.jobs.by_id(job_id)  # it may have ended between the two looks
        status = _to_job(row).status if row else "unknown"
        if run is None:
            return JobResult(status=status)
        failed = run.status in (Status.FAILED, Status.LOST)
        return JobResult(
            status=status if row else run.status,
            value=run.result,
            error=run.message if failed else None,
            message=run.message,
        )

    # enqueueing

    def _enqueue(self, name: str, wish: Wish, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        call = self._checked(name, wish, args, kwargs)
        if wish.connection is not None:
            return self._enqueue_joined(call, wish.connection)
        if wish.on_commit is None:
            return self._enqueue_alone(call)

        def write() -> None:
            self._enqueue_alone(call)

        wish.on_commit(write)
        return call.to_job(None)

    async def _aenqueue(
        self, name: str, wish: Wish, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Job:
        if wish.connection is None and wish.on_commit is None:
            return await asyncio.to_thread(self._enqueue, name, wish, args, kwargs)
        if wish.connection is None:
            return self._enqueue(name, wish, args, kwargs)
        call = await asyncio.to_thread(self._checked, name, wish, args, kwargs)

        def enqueue(joined: object) -> Job:
            return self._enqueue_joined(call, joined)

        return await in_connection(wish.connection, enqueue)

    def _checked(
        self, name: str, wish: Wish, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "_Call":
        task = self._parts.registry[name]
        arguments = Arguments(args, kwargs, wish.key)
        names = check_call(task.function, task.run_parameter, arguments)
        # A snapshot at the call: a list changed afterwards does not change the job.
        snapshot = write_arguments(arguments, names)
        if wish.connection is not None:
            self._ready()
        now = self._moment(None)
        due = wish.due(now)
        # A row made by a run of a tick is run in a later tick, also where a test's clock stands.
        earliest = EARLIEST.get()
        if earliest is not None and due < earliest:
            due = earliest
        return _Call(name, wish, arguments, snapshot, now, due)

    def _enqueue_alone(self, call: "_Call") -> Job:
        try:
            parts = self._ready()
            job = self._put(parts.store.jobs, None, call)
        except DatabaseError as error:
            self._say(error)
            raise
        self._tell(parts, call.due, call.now)
        return job

    def _enqueue_joined(self, call: "_Call", given: object) -> Job:
        connection = to_connection(given)
        parts = self._parts
        job = self._put(parts.store.jobs, connection, call)
        at_commit(connection, self._committed)
        self._mark(parts)
        return job

    def _put(self, store: Jobs, connection: Any, call: "_Call") -> Job:  # noqa: ANN401 - only the store knows SQLAlchemy
        """Insert the row, or settle with the one that holds its key."""
        name, key, wish = call.name, call.wish.key, call.wish
        for _ in range(MOST_TRIES):
            job_id = store.add(
                connection,
                name=name,
                key=key,
                arguments=call.snapshot,
                due=call.due,
                now=call.now,
            )
            if job_id is not None:
                return call.to_job(job_id)
            held = store.by_key(name, key or "", connection)
            if held is None or held.key is None:
                continue  # it has ended between the two looks
            if wish.on_conflict == "raise":
                raise KeyTakenError(_taken(name, held.key, held))
            if wish.on_conflict == "keep":
                return replace(_to_job(held), created=False)
            due, seen_for = call.due, held.scheduled_for
            token, snapshot = held.lock_token, call.snapshot
            if token is not None:
                snapshot = ask_again(snapshot, token, due)
            if store.replace_arguments(
                connection,
                held.id,
                held.key,
                token=token,
                seen=seen_for,
                arguments=snapshot,
                due=due,
            ):
                seen, job = read_arguments(snapshot), _to_job(held)
                kwargs = seen.kwargs or {}
                return replace(job, created=False, args=seen.args, kwargs=kwargs, run_at=due)
        message = f"the holder of key {key!r} of {name} changed at each of {MOST_TRIES} looks"
        raise BusyError(message)

    # waking up

    def _committed(self, connection: object) -> None:
        del connection
        self._mark(self._parts)

    def _mark(self, parts: Parts) -> None:
        """Let this process's next looks ask the database whatever the state file says."""
        parts.facts.mark(parts.reference.monotonic())
        parts.edge.wake()

    def _tell(self, parts: Parts, due: datetime, now: datetime) -> None:
        """Let the state file name the new row's due time, and this request look at its end."""
        parts.facts.jobs_seen = True
        parts.facts.lower_floor(due)
        try:
            parts.tell_due(due)
        except DatabaseError:
            # The row is committed; who looks next, within a minute, finds it.
            logger.warning("the state file could not be refreshed", extra={"action": "no_refresh"})
        if due <= now:
            parts.edge.wake()

    def _job(self, job_id: int) -> JobRow:
        _check_id(job_id)
        row = self._parts.store.jobs.by_id(job_id)
        if row is None:
            message = f"no job has the id {job_id} (any more)"
            raise UnknownTaskError(message)
        return row


@dataclass(frozen=True, slots=True)
class _Call:
    """One call to be enqueued: checked, with its arguments as they were, and when it is due."""

    name: str
    wish: Wish
    arguments: Arguments
    snapshot: str
    now: datetime
    due: datetime

    def to_job(self, job_id: int | None) -> Job:
        """Show what was enqueued."""
        args, kwargs = self.arguments.args, self.arguments.kwargs or {}
        if not all(map(is_snapshot, args)) or not all(map(is_snapshot, kwargs.values())):
            seen = read_arguments(self.snapshot)
            args, kwargs = seen.args, seen.kwargs or {}
        return Job(
            id=job_id,
            task=self.name,
            key=self.wish.key,
            args=args,
            kwargs=kwargs,
            run_at=self.due,
            status="unwritten" if job_id is None else "waiting",
            created=None if job_id is None else True,
        )


def _check_id(job_id: int) -> None:
    if isinstance(job_id, bool) or not isinstance(job_id, int) or not 0 < job_id < 2**63:
        message = f"job id {shown(job_id)}: pass a whole number from 1 up"
        raise UnknownTaskError(message)


def _to_job(row: JobRow) -> Job:
    try:
        arguments = read_arguments(row.arguments)
    except Exception:  # noqa: BLE001 - a hand has been there: the job is shown all the same
        arguments = Arguments()
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
