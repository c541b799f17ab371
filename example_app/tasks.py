"""The guestbook's chores. No cron and no worker runs them: visits do."""

import asyncio
import os
import secrets
import time
from collections.abc import Generator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from filelock import FileLock

from example_app.guestbook import Guestbook
from lazycron import LazyCron, Postpone, Retry, Run

DATA = Path(os.environ.get("EXAMPLE_DATA", "example_data")).absolute()
OUTBOX = DATA / "outbox"
OUTBOX.mkdir(parents=True, exist_ok=True)

ISTANBUL = "Europe/Istanbul"
KEPT = timedelta(hours=1)
STEPS = 10
PIECE = 2
STEP_SECONDS = float(os.environ.get("EXAMPLE_STEP_SECONDS", "0.5"))


def development_secret(path: Path) -> str:
    """Return the secret in a file, made at the first start; production sets LAZYCRON_SECRET."""
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
    """Ask lazycron's clock, so that a test that moves it moves the whole app."""
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
    # The file is named after the due day and replaced as a whole: a second run does no harm.
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
        message = "the rope is cut"
        raise RuntimeError(message)
    return "Ding dong."


@cron.task(retry=Retry(limit=2, base="10s"))
def mail(run: Run, number: int) -> str:
    """Mail an entry to the owner: a file in the outbox; enqueued by the form."""
    entry = guestbook.entry(number)
    if entry is None:
        return "The entry is gone."
    with run.once(f"mail-{number}") as first:
        if not first:
            return "It was mailed before."
        if "bounce" in entry.text:  # in here, so that a failure gives the once key back
            message = "the post office refuses this letter"
            raise ConnectionError(message)
        (OUTBOX / f"{number}.txt").write_text(f"{entry.name}: {entry.text}\n", encoding="utf-8")
    return f"{entry.name}'s entry is mailed."


@cron.task
def search_index(run: Run) -> Generator[None, None, str]:
    """Rebuild the search index a piece at a time; enqueued by its button."""
    last, done = run.progress or (0, 0)
    if not done:
        guestbook.clear_index()
    while entries := guestbook.after(last, PIECE):
        time.sleep(STEP_SECONDS)  # so that there is something to see
        guestbook.index(entries)
        last, done = entries[-1].id, done + len(entries)
        # If it is killed or its turn is over here, it goes on after this piece.
        run.checkpoint([last, done], done=done, total=max(done, guestbook.count()[0]))
        yield
    return f"{done} entries indexed."


@cron.task(every="2m", first_run="20s", timeout="1m")
async def long_walk(run: Run) -> str | Postpone:
    """Walk ten steps, noting each, and go on from there after an interruption."""
    for step in range(run.progress or 0, STEPS):
        if run.should_stop():
            return Postpone(0, reason=f"Interrupted after {step} steps.")
        await asyncio.sleep(STEP_SECONDS)
        await run.acheckpoint(step + 1, done=step + 1, total=STEPS)
    return f"Walked {STEPS} steps."
