"""The guestbook's chores. No cron and no worker runs them: visits do."""

import asyncio
import os
import secrets
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from filelock import FileLock

from example_app.guestbook import Guestbook
from lazycron import LazyCron, Postpone, Retry, Run

DATA = Path(os.environ.get("EXAMPLE_DATA", "example_data")).absolute()
DATA.mkdir(parents=True, exist_ok=True)

ISTANBUL = "Europe/Istanbul"
KEPT = timedelta(hours=1)
STEPS = 10
STEP_SECONDS = float(os.environ.get("EXAMPLE_STEP_SECONDS", "0.5"))


def development_secret(path: Path) -> str:
    """Return the secret in a file, made up at the first start; production sets LAZYCRON_SECRET."""
    with FileLock(f"{path}.lock"):  # several workers may start at once
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(32), encoding="ascii")
        return path.read_text(encoding="ascii")


guestbook = Guestbook(DATA / "guestbook.db")
cron = LazyCron(
    f"sqlite:///{guestbook.path}",
    secret=os.environ.get("LAZYCRON_SECRET") or development_secret(DATA / "secret.txt"),
)


def now() -> datetime:
    """Ask lazycron's clock, so that a test which moves it moves the whole app."""
    return cron.settings.clock.now()


@cron.task(every="minute", first_run="5s")
def statistics() -> str:
    """Count entries and people for the line above the guestbook."""
    entries, people = guestbook.count()
    text = f"{entries} entries by {people} people."
    guestbook.note("statistics", text)
    return text


@cron.task(every="5m", first_run="soon")
def old_entries() -> str:
    """Remove entries older than an hour."""
    return f"{guestbook.remove_before(now() - KEPT)} removed."


@cron.task(crontab="0 7 * * *", tz=ISTANBUL)
def daily_digest(run: Run) -> str | Postpone:
    """Write a file with the newest entries, at seven in the morning in Istanbul."""
    entries = guestbook.newest()
    if not entries:
        return Postpone("30m", reason="Nobody has written anything yet.")
    # Named by the day it was due, and replaced whole: running it twice does no harm.
    day = run.scheduled_for.astimezone(ZoneInfo(ISTANBUL)).date()
    lines = [f"{entry.written_at:%H:%M} UTC  {entry.name}: {entry.text}\n" for entry in entries]
    beside = DATA / f"digest-{day}.tmp"
    beside.write_text("".join(lines), encoding="utf-8")
    beside.replace(DATA / f"digest-{day}.txt")
    return f"{len(lines)} entries in digest-{day}.txt."


@cron.task(every="30s", first_run="10s", retry=Retry(base="10s", cap="10m"))
def bell() -> str:
    """Ring the bell; fails while its rope is cut."""
    if guestbook.noted("rope") == "cut":
        message = "somebody has cut the rope"
        raise RuntimeError(message)
    return "Ding dong."


@cron.task
def thanks(name: str) -> str:
    """Thank who has signed; enqueued by the form, and run after its response."""
    text = f"Thank you, {name}!"
    guestbook.note("thanks", text)
    return text


@cron.task(every="2m", first_run="20s", timeout="1m")
async def long_walk(run: Run) -> str | Postpone:
    """Walk ten steps, noting each, and go on from there after an interruption."""
    for step in range(run.progress or 0, STEPS):
        if run.should_stop():
            return Postpone(0, reason=f"Interrupted after {step} steps.")
        await asyncio.sleep(STEP_SECONDS)
        await run.acheckpoint(step + 1, done=step + 1, total=STEPS)
    return f"Walked {STEPS} steps."
