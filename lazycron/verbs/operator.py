"""The verbs that change a task's row or the whole table; a name means the recurring row."""

from datetime import timedelta

from lazycron.clock import EPOCH
from lazycron.durations import Duration, to_duration
from lazycron.errors import BusyError, ConfigurationError, ScheduleError
from lazycron.migrate import migrate as migrate_tables
from lazycron.schedules.shaped import Every, Schedule, parse, with_rhythm
from lazycron.store import DatabaseError, TaskRow
from lazycron.store.jobs import HELD, LET_GO, hold_setting
from lazycron.tick.next_due import OFF, ON
from lazycron.tick.rescheduling import after_change
from lazycron.tick.sync import standing_of
from lazycron.verbs.base import (
    MOST_TRIES,
    Moment,
    Name,
    busy_now,
    manage,
    moment_of,
    on_tables,
    row_of,
    say,
    to_name,
)
from lazycron.wiring import Parts

SHORTEST_OVERRIDE = timedelta(seconds=60)
LONGEST_OVERRIDE = timedelta(days=30)


def sync(parts: Parts, now: Moment) -> bool:
    """Make rows for new tasks and store changed schedules; False: not installed yet."""
    try:
        if not parts.runner.install():
            return False
        parts.runner.look_at_clock()
        parts.sync.bring_in(moment_of(parts, now), by_clock=now is None)
        parts.refresh_state()
    except DatabaseError as error:
        if parts.runner.is_missing(error):
            return False
        say(parts, error, busy_now(parts))
        raise
    return True


@on_tables
def switch(parts: Parts, name: Name, *, enabled: bool) -> None:
    """Enable or disable a task."""
    name = to_name(name)
    manage(parts)
    # A driver may say that no row was changed where the row was as wanted already.
    if not parts.store.recurring.enable(name, enabled=enabled):
        task = parts.registry.get(name)
        if task is None or task.schedule is not None:
            row_of(parts, name)
        else:
            _hold(parts, name, enabled=enabled)
    parts.refresh_state()


def _hold(parts: Parts, name: str, *, enabled: bool) -> None:
    """Hold back the jobs of a task without a schedule, or let them go."""
    held = LET_GO if enabled else HELD
    parts.store.shared.put_setting(hold_setting(name), held, parts.reference.now())
    parts.store.jobs.hold(name, enabled=enabled)
    parts.facts.lower_floor(EPOCH)
    parts.facts.jobs_seen = True


@on_tables
def set_interval(parts: Parts, name: Name, duration: Duration) -> None:
    """Override a task's schedule by an interval."""
    length = to_duration(duration, what="interval", least=SHORTEST_OVERRIDE, most=LONGEST_OVERRIDE)
    _override(parts, to_name(name), Every(length))


@on_tables
def reset_schedule(parts: Parts, name: Name) -> None:
    """Take an operator's interval back."""
    _override(parts, to_name(name), None)


def _override(parts: Parts, name: str, rhythm: Every | None) -> None:
    manage(parts)
    for _ in range(MOST_TRIES):
        row = row_of(parts, name)
        own = _code_schedule(parts, row) if rhythm is None else _shaped(parts, rhythm, row)
        text = None if rhythm is None else own.text
        counts = parts.registry.seeded(name, own)
        place = after_change(standing_of(parts.registry, row), counts, parts.reference.now())
        if parts.store.recurring.override(row, text, place):
            parts.refresh_state()
            return
    message = f"the row of {name} changed at each of {MOST_TRIES} looks"
    raise BusyError(message)


def _shaped(parts: Parts, rhythm: Every, row: TaskRow) -> Schedule:
    """Give an interval the window and the jitter of the code's schedule."""
    try:
        return with_rhythm(rhythm, _code_schedule(parts, row))
    except ScheduleError:
        return rhythm


def _code_schedule(parts: Parts, row: TaskRow) -> Schedule:
    """Read the code's schedule from the row, or from the code where the row's cannot be read."""
    try:
        return parse(row.schedule or "")
    except ScheduleError:
        task = parts.registry.get(row.name)
        if task is None or task.schedule is None:
            raise
        return task.schedule


@on_tables
def forget(parts: Parts, name: Name) -> None:
    """Delete the row of a task whose code is gone."""
    name = to_name(name)
    manage(parts)
    if name in parts.registry:
        message = f"{name} is registered, so its row would come back; disable it instead"
        raise ConfigurationError(message)
    row_of(parts, name)
    if not parts.store.recurring.forget(name, parts.reference.now()):
        message = f"{name} is running; release it first"
        raise BusyError(message)
    parts.refresh_state()


@on_tables
def set_triggers(parts: Parts, *, traffic: bool | None, admin: bool | None) -> None:
    """Switch requests on or off as a trigger."""
    manage(parts)
    for name, value in (("traffic", traffic), ("admin", admin)):
        if value is None:
            continue
        if not isinstance(value, bool):
            message = f"{name}={value!r}: pass True or False"
            raise ConfigurationError(message)
        parts.store.shared.put_setting(name, ON if value else OFF, parts.reference.now())
    parts.refresh_state(settings=True)


@on_tables
def prune(parts: Parts) -> int:
    """Delete history beyond the settings and expired once keys; return how many runs went."""
    manage(parts)
    gone = sum(
        parts.store.history.prune_beyond(name, parts.settings.keep_runs)
        for name in (row.name for row in parts.store.recurring.all())
    )
    before = parts.reference.now() - parts.settings.keep_age
    after: int | None = 0
    while after is not None:
        deleted, after = parts.store.history.prune_older(before, after)
        gone += deleted
    while parts.store.once.prune(parts.reference.now()):
        pass
    return gone


def migrate(parts: Parts) -> None:
    """Bring the database's tables to this version's shape."""
    parts.runner.look_at_file()
    migrate_tables(parts.store.engine)
    parts.facts.installed = True


def note_action(
    parts: Parts, who: str, verb: str, name: str | None = None, detail: str = ""
) -> None:
    """Note in the database who did what; `why` names the last action on a task."""
    at = parts.reference.now()
    parts.store.shared.act(who=who, verb=verb, name=name, detail=detail, at=at)
