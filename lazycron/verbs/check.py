"""What is wrong or advisable, each with what to do."""

from datetime import timedelta

from lazycron.migrate import HEAD, revision_at
from lazycron.process import MOST_HANGING
from lazycron.schema import TABLES
from lazycron.settings import SHORTEST_SECRET, Settings
from lazycron.store import DatabaseError, said_by
from lazycron.texts import at
from lazycron.tick.reasons import unlooked
from lazycron.tick.strangers import strangers
from lazycron.verbs.once import doubtful_keys
from lazycron.verbs.problem import Problem, some
from lazycron.verbs.troubles import troubles
from lazycron.wiring import Parts

__all__ = ["Problem", "check"]

LARGEST_OFFSET = timedelta(seconds=1)


def check(parts: Parts) -> list[Problem]:
    """Look at the secret, the database, the files and the switch; return what was found.

    A warning is worth knowing; an error keeps something from working that was asked for.
    """
    found = [*_secret(parts.settings), *_database(parts), *_files(parts)]
    found += [*_clocks(parts), *_hanging(parts), *_unlooked(parts)]
    if not parts.settings.is_on:
        text = "LAZYCRON=off (or enabled=False): no request and no loop runs tasks here"
        found.append(Problem("off", text, "warning"))
    return found


def _secret(settings: Settings) -> list[Problem]:
    good, given = settings.good_secrets(), settings.all_secrets()
    if good and len(good) == len(given):
        return []
    what = "a secret is missing" if not given else "a secret is too short"
    off = "" if good else ", so the cron URL is off"
    text = f"{what}{off}: set secret= or LAZYCRON_SECRET to {SHORTEST_SECRET} characters or more"
    # The cron URL is optional; a secret that was set and does not count is a mistake.
    return [Problem("secret", text, "error" if given else "warning")]


def _database(parts: Parts) -> list[Problem]:
    try:
        if not parts.runner.install():
            return [_missing(parts.store.missing_tables())]
        missing = parts.store.missing_tables()
        if missing:
            return [_missing(missing)]
        parts.refresh_state()
        revision = revision_at(parts.store.engine)
        rows, advice = parts.store.recurring.all(), parts.store.advice()
        jobs = parts.store.jobs.counts()
        trouble = troubles(parts, rows, jobs) + doubtful_keys(parts, parts.reference.now())
    except DatabaseError as error:
        return [Problem("database", f"the database cannot be used ({said_by(error)})")]
    found = [Problem("database_settings", text, "warning") for text in advice]
    unreadable = [row.name for row in rows if not row.readable]
    if unreadable:
        text = (
            f"rows with a moment that cannot be read: {some(unreadable)}; somebody edited them: "
            "delete the row, and the next tick makes it again"
        )
        found.append(Problem("unreadable_rows", text, "error"))
    found += _revision(revision)
    if parts.facts.replaced_at is not None:
        text = (
            "the database file was replaced or deleted while this process ran; the file that is "
            f"there now was opened at {at(parts.facts.replaced_at)}"
        )
        found.append(Problem("database_replaced", text, "warning"))
    if parts.facts.outage is not None:
        text = (
            f"ticks have failed since {at(parts.facts.outage.since)} "
            f"({parts.facts.outage.error}), but the database can be read: it may be read-only"
        )
        found.append(Problem("outage", text))
    others = strangers(rows, parts.registry, parts.reference.now())
    if others:
        text = (
            f"tasks of other code are in this database: {some(sorted(others))}, seen until "
            f"{at(max(others.values()))}; if another app's, give each app a "
            "database of its own; if an older version's, `lazycron forget NAME` removes one"
        )
        found.append(Problem("other_code", text, "warning"))
    known = {*others, *(task.name for task in parts.registry)}
    unknown = [row.name for row in rows if row.enabled and row.name not in known]
    if unknown:
        text = f"rows without code here: {some(unknown)}; `lazycron forget NAME` removes one"
        found.append(Problem("unknown_tasks", text, "warning"))
    strange = sorted(name for name in jobs if name not in parts.registry)
    if strange:
        text = f"jobs of tasks without code here: {some(strange)}; they wait for the code"
        found.append(Problem("unknown_jobs", text, "warning"))
    return found + trouble


def _missing(tables: list[str]) -> Problem:
    """Name the tables that are not there, where some are."""
    some = f" ({', '.join(tables)})" if len(tables) < len(TABLES) else ""
    what = f"tables are missing{some}" if some else "the tables are missing"
    return Problem("tables", f"{what}: run `lazycron migrate`")


def _revision(found: str | None) -> list[Problem]:
    """Say that the tables are another version's; None: the app's own migrations made them."""
    if found is None or found == HEAD:
        return []
    text = f"the tables are at revision {found}, this version of lazycron needs {HEAD}: "
    text += "run `lazycron migrate`" if found < HEAD else "install the newer lazycron here, too"
    return [Problem("revision", text)]


def _clocks(parts: Parts) -> list[Problem]:
    """Name a host's clock that differs from the server's, and a clock that was moved."""
    found = []
    offset = parts.reference.offset
    if abs(offset) > LARGEST_OFFSET:
        way = "behind" if offset > timedelta(0) else "ahead of"
        text = (
            f"this host's clock is {abs(offset).total_seconds():.1f} s {way} the database "
            "server's, which decides when tasks are due: set both by the same time service"
        )
        found.append(Problem("clock", text, "warning"))
    step = parts.reference.last_step
    if step is not None:
        way = "forward" if step > timedelta(0) else "back"
        whose = "the database server's clock" if parts.reference.asks_server else "the clock"
        text = f"{whose} was set {way} by {abs(step).total_seconds():.1f} s while this process ran"
        found.append(Problem("clock_step", text, "warning"))
    if parts.facts.set_back_at is not None:
        text = (
            "rows had times in the future because a clock was set back; "
            f"they were moved at {at(parts.facts.set_back_at)}"
        )
        found.append(Problem("clock_set_back", text, "warning"))
    return found


def _hanging(parts: Parts) -> list[Problem]:
    """Say that no request of this process can tick any more."""
    hanging = parts.runner.activity.hanging(parts.settings.hanging_after)
    if hanging < MOST_HANGING:
        return []
    text = (
        f"all {hanging} tick threads of this process hang in a task: until one ends, its requests "
        "run nothing and its cron URL answers 503. `lazycron list` names the tasks, a restart "
        "ends them, and timeout= keeps it from happening again"
    )
    return [Problem("hanging_ticks", text)]


def _unlooked(parts: Parts) -> list[Problem]:
    """Say that processes of this host end before they have looked."""
    ended_at = parts.statefile.unlooked_at
    return [] if ended_at is None else [Problem("no_look", unlooked(ended_at))]


def _files(parts: Parts) -> list[Problem]:
    problems = (("state_file", parts.statefile.problem), ("log_file", parts.logfile.problem))
    return [Problem(name, problem, "warning") for name, problem in problems if problem]
