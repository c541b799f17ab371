"""The verbs that look: list, next, why, history, log, check, token."""

import dataclasses
from datetime import datetime, timedelta

import click

from lazycron.cli.failures import MISUSED, WRONG, Failed
from lazycron.cli.options import MAYBE_NAME, json_option, name_argument
from lazycron.cli.output import (
    Cell,
    as_json,
    at,
    cell,
    on_terminal,
    say,
    seen_from,
    stacked_from,
    table,
    took,
)
from lazycron.cli.progress import in_words
from lazycron.cli.session import Session, pass_session
from lazycron.durations import roughly
from lazycron.errors import UnknownTaskError
from lazycron.settings import SHORTEST_SECRET
from lazycron.tick.why import Reason
from lazycron.verbs.overview import TaskStatus

MOUNTED_AT = "/lazycron"
COLUMNS = (
    "name",
    "schedule",
    "enabled",
    "next",
    "last",
    "status",
    "ms",
    "failures",
    "notes",
    "message",
)
# What `--wide` shows, and the counter that it is.
WIDE = {
    "runs": "runs",
    "failed": "failures",
    "retries": "retries",
    "lost": "lost",
    "skipped": "missed",
    "keys refused": "refused",
    "late starts": "late",
    "waited: beat": "waited_beat",
    "waited: budget": "waited_budget",
    "waited: lock": "waited_lock",
    "longest wait": "most_lateness",
}
DURATIONS = ("waited_beat", "waited_budget", "waited_lock", "most_lateness")
STACKED = ("task", "next", "last", "status", "failures", "notes", "message")
# Words that a terminal shows in colour.
NOTED = {"late": "yellow", "hanging": "bold red", "failed": "red", "lost": "red"}
SEVERITIES = {"error": "bold red", "warning": "yellow"}
# The database could not be asked.
IN_THE_DARK = (Reason.NOT_INSTALLED, Reason.UNREACHABLE)


@click.command("list")
@click.option("--wide", is_flag=True, help="Show what was counted: retries, skips, waits, …")
@json_option
@pass_session
def list_(session: Session, *, wide: bool, json_: bool) -> None:
    """List every task: its schedule, when it runs next, and how it went."""
    cron = session.cron
    now = cron.settings.clock.now()
    found = cron.overview(now)
    if json_:
        as_json([dataclasses.asdict(one) for one in found])
    elif found and wide:
        table(("name", *WIDE), [[one.name, *_counted(one)] for one in found])
    elif found and on_terminal():
        table(STACKED, [_stack(one, now) for one in found], NOTED)
    elif found:
        table(COLUMNS, [_line(one, now) for one in found])
    else:
        say("No tasks.")


def _counted(one: TaskStatus) -> list[str]:
    return [
        roughly(timedelta(seconds=one.counters[name]))
        if name in DURATIONS
        else str(one.counters[name])
        for name in WIDE.values()
    ]


def _line(one: TaskStatus, now: datetime) -> list[str]:
    return [
        one.name,
        cell(one.schedule),
        "yes" if one.enabled else "no",
        seen_from(now, one.next),
        seen_from(now, one.last),
        cell(one.status),
        cell(one.ms),
        str(one.failures),
        cell(", ".join(_notes(one))),
        cell(one.message),
    ]


def _stack(one: TaskStatus, now: datetime) -> list[Cell]:
    """Write the same in fewer columns, with two lines in a cell: a terminal is narrow."""
    notes = _notes(one) if one.enabled else ["disabled", *_notes(one)]
    return [
        (one.name, one.schedule),
        stacked_from(now, one.next),
        stacked_from(now, one.last),
        (cell(one.status), took(one.ms)),
        str(one.failures),
        tuple(notes) or cell(None),
        cell(one.message),
    ]


def _notes(one: TaskStatus) -> list[str]:
    notes = {
        "running": one.running,
        "due": one.due,
        "late": one.late,
        "hanging": one.hanging,
        "unknown": not one.known,
        "overridden": one.overridden,
        in_words(one.progress, one.progress_done, one.progress_total): True,
    }
    return [note for note, holds in notes.items() if note and holds]


