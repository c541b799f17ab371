"""Apps called the way servers call them: real scopes and environs, one loop, closed iterables."""

import asyncio
import io
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from wsgiref.util import setup_testing_defaults

from sqlalchemy import Engine, event

from lazycron import LazyCron
from lazycron.asgi import App as Asgi
from lazycron.asgi import Message, Receive, Scope, Send
from lazycron.web.watcher import watcher_of
from lazycron.wsgi import App as Wsgi
from lazycron.wsgi import Environ, StartResponse

DEADLINE = 15.0

T = TypeVar("T")


class Gate:
    """A task's function that says when it has begun and waits until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def run(self) -> None:
        """Begin, wait, and end."""
        self.begun.set()
        assert self.go.wait(DEADLINE)


@dataclass
class Answer:
    """A response, and for WSGI the very object the middleware returned."""

    status: int
    headers: dict[str, str]
    body: bytes
    returned: object = None
    sent: list[Any] = field(default_factory=list)


def until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Wait for a condition; fail at the deadline."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def at_rest(cron: LazyCron) -> None:
    """Wait until every tick thread is idle and nothing waits for one."""
    threads = watcher_of(cron)._threads()

    def idle() -> bool:
        with threads.lock:
            return threads.is_at_rest()

    until(idle)


def tick_threads() -> list[threading.Thread]:
    """The tick threads of this process that are alive, all LazyCrons' together."""
    return [one for one in threading.enumerate() if one.name.startswith("lazycron-tick")]


# ASGI


def scope_of(path: str, method: str = "GET", **more: Any) -> dict[str, Any]:
    """Make an HTTP scope as uvicorn makes it."""
    path, _, query = path.partition("?")
    headers = more.pop("headers", {})
    made = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
    return made | more


async def call(app: Asgi, scope: dict[str, Any]) -> Answer:
    """Call an ASGI app for one request."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(start["status"], headers, body, sent=sent)


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Say hello, and 404 below /missing."""
    del receive
    status = 404 if "missing" in scope["path"] or "lazycron" in scope["path"] else 200
    headers = [(b"content-type", b"text/plain"), (b"x-app", b"hello")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


class Site:
    """An ASGI app on a loop that goes on between requests, in a thread of its own."""

    def __init__(self, app: Asgi) -> None:
        self.app = app
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(DEADLINE)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Run a coroutine on the site's loop."""

        async def awaited() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(awaited(), self.loop).result(DEADLINE)

    def get(self, path: str, method: str = "GET", **more: Any) -> Answer:
        """Make one request."""
        return self.run(call(self.app, scope_of(path, method, **more)))


# WSGI


def environ_of(path: str, method: str = "GET", **more: Any) -> dict[str, Any]:
    """Make an environ as wsgiref makes it."""
    path, _, query = path.partition("?")
    made: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query}
    setup_testing_defaults(made)
    made["wsgi.input"] = io.BytesIO()
    return made | more


def call_wsgi(app: Wsgi, environ: dict[str, Any]) -> Answer:
    """Call a WSGI app for one request and close what it returned."""
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
        started[:] = [status, headers]

    returned: Iterable[bytes] = app(environ, start_response)
    try:
        body = b"".join(returned)
    finally:
        close = getattr(returned, "close", None)
        if close is not None:
            close()
    status, headers = started
    lowered = {name.lower(): value for name, value in headers}
    return Answer(int(status.split()[0]), lowered, body, returned=returned)


def hello_wsgi(environ: Environ, start_response: StartResponse) -> list[bytes]:
    """Say hello, and 404 below /missing."""
    missing = "missing" in environ["PATH_INFO"] or "lazycron" in environ["PATH_INFO"]
    status = "404 Not Found" if missing else "200 OK"
    start_response(status, [("Content-Type", "text/plain"), ("X-App", "hello")])
    return [b"hello"]


# counting

_opened: list[str] | None = None


def _hear(name: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and name == "open":
        _opened.append(str(arguments[0]))


sys.addaudithook(_hear)


@contextmanager
def count_opens() -> Iterator[list[str]]:
    """Count the files opened in this block, in any thread."""
    global _opened  # noqa: PLW0603 - an audit hook can never be taken away again
    found: list[str] = []
    _opened = found
    try:
        yield found
    finally:
        _opened = None


@contextmanager
def count_statements() -> Iterator[list[str]]:
    """Count the SQL statements sent in this block, by any engine in any thread."""
    found: list[str] = []

    def heard(*arguments: Any) -> None:
        found.append(arguments[2])

    event.listen(Engine, "before_cursor_execute", heard)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", heard)
        # Removing does not say it: all engines of this process would be taken for listened to.
        Engine._has_events = False
