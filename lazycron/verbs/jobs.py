"""The verbs about jobs that are there: list them, start a dead one again, discard one."""

import logging
from datetime import datetime

from lazycron.errors import BusyError, ConfigurationError, KeyTakenError, UnknownTaskError
from lazycron.model.arguments import Arguments, read_arguments
from lazycron.model.job import JOB_STATES, Job, JobResult
from lazycron.model.settle import State, Status
from lazycron.model.values import readable_value
from lazycron.store import DatabaseError, JobRow
from lazycron.texts import shown
from lazycron.verbs.base import check_limit, manage, on_tables, ready
from lazycron.wiring import Parts

logger = logging.getLogger("lazycron")


@on_tables
def jobs(parts: Parts, status: str | None, limit: int) -> list[Job]:
    """Return jobs, the first due first: all, or those of one status."""
    if status is not None and status not in JOB_STATES:
        message = f"status={shown(status)}: pass one of {', '.join(JOB_STATES)}"
        raise ConfigurationError(message)
    check_limit("limit", limit)
    ready(parts)
    return [to_job(row) for row in parts.store.jobs.listed(status, limit)]


@on_tables
def retry_job(parts: Parts, job_id: int) -> Job:
    """Start a dead job again."""
    manage(parts)
    store, row, now = parts.store.jobs, job_row(parts, job_id), parts.reference.now()
    key = to_job(row).key
    done = row.state == State.DEAD and store.retry(job_id, row.name, key, now)
    if done is None and key is not None:
        raise KeyTakenError(taken(row.name, key, store.by_key(row.name, key)))
    if not done:
        status = to_job(job_row(parts, job_id)).status
        message = f"job {job_id} of {row.name} is {status}, not dead"
        raise BusyError(message)
    tell(parts, now, now)
    return to_job(job_row(parts, job_id))


@on_tables
def discard_job(parts: Parts, job_id: int) -> None:
    """Delete a waiting or dead job."""
    manage(parts)
    row = job_row(parts, job_id)
    if not parts.store.jobs.discard(job_id, parts.reference.now()):
        job_row(parts, job_id)  # gone by now?
        message = (
            f"job {job_id} of {row.name} is running; discard it once it has ended, or release it "
            f"first (`lazycron release --job {job_id}`)"
        )
        raise BusyError(message)
    parts.refresh_state()


@on_tables
def result(parts: Parts, job_id: int) -> JobResult:
    """Tell what became of a job."""
    _check_id(job_id)
    ready(parts)
    store = parts.store
    row, run = store.jobs.by_id(job_id), store.history.newest_of_job(job_id)
    if row is not None and run is not None and run.status == Status.OK:
        row = store.jobs.by_id(job_id)  # it may have ended between the two looks
    status = to_job(row).status if row else "unknown"
    if run is None:
        return JobResult(status=status)
    failed = run.status in (Status.FAILED, Status.LOST)
    return JobResult(
        status=status if row else run.status,
        value=run.result,
        error=run.message if failed else None,
        message=run.message,
    )


def tell(parts: Parts, due: datetime, now: datetime) -> None:
    """Let the state file name a new row's due time, and this request look at its end."""
    parts.facts.jobs_seen = True
    parts.facts.lower_floor(due)
    try:
        parts.tell_due(due)
    except DatabaseError:
        # The row is committed; the next look at the database, within a minute, finds it.
        logger.warning("the state file could not be refreshed", extra={"action": "no_refresh"})
    if due <= now:
        parts.edge.wake()


def job_row(parts: Parts, job_id: int) -> JobRow:
    """Return a job's row; raises UnknownTaskError where there is none."""
    _check_id(job_id)
    row = parts.store.jobs.by_id(job_id)
    if row is None:
        message = f"no job has the id {job_id} (any more)"
        raise UnknownTaskError(message)
    return row


def _check_id(job_id: int) -> None:
    if isinstance(job_id, bool) or not isinstance(job_id, int) or not 0 < job_id < 2**63:
        message = f"job id {shown(job_id)}: pass a whole number from 1 up"
        raise UnknownTaskError(message)


def to_job(row: JobRow) -> Job:
    """Show a job's row."""
    try:
        arguments = read_arguments(row.arguments)
    except Exception:  # noqa: BLE001 - edited by hand: the job is shown all the same
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
        progress=readable_value(row.progress),
        done=row.progress_done,
        total=row.progress_total,
        started_at=row.last_run_at if status == "running" else None,
    )


def taken(name: str, key: str, holder: JobRow | None) -> str:
    """Say which job holds a key."""
    who = f"job {holder.id}, which is {to_job(holder).status}" if holder else "another job"
    return f"key {key!r} of {name} is held by {who}"
