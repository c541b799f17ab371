"""What is wrong or advisable, each with what to do."""

from lazycron.parts import Parts
from lazycron.settings import SHORTEST_SECRET, Settings
from lazycron.status import Problem
from lazycron.store import DatabaseError, fault_of


def check(parts: Parts) -> list[Problem]:
    """Look at the secret, the database, the files and the switch; return what was found."""
    found = [*_secret(parts.settings), *_database(parts), *_files(parts)]
    if not parts.settings.is_on:
        text = "LAZYCRON=off (or enabled=False): no request and no loop runs tasks here"
        found.append(Problem("off", text))
    return found


def _secret(settings: Settings) -> list[Problem]:
    good, given = settings.good_secrets(), settings.all_secrets()
    if good and len(good) == len(given):
        return []
    what = "a secret is missing" if not given else "a secret is too short"
    off = "" if good else ", so the cron URL is off"
    text = f"{what}{off}: set secret= or LAZYCRON_SECRET to {SHORTEST_SECRET} characters or more"
    return [Problem("secret", text)]


def _database(parts: Parts) -> list[Problem]:
    try:
        if not parts.runner.install():
            return [Problem("tables", "the tables are missing: run `lazycron migrate`")]
        parts.refresh_state()
        rows, advice = parts.store.rows(), parts.store.advice()
    except DatabaseError as error:
        text = f"the database cannot be used ({type(error).__name__}: {fault_of(error)})"
        return [Problem("database", text)]
    found = [Problem("database_settings", text) for text in advice]
    unknown = [row.name for row in rows if row.enabled and row.name not in parts.registry]
    if unknown:
        names = ", ".join(unknown)
        text = f"rows without code here: {names}; `lazycron forget NAME` removes one"
        found.append(Problem("unknown_tasks", text))
    return found


def _files(parts: Parts) -> list[Problem]:
    problems = (("state_file", parts.statefile.problem), ("log_file", parts.logfile.problem))
    return [Problem(name, problem) for name, problem in problems if problem]
