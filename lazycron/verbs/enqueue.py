"""Enqueueing: what a request leaves behind, alone or in its own transaction."""

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from lazycron.errors import BusyError, KeyTakenError
from lazycron.model.arguments import (
    Arguments,
    check_call,
    is_snapshot,
    read_arguments,
    write_arguments,
)
from lazycron.model.job import Enqueuer, Job, Wish
from lazycron.store import DatabaseError, JobRow, Jobs
from lazycron.store.joining import at_commit, in_connection, to_connection
from lazycron.tick.tick import EARLIEST
from lazycron.verbs.base import (
    MOST_TRIES,
    WRITING,
    GetParts,
    is_ready,
    ready,
    refuse_in_loop,
    say,
)
from lazycron.verbs.jobs import taken, tell, to_job
from lazycron.wiring import Parts

BUSY = (
    f"{WRITING}join that one with connection=, or enqueue after its commit (on_commit=, or later "
    "in the code)"
)


def enqueuer_of(get_parts: GetParts) -> Enqueuer:
    """Return the two functions by which a task reaches the store."""
    return Enqueuer(enqueue=partial(enqueue, get_parts), aenqueue=partial(aenqueue, get_parts))


def enqueue(
    get_parts: GetParts, name: str, wish: Wish, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Job:
    """Enqueue a call: at once, in the caller's transaction, or after its commit.

    Only the first form is refused where an event loop runs in this thread: the second uses the
    caller's own connection, and the callback of the third comes too late for an error.
    """
    if wish.connection is None and wish.on_commit is None:
        refuse_in_loop("enqueue", "await aenqueue(…)")
    call = _checked(get_parts(), name, wish, args, kwargs)
    if wish.connection is not None:
        return _enqueue_joined(get_parts(), call, wish.connection)
    if wish.on_commit is None:
        return _enqueue_alone(get_parts(), call)

    def write() -> None:
        _enqueue_alone(get_parts(), call)

    wish.on_commit(write)
    return call.to_job(None)


async def aenqueue(
    get_parts: GetParts, name: str, wish: Wish, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Job:
    """Do what `enqueue` does, from a coroutine."""
    if wish.connection is None and wish.on_commit is None:
        return await asyncio.to_thread(enqueue, get_parts, name, wish, args, kwargs)
    if wish.connection is None:
        return enqueue(get_parts, name, wish, args, kwargs)
    parts = get_parts()
    call = await asyncio.to_thread(_checked, parts, name, wish, args, kwargs)
    return await in_connection(wish.connection, partial(_enqueue_joined, parts, call))


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


def _checked(
    parts: Parts, name: str, wish: Wish, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Call:
    task = parts.registry[name]
    arguments = Arguments(args, kwargs, wish.key)
    names = check_call(task.function, task.run_parameter, arguments)
    # A snapshot at the call: a list changed afterwards does not change the job.
    snapshot = write_arguments(arguments, names)
    if wish.connection is not None and not is_ready(parts):
        ready(parts)
    now = parts.reference.now()
    due = wish.due(now)
    # A row made by a run of a tick is run in a later tick, also where a test's clock stands still.
    earliest = EARLIEST.get()
    if earliest is not None and due < earliest:
        due = earliest
    return _Call(name, wish, arguments, snapshot, now, due)


def _enqueue_alone(parts: Parts, call: _Call) -> Job:
    try:
        ready(parts)
        job = _put(parts.store.jobs, None, call)
    except DatabaseError as error:
        say(parts, error, BUSY if parts.store.is_sqlite else None)
        raise
    tell(parts, call.due, call.now)
    return job


def _enqueue_joined(parts: Parts, call: _Call, given: object) -> Job:
    connection = to_connection(given)
    ready(parts, connection)
    job = _put(parts.store.jobs, connection, call)
    at_commit(connection, parts.note_commit)
    parts.note_commit()
    return job


def _put(store: Jobs, connection: Any, call: _Call) -> Job:  # noqa: ANN401 - only the store knows SQLAlchemy
    """Insert the row, or settle with the one that holds its key."""
    name, key = call.name, call.wish.key
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
        if call.wish.on_conflict == "raise":
            raise KeyTakenError(taken(name, held.key, held))
        if call.wish.on_conflict == "keep":
            return replace(to_job(held), created=False)
        job = _replace(store, connection, call, held, held.key)
        if job is not None:
            return job
    message = f"the holder of key {key!r} of {name} changed at each of {MOST_TRIES} looks"
    raise BusyError(message)


def _replace(store: Jobs, connection: Any, call: _Call, held: JobRow, key: str) -> Job | None:  # noqa: ANN401 - as above
    """Give the holder of the key this call's arguments; None where it has changed meanwhile."""
    if not store.replace_arguments(
        connection,
        held.id,
        key,
        token=held.lock_token,
        seen=held.scheduled_for,
        arguments=call.snapshot,
        due=call.due,
        now=call.now,
    ):
        return None
    seen = read_arguments(call.snapshot)
    return replace(
        to_job(held), created=False, args=seen.args, kwargs=seen.kwargs or {}, run_at=call.due
    )
