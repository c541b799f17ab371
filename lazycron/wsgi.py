"""The WSGI edge: one comparison, then the app's own iterable, wrapped only when one is due."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from lazycron.app import LazyCron
from lazycron.endpoint import Endpoint, Reply, Request, Waiting
from lazycron.mount import Everything, Mount, TickIn, to_mount
from lazycron.trigger import Visit

logger = logging.getLogger("lazycron")

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

WAITING = Waiting(default=0.0, most=20.0)


def LazyCronMiddleware(  # noqa: N802 - named as every framework's middleware is
    app: App,
    cron: LazyCron,
    *,
    path: str = "/lazycron",
    admin_paths: Sequence[str] = (),
    skip_paths: Sequence[str] = (),
    tick_in: TickIn = "thread",
    traffic: bool | None = None,
    panel: None = None,
) -> App:
    """Wrap a WSGI app so that due tasks run after its responses.

    The arguments are those of `lazycron.asgi.LazyCronMiddleware`; `path` is matched against
    PATH_INFO, from which SCRIPT_NAME is stripped already. Raises ConfigurationError.
    """
    mount = to_mount(
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
    trigger = edge.trigger
    mine: Any = Everything()
    monotonic = cron.settings.clock.monotonic

    def middleware(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        nonlocal mine, monotonic
        if environ.get("PATH_INFO") in mine:
            if mine.__class__ is Everything:
                monotonic = cron.settings.clock.monotonic
                mine = edge.learn()
            reply = edge.answered(environ)
            if reply is not None:
                start_response(reply.status_line, list(reply.headers))
                return [reply.body]
        if monotonic() < trigger.look_again_at:
            return app(environ, start_response)
        return edge.watched(environ, app(environ, start_response))

    return middleware


class _Edge:
    """What the middleware does off the hot path."""

    def __init__(self, app: App, mount: Mount) -> None:
        self.app = app
        self.mount = mount
        self.trigger = mount.trigger
        self.endpoint: Endpoint | None = None

    def learn(self) -> frozenset[str]:
        """Return the paths worth a second look."""
        self.endpoint = self.mount.endpoint()
        return self.endpoint.paths

    def answered(self, environ: Environ) -> Reply | None:
        """Answer the cron URL; None where the request is the app's after all."""
        if self.endpoint is None:
            return None
        request = _request(environ)
        if not self.endpoint.admits(request):
            return None
        _hide_token(environ, self.mount.path)
        return self.endpoint.refusal(request) or self._tick(self.endpoint, request)

    def _tick(self, endpoint: Endpoint, request: Request) -> Reply:
        try:
            if self.mount.in_request:
                return endpoint.report(request, self.trigger.tick_here("url"))
            report = self.trigger.tick(None).result(endpoint.wait_for(request))
        except TimeoutError:
            return endpoint.goes_on(request)
        except CancelledError:
            return endpoint.failed(request, RuntimeError("the process is stopping"))
        except Exception as error:
            logger.exception("the cron URL's tick failed", extra={"action": "tick_failed"})
            return endpoint.failed(request, error)
        return endpoint.report(request, report)

    def watched(self, environ: Environ, answer: Iterable[bytes]) -> Iterable[bytes]:
        """Wrap the app's iterable so that its end wakes a tick thread.

        A wsgi.file_wrapper is left as it is, since servers look for it: the thread is woken now.
        """
        kind = self.mount.visit(environ.get("PATH_INFO", ""))
        if kind is None:
            return answer
        wrapper = environ.get("wsgi.file_wrapper")
        if isinstance(wrapper, type) and isinstance(answer, wrapper) and not self.mount.in_request:
            self.trigger.look(kind, None)
            return answer
        kind_of_closing = _SizedClosing if hasattr(answer, "__len__") else _Closing
        return kind_of_closing(answer, lambda: self.look(kind))

    def look(self, kind: Visit) -> None:
        """Wake a tick thread; under `tick_in="request"` tick here and now. Never raises."""
        if not self.mount.in_request:
            self.trigger.look(kind, None)
            return
        try:
            self.trigger.look_here(kind)
        except Exception:
            logger.exception("a tick in the request failed", extra={"action": "tick_failed"})


class _Closing:
    """An iterable that calls back once it is closed, whatever closing it raises."""

    def __init__(self, answer: Iterable[bytes], closed: Callable[[], None]) -> None:
        self._answer = answer
        self._closed = closed

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._answer)

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
