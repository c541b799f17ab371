"""The WSGI edge: one comparison, then the app's own iterable, wrapped only when one is due."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any

from lazycron.app import LazyCron
from lazycron.web.endpoint import Endpoint, Reply, Request, Waiting
from lazycron.web.mount import Everything, Mount, TickIn, to_mount
from lazycron.web.threads import Visitor

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

WAITING = Waiting(default=0.0, most=20.0)


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
    """Wrap a WSGI app so that due tasks run after its responses.

    The arguments are those of `lazycron.asgi.LazyCronMiddleware`; `path` is matched against
    PATH_INFO, which is without SCRIPT_NAME. Raises ConfigurationError.
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
    edge = _Edge(mount)
    watcher = mount.watcher
    mine: Container[str] = Everything()
    monotonic = cron.settings.clock.monotonic

    def middleware(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        nonlocal mine, monotonic
        # No `get`: every request pays for what stands here.
        try:
            is_ours = environ["PATH_INFO"] in mine
        except KeyError:
            is_ours = False  # servers may leave an empty path out
        if is_ours:
            mine = edge.learn(environ)
            monotonic = cron.settings.clock.monotonic  # configure() may have changed it
            reply = edge.answered(environ)
            if reply is not None:
                start_response(reply.status_line, list(reply.headers))
                return [reply.body]
        try:
            answer = app(environ, start_response)
        except Exception:
            # The server answers with its error page, which is a response, too.
            if monotonic() >= watcher.look_again_at:
                edge.look_after_error(environ)
            raise
        if monotonic() < watcher.look_again_at:
            return answer
        return edge.watched(environ, answer)

    return middleware


class _Edge:
    """What the middleware does off the hot path."""

    def __init__(self, mount: Mount) -> None:
        self.mount = mount
        self.watcher = mount.watcher
        self.endpoint: Endpoint | None = None
        self._root = ""

    def learn(self, environ: Environ) -> frozenset[str]:
        """Return the paths that need a second look, and remember where the app is mounted."""
        self.endpoint = self.endpoint or self.mount.endpoint()
        self._root = environ.get("SCRIPT_NAME", "")
        return self.endpoint.paths

    def answered(self, environ: Environ) -> Reply | None:
        """Answer the cron URL; None if the request is for the app after all."""
        if self.endpoint is None or environ.get("PATH_INFO") not in self.endpoint.paths:
            return None
        request = _request(environ)
        if not self.endpoint.admits(request):
            return None
        _hide_token(environ, self.mount.path)
        reply = self.endpoint.refusal(request)
        if reply is not None:
            return reply
        in_request = self.mount.in_request
        report = self.watcher.tick_here() if in_request else self.watcher.tick(None)
        wait([report], self.endpoint.wait_for(request))
        return self.endpoint.answer(request, report)

    def _path_of(self, environ: Environ) -> str:
        """Return the request's original path: routers move parts of it to SCRIPT_NAME."""
        path = str(environ.get("PATH_INFO", ""))
        full = f"{environ.get('SCRIPT_NAME', '')}{path}"
        below = full[len(self._root) :]
        is_below = full.startswith(self._root) and below[:1] in ("", "/")
        return below if is_below else path

    def watched(self, environ: Environ, answer: Iterable[bytes]) -> Iterable[bytes]:
        """Wrap the app's iterable so that its end wakes a tick thread.

        A file is left as it is, since servers send files in a special way: the thread is woken now,
        and under `tick_in="request"` the next request ticks.
        """
        kind = self.mount.visitor(self._path_of(environ))
        if kind is None:
            return answer
        if _is_file(environ, answer):
            if not self.mount.in_request:
                self.watcher.look(kind, None)
            return answer
        kind_of_closing = _SizedClosing if hasattr(answer, "__len__") else _Closing
        return kind_of_closing(answer, lambda: self._look(kind))

    def look_after_error(self, environ: Environ) -> None:
        """Wake a tick thread after the app has raised; no request waits for its tick."""
        kind = self.mount.visitor(self._path_of(environ))
        if kind is not None and not self.mount.in_request:
            self.watcher.look(kind, None)

    def _look(self, kind: Visitor) -> None:
        """Wake a tick thread; under `tick_in="request"` tick in this thread."""
        if self.mount.in_request:
            self.watcher.look_here(kind)
        else:
            self.watcher.look(kind, None)


def _is_file(environ: Environ, answer: object) -> bool:
    """Tell whether the app answers with the server's file wrapper, a class or not, or a file."""
    wrapper = environ.get("wsgi.file_wrapper")
    return (isinstance(wrapper, type) and isinstance(answer, wrapper)) or hasattr(answer, "fileno")


class _Closing:
    """An iterable that calls back once it is closed, even if closing it raises.

    All other attributes are the app's: code that calls the app itself may ask for `status_code`.
    """

    def __init__(self, answer: Iterable[bytes], closed: Callable[[], None]) -> None:
        self._answer = answer
        self._closed = closed

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._answer)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the app's object has
        return getattr(self._answer, name)

    def close(self) -> None:
        """Close the app's iterable, then call back."""
        try:
            close = getattr(self._answer, "close", None)
            if close is not None:
                close()
        finally:
            self._closed()


class _SizedClosing(_Closing):
    """The same for an iterable with a length, from which servers compute Content-Length."""

    def __len__(self) -> int:
        return len(self._answer)  # type: ignore[arg-type]  # chosen where it has a length


def _request(environ: Environ) -> Request:
    return Request(
        method=environ.get("REQUEST_METHOD", "GET"),
        path=environ.get("PATH_INFO", ""),
        query=environ.get("QUERY_STRING", ""),
        authorization=environ.get("HTTP_AUTHORIZATION", "").encode("latin-1", "replace"),
    )


def _hide_token(environ: Environ, path: str) -> None:
    """Overwrite the path in the server's own environ, from which its access log is written.

    Measured to work on gunicorn; granian's WSGI side logs what it received.
    """
    hidden = f"{path}/-"
    environ["PATH_INFO"] = hidden
    environ["QUERY_STRING"] = ""
    for name in ("RAW_URI", "REQUEST_URI"):
        if name in environ:
            environ[name] = f"{environ.get('SCRIPT_NAME', '')}{hidden}"
