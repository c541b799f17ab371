"""Which tasks and jobs need a person: hanging, late, failing again and again, or dead."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lazycron.durations import roughly
from lazycron.model.lateness import JOB_LATE_AFTER, is_job_late
from lazycron.model.settle import State
from lazycron.store import JobCounts, JobRow, TaskRow
from lazycron.texts import at
from lazycron.verbs.problem import MOST_NAMES, Problem
from lazycron.wiring import Parts

# One failure is what the retry is for, two may be an outage; after three a person should look.
MANY_FAILURES = 3
# A run that renews its lease for longer is named, though its interval may be longer still.
LONG_RUN = timedelta(hours=1)


def troubles(
    parts: Parts, rows: Iterable[TaskRow], counts: Mapping[str, JobCounts]
) -> list[Problem]:
    """Return what is wrong with the rows and jobs of the tasks that this process knows."""
    now, why = parts.reference.now(), parts.why
    found: list[Problem] = []
    for row in rows:
        if row.name in parts.registry:
            seen = _Seen(row, row.name, f"lazycron release {row.name}", why.is_late(row, now))
            found += _look(parts, seen, now, fails=row.enabled)
    dead: list[JobRow] = []
    for job in parts.store.jobs.in_trouble(MANY_FAILURES, now - JOB_LATE_AFTER):
        if job.name not in parts.registry:
            continue
        if job.state == State.DEAD:
            dead.append(job)
            continue
        late = is_job_late(job.last_run_at if job.lock_token else job.next_run_at, now)
        what, release = f"job {job.id} of {job.name}", f"lazycron release --job {job.id}"
        found += _look(parts, _Seen(job, what, release, late), now)
    return found + _dead(dead, counts)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A row, what it is called in a sentence, the command that frees it, and whether it is late."""

    row: TaskRow | JobRow
    what: str
    release: str
    late: bool


def _look(parts: Parts, seen: _Seen, now: datetime, *, fails: bool = True) -> list[Problem]:
    row, found = seen.row, []
    if row.lock_token is not None:
        found += _claimed(parts, seen, now)
    elif seen.late:
        text = (
            f"{seen.what} is late: it has been due for {roughly(now - row.next_run_at)}, since "
            f"{at(row.next_run_at)}; `lazycron why {row.name}` says what it waits for"
        )
        found.append(Problem("late", text))
    if fails and row.failures >= MANY_FAILURES:
        text = (
            f"{seen.what} has failed {row.failures} times in a row, last with {row.last_message}; "
            f"`lazycron history {row.name} --json` has the traceback"
        )
        found.append(Problem("failing", text))
    return found


def _claimed(parts: Parts, seen: _Seen, now: datetime) -> list[Problem]:
    claimed = parts.why.claimed
    said = f"{seen.what}: {claimed.about(seen.row, now, seen.release)}"
    if claimed.is_hanging(seen.row, now):
        return [Problem("hanging", said)]
    if seen.late:
        return [Problem("late", said)]
    began = seen.row.last_run_at
    if began is not None and now - began > LONG_RUN:
        return [Problem("long_run", said, "warning")]
    return []


def _dead(jobs: Sequence[JobRow], counts: Mapping[str, JobCounts]) -> list[Problem]:
    by_task: dict[str, list[JobRow]] = {}
    for job in jobs:
        by_task.setdefault(job.name, []).append(job)
    found = []
    for name, dead in by_task.items():
        ids = ", ".join(str(job.id) for job in dead[:MOST_NAMES])
        number = counts[name].dead
        text = (
            f"{name} has {number} dead job{'s' * (number > 1)} ({ids}), the first with "
            f"{dead[0].last_message}; `lazycron retry ID` starts one again, `lazycron discard ID` "
            "deletes it, and `lazycron jobs --status dead` lists all"
        )
        found.append(Problem("dead_jobs", text))
    return found
