"""The verbs that read: when a task runs, why it does not, and what has happened."""

from dataclasses import replace
from datetime import datetime, tzinfo

from lazycron.clock import Moments
from lazycron.schedules.shaped import to_zone
from lazycron.statefile import State
from lazycron.store import DatabaseError, RunRecord, TaskRow, said_by
from lazycron.tick.why import Explanation, Surroundings, with_jobs
from lazycron.verbs.base import (
    Moment,
    Name,
    check_limit,
    held_names,
    manage,
    moment_of,
    on_tables,
    row_of,
    to_name,
)
from lazycron.wiring import Parts

MANY_REFUSED = 10
# As many running jobs as `why` tells of one by one.
MOST_JOBS = 3


@on_tables
def upcoming(parts: Parts, name: Name, count: int, now: Moment) -> list[datetime]:
    """Return when a task will be due next."""
    check_limit("count", count)
    manage(parts)
    moment, row = moment_of(parts, now), row_of(parts, to_name(name))
    schedule = parts.registry.schedule_of(row.name, row.schedule_now)
    nominal, due = row.scheduled_for, row.next_run_at
    found: list[datetime] = []
    if row.running:
        start = row.last_run_at or moment
        nominal = schedule.after_run(nominal, start)
        due = schedule.due_for(nominal, start)
    while len(found) < count:
        start = schedule.admitted(max(due, moment))
        found.append(start)
        nominal = schedule.after_run(nominal, start)
        due = schedule.due_for(nominal, start)
    return found


def zone_of(parts: Parts, name: Name) -> tzinfo:
    """Return the zone whose clocks a task goes by."""
    row = row_of(parts, to_name(name))
    zone = parts.registry.schedule_of(row.name, row.schedule_now).zone
    return zone or to_zone(parts.settings.tz)


def why(parts: Parts, name: Name, now: Moment) -> Explanation:
    """Say why a task is not running now and what would make it run."""
    name, moment = to_name(name), moment_of(parts, now)
    try:
        if not parts.runner.install():
            return parts.why.not_installed()
        row = parts.store.recurring.of(name)
        refused = parts.store.once.refused().get(name, 0)
        jobs = parts.store.jobs.counts().get(name)
        runs = _runs_of(parts, name, row) if refused else 0
        around = _surroundings(parts)
        task = parts.registry.get(name)
        found = parts.why.about(task, row, moment, around=around)
        if row is None and task is not None and name in held_names(parts):
            found = parts.why.held(name)
        running = _running_jobs(parts, name, moment) if jobs and jobs.running else []
    except DatabaseError as error:
        if parts.runner.is_missing(error):
            return parts.why.not_installed()
        return parts.why.unreachable(said_by(error))
    found = with_jobs(found, name, jobs, running)
    also = about_refusals(name, refused, runs)
    return found if also is None else replace(found, text=f"{found.text}. {also}")


def _running_jobs(parts: Parts, name: str, now: datetime) -> list[Explanation]:
    """Say of the oldest running jobs since when and where they run."""
    found = []
    for row in parts.store.jobs.running_of(name)[:MOST_JOBS]:
        said = parts.why.claimed.about(row, now, f"lazycron release --job {row.id}")
        found.append(replace(said, text=f"job {row.id}: {said.text}"))
    return found


def _runs_of(parts: Parts, name: str, row: TaskRow | None) -> int:
    """Count a task's runs: by its row, else what the history still holds of its jobs."""
    if row is not None:
        return row.counters.get("runs", 0)
    return parts.store.history.counted([name])[name].counters.get("runs", 0)


def _surroundings(parts: Parts) -> Surroundings:
    parts.refresh.know_installation(parts.reference.now())
    seen = parts.statefile.peek()
    state = parts.statefile.read(parts.settings.clock.now())
    return Surroundings(
        state=state or parts.refresh.unwritten(Moments(parts.reference)),
        looked_at=None if seen is None else seen.written_at,
        unwritable=parts.statefile.trouble,
        unlooked_at=parts.statefile.unlooked_at,
    )


def about_refusals(name: str, refused: int, runs: int) -> str | None:
    """Say that a task's once keys are refused so often that its runs seem to overlap."""
    if refused < MANY_REFUSED or refused * 10 < runs:
        return None
    return (
        f"{refused} once keys of {name} were refused: its effects were asked for again. A lease or "
        "a time-out is probably too short: the task's own, or its caller's"
    )


@on_tables
def history(parts: Parts, name: Name | None, limit: int) -> list[RunRecord]:
    """Return the newest runs, newest first, of one task or of all."""
    check_limit("limit", limit)
    wanted = None if name is None else to_name(name)
    manage(parts)
    found = parts.store.history.newest(wanted, limit)
    if not found and wanted is not None and wanted not in parts.registry:
        row_of(parts, wanted)
    return found


def log_tail(parts: Parts, lines: int) -> list[str]:
    """Return the newest lines of this host's log file, newest first."""
    check_limit("lines", lines)
    return parts.logfile.tail(lines)


@on_tables
def state(parts: Parts) -> State:
    """Return what the state file says, or what the database says where the file says nothing."""
    found = parts.statefile.read(parts.settings.clock.now())
    if found is not None:
        return found
    manage(parts)
    return parts.refresh_state()
