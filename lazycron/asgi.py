"""The ASGI edge: the app's response untouched, then one comparison."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from lazycron.app import LazyCron
from lazycron.web.endpoint import Endpoint, Reply, Request, Waiting
from lazycron.web.mount import Everything, Mount, TickIn, to_mount
from lazycron.web.threads import Loop, Report, Visitor
from lazycron.web.watcher import Watcher, bridge_to

logger = logging.getLogger("lazycron")

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# An app returns nothing; servers check that, so its result is passed on.
App = Callable[[Scope, Receive, Send], Awaitable[Any]]

WAITING = Waiting(default=5.0, most=60.0)
STARTUP = "lifespan.startup"
SHUTDOWN = "lifespan.shutdown"
FAILED = "lifespan.startup.failed"


def LazyCronMiddleware(  # noqa: N802 - named as every framework's middleware is
    app: App,
    cron: LazyCron,
    *,
    path: str = "/lazycron",
    admin_paths: Sequence[str] | None = (),
    skip_paths: Sequence[str] | None = (),
    tick_in: TickIn = "thread",
    traffic: bool | None = None,
    panel: None = None,
) -> App:
    """Wrap an ASGI app so that due tasks run after its responses.

    Install it outermost. `path` is the place of the cron URL, after root_path. Requests below
    `admin_paths` trigger as "admin", and those below `skip_paths` do not trigger at all.
    `tick_in="request"` is for hosts that freeze a process after its response: only the cron URL
    ticks there, before it answers, unless `traffic=True`. Raises ConfigurationError.

    It is a closure, not a class: a class's `__call__` would double its cost.
    """
    mount = to_mount(
        app,
        cron,
        path=path,
        admin_paths=admin_paths,
        skip_paths=skip_paths,
        tick_in=tick_in,
        traffic=traffic,
        panel=panel,
        waiting=WAITING,
    )
    edge = _Edge(app, mount)
    watcher = mount.watcher
    mine: Container[str | None] = Everything()
    monotonic = cron.settings.clock.monotonic

    async def middleware(scope: Scope, receive: Receive, send: Send) -> object:
        nonlocal mine, monotonic
        # No `get`: every request pays for what stands here (measured: a third of it).
        try:
            if monotonic() >= watcher.look_again_at or scope["path"] in mine:
                raise _Aside  # a jump
        except LookupError:
            pass  # also a KeyError: a lifespan has no path
        else:
            returned = await app(scope, receive, send)
            if watcher.is_woken:
                await edge.look_after(scope)
            return returned
        mine = edge.learn(scope)
        monotonic = cron.settings.clock.monotonic  # configure() may have come since
        return await edge.serve(scope, receive, send)

    return middleware


class _Aside(LookupError):  # noqa: N818 - not an error
    """This request needs a second look."""


class _Edge:
    """What the middleware does off the hot path."""

    def __init__(self, app: App, mount: Mount) -> None:
        self.app = app
        self.mount = mount
        self.watcher = mount.watcher
        self.endpoint: Endpoint | None = None
        self.paths: Container[str | None] = Everything()
        self._root: str | None = None

    def learn(self, scope: Scope) -> Container[str | None]:
        """Return the full paths that need a second look, the request's root_path included."""
        root = _root_of(scope)
        if scope["type"] != "lifespan" and root != self._root:
            self.endpoint = self.endpoint or self.mount.endpoint()
            below = self.endpoint.paths
            # Some servers strip root_path from the path, against the specification.
            # A lifespan, which has no path, also comes here.
            self.paths = frozenset([None, *below, *(root + one for one in below)])
            self._root = root
        return self.paths

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> object:
        """Serve a lifespan, the cron URL, or a request with a look after its response."""
        if scope["type"] == "lifespan":
            return await _Lifespan(self.app, self.watcher).run(scope, receive, send)
        if scope.get("path") in self.paths and await self._answered(scope, send):
            return None
        # Asked now: routers change the scope later.
        kind = self.mount.visitor(_below_root(scope))
        try:
            returned = await self.app(scope, receive, send)
        except Exception:
            # Some frameworks send their error page and then raise: that is a response, too.
            if kind is not None and not self.mount.in_request:
                self.watcher.look(kind, _running_loop())
            raise
        if kind is not None:
            await self._look(kind)
        return returned

    async def look_after(self, scope: Scope) -> None:
        """Look after a request in which something was enqueued.

        A router may have changed the scope by now; then the trigger is known less exactly.
        """
        kind = self.mount.visitor(_below_root(scope))
        if kind is not None:
            await self._look(kind)

    async def _look(self, kind: Visitor) -> None:
        """Wake a tick thread after a response; under `tick_in="request"` tick in this thread."""
        loop = _running_loop()
        if self.mount.in_request:
            await _in_thread(partial(self.watcher.look_here, kind, bridge_to(loop)))
        else:
            self.watcher.look(kind, loop)

    # the cron URL

    async def _answered(self, scope: Scope, send: Send) -> bool:
        """Answer the cron URL; False if the request is for the app after all."""
        if scope["type"] != "http" or self.endpoint is None:
            return False
        request = _request(scope)
        if not self.endpoint.admits(request):
            return False
        _hide_token(scope, self.mount.path)
        reply = self.endpoint.refusal(request)
        if reply is None:
            report = await self._tick()
            await _wait(report, self.endpoint.wait_for(request))
            reply = self.endpoint.answer(request, report)
        await _send(reply, send)
        return True

    async def _tick(self) -> Report:
        loop = _running_loop()
        if self.mount.in_request:
            return await _in_thread(partial(self.watcher.tick_here, bridge_to(loop)))
        return self.watcher.tick(loop)


