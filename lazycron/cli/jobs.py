"""The verbs about jobs: list them, enqueue one, start a dead one again, discard one; and prune."""

import dataclasses
import json
from datetime import datetime
from typing import Any

import click

from lazycron.cli.options import DurationType, json_option, name_argument
from lazycron.cli.output import as_json, cell, say, seen_from, table
from lazycron.cli.progress import in_words
from lazycron.cli.session import Session, pass_session
from lazycron.durations import Duration, roughly
from lazycron.model.job import JOB_STATES, Job
from lazycron.model.lateness import is_job_late

HEADINGS = ("id", "task", "key", "status", "due", "attempts", "progress", "arguments", "message")
LONGEST_CALL = 60

job_argument = click.argument("job_id", metavar="ID", type=click.IntRange(min=1))


@click.command()
@click.option("--status", type=click.Choice(JOB_STATES), help="Only these.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@json_option
@pass_session
def jobs(session: Session, status: str | None, limit: int, *, json_: bool) -> None:
    """List jobs, the first due first: waiting, running and dead ones."""
    cron = session.cron
    found = cron.jobs(status, limit)
    if json_:
        as_json([_facts(job) for job in found])
    elif found:
        now = cron.settings.clock.now()
        table(HEADINGS, [_line(job, now) for job in found])
    else:
        say("No jobs." if status is None else f"No {status} jobs.")


def _facts(job: Job) -> dict[str, Any]:
    facts = dataclasses.asdict(job)
    del facts["created"]  # it says nothing of a job that is looked up
    return facts


def _line(job: Job, now: datetime) -> list[str]:
    return [
        str(job.id),
        job.task,
        cell(job.key),
        _status(job, now),
        cell(None) if job.status == "dead" else seen_from(now, job.run_at),
        str(job.attempts),
        cell(in_words(job.progress, job.done, job.total)),
        cell(_call(job)),
        cell(job.message),
    ]


def _status(job: Job, now: datetime) -> str:
    if job.status == "running" and job.started_at is not None:
        late = ", late" * is_job_late(job.started_at, now)
        return f"running for {roughly(now - job.started_at)}{late}"
    return job.status + ", late" * (job.status == "waiting" and is_job_late(job.run_at, now))


def _call(job: Job) -> str:
    values = [repr(value) for value in job.args]
    values += [f"{name}={value!r}" for name, value in job.kwargs.items()]
    text = ", ".join(values)
    return text if len(text) <= LONGEST_CALL else text[: LONGEST_CALL - 4] + " ..."


@click.command()
@name_argument
@click.argument("arguments", metavar="[JSON]", required=False, default="[]")
@click.option("--key", help="At most one job with this key waits or runs.")
@click.option("--delay", type=DurationType(), help="Make the job due after this duration.")
@click.option(
    "--on-conflict",
    type=click.Choice(["keep", "replace", "raise"]),
    default="keep",
    show_default=True,
    help="What to do if another job has the key.",
)
@json_option
@pass_session
def enqueue(
    session: Session,
    name: str,
    arguments: str,
    *,
    key: str | None,
    delay: Duration | None,
    on_conflict: str,
    json_: bool,
) -> None:
    """Enqueue a call of a task and print the job's id.

    JSON is a list of arguments, or an object of named ones: lazycron enqueue send '["ada", 3]'
    """
    args, kwargs = _read(arguments)
    wish = session.cron.using(name, key=key, delay=delay, on_conflict=on_conflict)
    job = wish.enqueue(*args, **kwargs)
    session.acted("enqueue", name, f"job {job.id}{'' if job.created else ' was there already'}")
    if json_:
        as_json(dataclasses.asdict(job))
    else:
        say(str(job.id))


def _read(text: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"JSON cannot be read: {error}"
        raise click.UsageError(message) from None
    if isinstance(found, list):
        return found, {}
    if isinstance(found, dict):
        return [], found
    message = "JSON is a list of arguments, or an object of named ones"
    raise click.UsageError(message)


@click.command()
@job_argument
@pass_session
def retry(session: Session, job_id: int) -> None:
    """Start a dead job again: due now, with all its attempts."""
    job = session.cron.retry_job(job_id)
    session.acted("retry", job.task, f"job {job_id}")
    say(f"Job {job_id} of {job.task} is due now.")


@click.command()
@job_argument
@pass_session
def discard(session: Session, job_id: int) -> None:
    """Delete a job that waits or is dead."""
    session.cron.discard_job(job_id)
    session.acted("discard", None, f"job {job_id}")
    say(f"Job {job_id} is discarded.")


@click.command()
@pass_session
def prune(session: Session) -> None:
    """Delete history beyond keep_runs and keep_age, and expired once keys."""
    gone = session.cron.prune()
    session.acted("prune", None, f"{gone} runs")
    say(f"{gone} run{'' if gone == 1 else 's'} deleted.")


VERBS = (jobs, enqueue, retry, discard, prune)