@click.command("next")
@name_argument
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True)
@json_option
@pass_session
def next_(session: Session, name: str, count: int, *, json_: bool) -> None:
    """Show when a task will be due next, by its zone's clocks and in UTC."""
    cron = session.cron
    now = cron.settings.clock.now()
    try:
        found, zone = cron.upcoming(name, count), cron.zone_of(name)
    except UnknownTaskError:
        task = cron.registry.get(name)
        if task is None or task.schedule is not None:
            raise
        message = f"{name} has no schedule: it runs when it is enqueued"
        raise Failed(message, MISUSED) from None
    if json_:
        as_json([{"local": one.astimezone(zone).isoformat(), "utc": one} for one in found])
        return
    status = next(one for one in cron.overview() if one.name == name)
    say(f"{name}: {status.schedule}{'' if status.enabled else ', but disabled'}")
    rows = [
        [f"{one.astimezone(zone):%a %Y-%m-%d %H:%M:%S %z}", at(one), _in(one, now)] for one in found
    ]
    table([f"local ({zone})", "UTC", "when"], rows)


def _in(moment: datetime, now: datetime) -> str:
    return seen_from(now, moment).partition(" (")[0]


@click.command()
@name_argument
@json_option
@pass_session
def why(session: Session, name: str, *, json_: bool) -> None:
    """Say why a task is not running now, and what would make it run."""
    found = session.cron.why(name)
    if found.reason is Reason.UNKNOWN_NAME:
        message = f"{found.text}: {name!r}; `lazycron list` shows all tasks"
        raise Failed(message, MISUSED)
    if json_:
        as_json({"task": name, "reason": found.reason, "text": found.text})
    else:
        say(f"{name}: {found.text}")
    if found.reason in IN_THE_DARK:
        raise click.exceptions.Exit(WRONG)


@click.command()
@MAYBE_NAME
@click.option("--limit", type=click.IntRange(min=1), default=40, show_default=True)
@json_option
@pass_session
def history(session: Session, name: str | None, limit: int, *, json_: bool) -> None:
    """Show the newest runs, newest first, of one task or of all.

    With --json each failed run has its traceback.
    """
    found = session.cron.history(name, limit)
    if json_:
        as_json([dataclasses.asdict(one) for one in found])
        return
    if not found:
        say("No runs.")
        return
    headings = ["started", "task", "status", "took", "trigger", "attempt", "host", "message"]
    rows = [
        [
            at(one.started_at),
            one.task,
            one.status,
            took(one.ms),
            one.trigger,
            str(one.attempt),
            f"{one.host}:{one.pid}" if one.host else cell(None),
            cell(one.message),
        ]
        for one in found
    ]
    table(headings, rows)


@click.command()
@click.option("--lines", type=click.IntRange(min=1), default=40, show_default=True)
@json_option
@pass_session
def log(session: Session, lines: int, *, json_: bool) -> None:
    """Show the newest lines of this host's log file, newest first."""
    found = session.cron.log_tail(lines)
    if json_:
        as_json(found)
        return
    for line in found:
        say(line)


@click.command()
@json_option
@pass_session
def check(session: Session, *, json_: bool) -> None:
    """Say what is wrong or advisable; exit code 1 for an error, and 0 for warnings alone."""
    problems = session.cron.check()
    if json_:
        as_json([dataclasses.asdict(one) for one in problems])
    elif problems:
        rows = [[one.severity, one.name, one.text] for one in problems]
        table(["severity", "problem", "what to do"], rows, SEVERITIES)
    else:
        say("All is well.")
    if any(one.severity == "error" for one in problems):
        raise click.exceptions.Exit(WRONG)


@click.command()
@json_option
@pass_session
def token(session: Session, *, json_: bool) -> None:
    """Show the cron token, and the path for an uptime monitor to visit.

    The path is right where the middleware has its default path=.
    """
    found = session.cron.cron_token
    if found is None:
        message = (
            "there is no cron token without a secret: set secret= or LAZYCRON_SECRET to "
            f"{SHORTEST_SECRET} characters or more"
        )
        raise Failed(message)
    if json_:
        as_json({"token": found, "path": f"{MOUNTED_AT}/{found}"})
        return
    say(f"token  {found}")
    say(f"path   {MOUNTED_AT}/{found}")


VERBS = (list_, next_, why, history, log, check, token)
