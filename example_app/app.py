"""The guestbook's pages, and the one line that mounts lazycron."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime
from http import HTTPStatus
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates

from example_app.guestbook import LONGEST_NAME, LONGEST_TEXT, Entry
from example_app.tasks import DATA, OUTBOX, cron, guestbook, mail, now, search_index
from lazycron import (
    ConfigurationError,
    Explanation,
    Job,
    LazyCronError,
    TaskStatus,
    UnknownTaskError,
)
from lazycron.asgi import LazyCronMiddleware

HERE = Path(__file__).parent
NOTES = {
    "running": "That task is running already.",
    "busy": "That job is running, or another one has taken its place.",
    "empty": "An entry needs a name and a message.",
}
UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))
ONE_AND_A_HALF = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the home page shows."""

    now: datetime
    tasks: list[tuple[TaskStatus, Explanation]]
    statistics: str
    rope_is_cut: bool
    word: str
    entries: list[Entry]
    jobs: list[Job]
    mails: list[str]
    digests: list[str]
    cron_url_is_on: bool


def look(word: str) -> View:
    """Gather what the home page shows; blocking, so it is called in a thread."""
    mails = sorted(OUTBOX.glob("*.txt"), key=lambda path: int(path.stem))
    return View(
        now=now(),
        tasks=[(task, cron.why(task.name)) for task in cron.overview()],
        statistics=guestbook.noted("statistics", "Not counted yet."),
        rope_is_cut=guestbook.noted("rope") == "cut",
        word=word,
        entries=guestbook.search(word) if word else guestbook.newest(),
        jobs=cron.jobs(limit=20),
        mails=[path.read_text(encoding="utf-8") for path in mails[:-6:-1]],
        digests=sorted(p.stem.removeprefix("digest-") for p in DATA.glob("digest-*.txt"))[-7:],
        cron_url_is_on=cron.cron_token is not None,
    )


def distance(moment: datetime, now: datetime) -> str:
    """Say how far off a moment is: "in 12 seconds", "3 minutes ago"."""
    seconds = (moment - now).total_seconds()
    for length, unit in UNITS:
        if abs(seconds) >= ONE_AND_A_HALF * length:
            words = f"{round(abs(seconds) / length)} {unit}s"
            break
    else:
        words = f"{round(abs(seconds))} second{'' if round(abs(seconds)) == 1 else 's'}"
    return f"in {words}" if seconds > 0 else f"{words} ago"


templates = Jinja2Templates(HERE / "templates")  # escapes what visitors write
templates.env.filters["distance"] = distance


async def home(request: Request) -> Response:
    """Show every task and the guestbook; with ?watch the page reloads itself."""
    context = {
        "view": await asyncio.to_thread(look, request.query_params.get("word", "").strip()),
        "watching": "watch" in request.query_params,
        "note": NOTES.get(request.query_params.get("note", "")),
        "longest": {"name": LONGEST_NAME, "text": LONGEST_TEXT},
    }
    return templates.TemplateResponse(request, "home.html", context)


async def sign(request: Request) -> Response:
    """Take a guestbook entry."""
    refuse_other_sites(request)
    async with request.form(max_files=0, max_fields=10) as form:
        name, text = str(form.get("name", "")), str(form.get("text", ""))
    try:
        number = await asyncio.to_thread(guestbook.sign, name, text, now())
    except ValueError:
        return back("?note=empty#sign")
    await mail.aenqueue(number)  # a row now, a letter after this response
    return back("#entries")


async def rebuild(request: Request) -> Response:
    """Enqueue a rebuild of the search index; clicking twice still makes one job."""
    refuse_other_sites(request)
    await search_index.using(key="index").aenqueue()
    return back("#jobs")


async def end_job(request: Request) -> Response:
    """Retry a dead job, or discard it."""
    refuse_other_sites(request)
    verbs = {"retry": cron.retry_job, "discard": cron.discard_job}
    verb = verbs.get(request.path_params["do"])
    if verb is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    try:
        await asyncio.to_thread(verb, request.path_params["id"])
    except UnknownTaskError as error:
        raise HTTPException(HTTPStatus.NOT_FOUND) from error
    except LazyCronError:  # it runs, or it has begun to wait
        return back("?note=busy#jobs")
    return back("#jobs")


async def run_now(request: Request) -> Response:
    """Run one task, due or not. In your own app, put this behind a login."""
    refuse_other_sites(request)
    try:
        result = await cron.arun_now(request.path_params["name"])
    except (UnknownTaskError, ConfigurationError) as error:  # the second: no job waits
        raise HTTPException(HTTPStatus.NOT_FOUND) from error
    return back("#tasks" if result else "?note=running#tasks")


async def rope(request: Request) -> Response:
    """Cut the bell's rope, or mend it."""
    refuse_other_sites(request)
    do = {"cut": "cut", "mend": ""}.get(request.path_params["do"])
    if do is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    await asyncio.to_thread(guestbook.note, "rope", do)
    return back("#tasks")


async def digest(request: Request) -> Response:
    """Show one day's digest."""
    try:
        day = date.fromisoformat(request.path_params["day"])
    except ValueError as error:
        raise HTTPException(HTTPStatus.NOT_FOUND) from error
    path = DATA / f"digest-{day}.txt"
    if not path.is_file():
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return FileResponse(path, media_type="text/plain; charset=utf-8")


def refuse_other_sites(request: Request) -> None:
    """Refuse a form that another site has sent; browsers say so in Sec-Fetch-Site."""
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise HTTPException(HTTPStatus.FORBIDDEN)


def back(where: str) -> Response:
    """Send the browser back to the home page."""
    return RedirectResponse(f"/{where}", HTTPStatus.SEE_OTHER)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Make the tables before the first visit; otherwise lazycron would make them then."""
    del app
    await asyncio.to_thread(cron.sync)
    yield


app = LazyCronMiddleware(
    Starlette(
        routes=[
            Route("/", home),
            Route("/sign", sign, methods=["POST"]),
            Route("/tasks/{name}/run", run_now, methods=["POST"]),
            Route("/rope/{do}", rope, methods=["POST"]),
            Route("/index", rebuild, methods=["POST"]),
            Route("/jobs/{id:int}/{do}", end_job, methods=["POST"]),
            Route("/digests/{day}", digest),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ],
        lifespan=lifespan,
    ),
    cron,
    skip_paths=["/static"],  # a page is one beat, its style sheet is not
)