class _Lifespan:
    """One lifespan: the app's own, watched, and ours where the app raises on it."""

    def __init__(self, app: App, watcher: Watcher) -> None:
        self._app = app
        self._watcher = watcher
        self._received: list[str] = []
        self._sent: list[str] = []

    async def run(self, scope: Scope, receive: Receive, send: Send) -> object:
        self._watcher.open()
        returned = None
        try:
            receiving = partial(self._watch_receive, receive, send)
            returned = await self._app(scope, receiving, partial(self._watch_send, send))
        except Exception as error:
            if not self._is_ours_to_answer():
                raise
            self._tell(error)
        if FAILED not in self._sent:
            await self._answer_the_rest(receive, send)
        return returned

    def _is_ours_to_answer(self) -> bool:
        """Tell whether the server must not learn of the app's error.

        An app that raises before it receives anything does not support lifespans. An app that
        raises after its start is served all the same. In both cases the server would consider the
        lifespan as over, and never tell us of the end. If the app fails at start-up or at shutdown,
        the server decides.
        """
        return not self._received or (f"{STARTUP}.complete" in self._sent and not self._is_ending())

    def _is_ending(self) -> bool:
        return SHUTDOWN in self._received

    def _tell(self, error: Exception) -> None:
        """Write to the log what the server would say of an app that raises."""
        if self._sent:
            logger.error(
                "the app's lifespan raised between startup and shutdown",
                exc_info=error,
                extra={"action": "lifespan_failed"},
            )
            return
        logger.warning(
            "the app raised %s on lifespan, before it received an event; lazycron answers for it",
            type(error).__name__,
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
            extra={"action": "lifespan_answered"},
        )

    async def _answer_the_rest(self, receive: Receive, send: Send) -> None:
        if STARTUP not in self._received:
            await receive()
        await self._complete(STARTUP, send)
        if SHUTDOWN not in self._received:
            await receive()
            await self._drain()
        await self._complete(SHUTDOWN, send)

    async def _complete(self, what: str, send: Send) -> None:
        """Answer for the app what it has not answered."""
        if not any(sent.startswith(what) for sent in self._sent):
            self._sent.append(f"{what}.complete")
            await send({"type": f"{what}.complete"})

    async def _watch_receive(self, receive: Receive, send: Send) -> Message:
        if self._received:
            # An app that asks for the next message is done with this one, and may never answer.
            await self._complete(self._received[-1], send)
        message = await receive()
        self._received.append(message["type"])
        if message["type"] == SHUTDOWN:
            # Before the app gets the message: tasks may need what the app is about to close.
            await self._drain()
        return message

    async def _watch_send(self, send: Send, message: Message) -> None:
        if message["type"] not in self._sent:
            self._sent.append(message["type"])
            await send(message)

    async def _drain(self) -> None:
        # In a thread: async tasks need this loop to end.
        try:
            await _in_thread(self._watcher.drain)
        except Exception:
            # The app is shut down all the same.
            logger.exception("lazycron could not drain", extra={"action": "drain_failed"})


def _running_loop() -> Loop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None  # served by trio: async tasks run in their own loop


async def _in_thread(call: Callable[[], T]) -> T:
    """Call in another thread and wait for it; in this thread where no asyncio loop runs."""
    return call() if _running_loop() is None else await asyncio.to_thread(call)


async def _wait(report: Report, seconds: float) -> None:
    """Wait for the report, at most so many seconds; the tick goes on in any case."""
    loop = _running_loop()
    if loop is None or report.done():
        return
    made = asyncio.Event()

    def wake(_: Report) -> None:
        # The loop may end long before the tick.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(made.set)

    report.add_done_callback(wake)
    with suppress(TimeoutError):
        await asyncio.wait_for(made.wait(), seconds)


def _root_of(scope: Scope) -> str:
    return str(scope.get("root_path") or "").rstrip("/")


def _below_root(scope: Scope) -> str:
    path, root = str(scope.get("path", "")), _root_of(scope)
    if path == root:
        return ""
    return path[len(root) :] if path.startswith(f"{root}/") else path


def _request(scope: Scope) -> Request:
    headers = {name.lower(): value for name, value in scope.get("headers", ())}
    return Request(
        method=scope["method"],
        path=_below_root(scope),
        query=scope.get("query_string", b"").decode("latin-1"),
        authorization=headers.get(b"authorization", b""),
    )


def _hide_token(scope: Scope, path: str) -> None:
    """Overwrite the path in the server's own scope, from which its access log is written.

    Measured to work on uvicorn, hypercorn, gunicorn and granian; daphne logs what it received.
    """
    hidden = f"{_root_of(scope)}{path}/-"
    scope["path"] = hidden
    scope["raw_path"] = quote(hidden).encode()
    scope["query_string"] = b""


async def _send(reply: Reply, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
