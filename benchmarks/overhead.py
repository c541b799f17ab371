"""What lazycron costs a request that has nothing to do with it.

Called in one process, through the public middleware, with the scopes and environs that servers
make: the bare app, the app in an empty pass-through middleware, and the app in lazycron's, with
nothing due and the cron URL on. Rounds are interleaved and medians taken; what counts is

    (lazycron - bare) / (pass-through - bare)

which a slow or busy machine changes little. `--floor` fails where that is too much.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from lazycron import LazyCron
from lazycron.asgi import App as Asgi
from lazycron.asgi import LazyCronMiddleware as AsgiMiddleware
from lazycron.asgi import Message, Receive, Scope, Send
from lazycron.web.watcher import watcher_of
from lazycron.wsgi import App as Wsgi
from lazycron.wsgi import Environ, StartResponse
from lazycron.wsgi import LazyCronMiddleware as WsgiMiddleware

GOALS = {"asgi": (1.2, 1.6), "wsgi": (1.4, 1.8)}
HEADERS = [(b"host", b"127.0.0.1:8000"), (b"user-agent", b"curl/8"), (b"accept", b"*/*")]

# ASGI


def make_scope() -> dict[str, Any]:
    """Make a scope as uvicorn does, its path a text of its own."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "scheme": "http",
        "method": "GET",
        "root_path": "",
        "path": b"/articles/42".decode(),
        "raw_path": b"/articles/42",
        "query_string": b"",
        "headers": HEADERS,
        "state": {},
    }


async def receive() -> Message:
    """Receive an empty body."""
    return {"type": "http.request", "body": b"", "more_body": False}


async def send(message: Message) -> None:
    """Send nowhere."""


async def bare_asgi(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in two messages."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


class PassAsgi:
    """The least a middleware can be, as most are written."""

    def __init__(self, app: Asgi) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app."""
        await self.app(scope, receive, send)


def pass_asgi(app: Asgi) -> Asgi:
    """Make the same as a closure."""

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    return middleware


async def time_asgi(app: Callable[..., Awaitable[None]], scopes: list[Any]) -> float:
    """Return nanoseconds per request."""
    begun = perf_counter_ns()
    for scope in scopes:
        await app(scope, receive, send)
    return (perf_counter_ns() - begun) / len(scopes)


# WSGI


def make_environ() -> dict[str, Any]:
    """Make an environ as gunicorn does, its path a text of its own."""
    return {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "REQUEST_METHOD": "GET",
        "QUERY_STRING": "",
        "RAW_URI": "/articles/42",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SCRIPT_NAME": "",
        "PATH_INFO": b"/articles/42".decode(),
        "HTTP_HOST": "127.0.0.1:8000",
        "HTTP_USER_AGENT": "curl/8",
        "HTTP_ACCEPT": "*/*",
    }


def start_response(*_: object) -> None:
    """Start nowhere."""


def bare_wsgi(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Answer with a list."""
    del environ
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


class PassWsgi:
    """The least a middleware can be, as most are written."""

    def __init__(self, app: Wsgi) -> None:
        self.app = app

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Call the app."""
        return self.app(environ, start_response)


def pass_wsgi(app: Wsgi) -> Wsgi:
    """Make the same as a closure."""

    def middleware(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        return app(environ, start_response)

    return middleware


async def time_wsgi(app: Wsgi, environs: list[Any]) -> float:
    """Return nanoseconds per request; what is returned is closed as a server closes it."""
    begun = perf_counter_ns()
    for environ in environs:
        answer = app(environ, start_response)
        for _ in answer:
            pass
        close = getattr(answer, "close", None)
        if close is not None:
            close()
    return (perf_counter_ns() - begun) / len(environs)


# comparing


@dataclass(frozen=True)
class Edge:
    """One protocol: its apps by name, its way to call them, and what a request is made of."""

    apps: Callable[[LazyCron], dict[str, Any]]
    time: Callable[[Any, list[Any]], Awaitable[float]]
    request: Callable[[], dict[str, Any]]


EDGES = {
    "asgi": Edge(
        lambda cron: {
            "bare": bare_asgi,
            "class": PassAsgi(bare_asgi),
            "closure": pass_asgi(bare_asgi),
            "lazycron": AsgiMiddleware(bare_asgi, cron),
        },
        time_asgi,
        make_scope,
    ),
    "wsgi": Edge(
        lambda cron: {
            "bare": bare_wsgi,
            "class": PassWsgi(bare_wsgi),
            "closure": pass_wsgi(bare_wsgi),
            "lazycron": WsgiMiddleware(bare_wsgi, cron),
        },
        time_wsgi,
        make_environ,
    ),
}


async def compare(kind: str, chosen: argparse.Namespace) -> float:
    """Print a table and return (lazycron - bare) / (pass-through class - bare)."""
    edge = EDGES[kind]
    with tempfile.TemporaryDirectory() as folder:
        cron = LazyCron(f"sqlite:///{Path(folder) / 'bench.db'}", secret="a secret of the bench")
        cron.task(every="hour", name="hourly")(lambda: None)
        await cron.arun_due()
        apps = edge.apps(cron)
        for app in apps.values():
            await edge.time(app, [edge.request()])
        # The first request's look is not what is measured: it is over by then.
        await asyncio.sleep(0.5)
        medians = await _measure(edge, apps, chosen)
        await asyncio.to_thread(watcher_of(cron).drain)
    return _tell(kind, medians)


async def _measure(
    edge: Edge, apps: dict[str, Any], chosen: argparse.Namespace
) -> dict[str, float]:
    requests = [edge.request() for _ in range(chosen.number)]
    times: dict[str, list[float]] = {name: [] for name in apps}
    names = list(apps)
    for turn in range(chosen.rounds):
        # Each round begins with another one, so that none always comes after the same.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if chosen.fresh:
                requests = [edge.request() for _ in range(chosen.number)]
            times[name].append(await edge.time(apps[name], requests))
    return {name: statistics.median(found) for name, found in times.items()}


def _tell(kind: str, medians: dict[str, float]) -> float:
    bare = medians["bare"]
    added = {name: found - bare for name, found in medians.items()}
    goal, floor = GOALS[kind]
    ratio = added["lazycron"] / added["class"]
    print(f"{kind.upper()}, median ns per request")
    for name, found in medians.items():
        print(f"  {name:<9}{found:8.0f}{added[name]:+8.0f}")
    print(f"  lazycron / pass-through class    {ratio:.2f}  (goal {goal}, floor {floor})")
    print(f"  lazycron / pass-through closure  {added['lazycron'] / added['closure']:.2f}")
    return ratio


def main() -> int:
    """Compare both edges."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--number", type=int, default=2000, help="requests in a round")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="make each request anew, so that the path's hash is reckoned for us alone",
    )
    parser.add_argument("--floor", action="store_true", help="fail where the floor is not kept")
    chosen = parser.parse_args()
    ratios = {kind: asyncio.run(compare(kind, chosen)) for kind in EDGES}
    missed = [kind for kind, ratio in ratios.items() if ratio > GOALS[kind][1]]
    return 1 if chosen.floor and missed else 0


if __name__ == "__main__":
    sys.exit(main())
