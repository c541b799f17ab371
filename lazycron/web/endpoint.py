"""The cron URL as plain values: which requests are accepted, how long to wait, what to answer."""

import hmac
import json
import math
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from urllib.parse import parse_qs

from lazycron.model.report import TickReport
from lazycron.store import DatabaseError

METHODS = ("GET", "HEAD", "POST")
BEARER = b"bearer"
HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Robots-Tag", "noindex"),
    ("Referrer-Policy", "no-referrer"),
    ("Content-Type", "application/json"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The parts of a request that the endpoint uses; the path has no root_path or SCRIPT_NAME."""

    method: str
    path: str
    query: str
    authorization: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response; the body is empty for HEAD."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def status_line(self) -> str:
        """The status as WSGI wants it."""
        return f"{self.status} {self.reason}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many seconds an answer waits for its tick: by default, and at most."""

    default: float
    most: float


class Endpoint:
    """The cron URL below one path; the same for every protocol.

    Without a token no path matches.
    """

    def __init__(self, tokens: Iterable[str], path: str, waiting: Waiting) -> None:
        self.path = path
        self._waiting = waiting
        self._tokens = tuple(token.encode() for token in tokens)

    @property
    def paths(self) -> frozenset[str]:
        """Every path that needs a second look: the bare one, and one for each accepted token.

        Each is also there with a slash at its end, which monitors like to add: the app would not
        find it, and its server would write the token into the access log.
        """
        if not self._tokens:
            return frozenset()
        plain = [self.path, *(f"{self.path}/{one.decode()}" for one in self._tokens)]
        return frozenset([*plain, *(f"{one}/" for one in plain)])

    def admits(self, request: Request) -> bool:
        """Tell whether the request carries a right token; everything else is the app's.

        The comparison takes the same time for every wrong token.
        """
        path = request.path.removesuffix("/")
        if path == self.path:
            scheme, _, given = request.authorization.partition(b" ")
            return scheme.lower() == BEARER and self._is_token(given.strip())
        prefix, _, last = path.rpartition("/")
        return prefix == self.path and self._is_token(last.encode("utf-8", "surrogatepass"))

    def _is_token(self, given: bytes) -> bool:
        # All are compared, so that the time does not show which of two secrets is in use.
        return sum(hmac.compare_digest(given, token) for token in self._tokens) > 0

    def refusal(self, request: Request) -> Reply | None:
        """Return the answer to a request that must not tick: a wrong method, a wrong `wait`."""
        if request.method not in METHODS:
            allow = (("Allow", ", ".join(METHODS)),)
            return _reply(
                request, 405, "Method Not Allowed", {"error": "use GET, HEAD or POST"}, allow
            )
        try:
            self.wait_for(request)
        except ValueError as error:
            return _reply(request, 400, "Bad Request", {"error": str(error)})
        return None

    def wait_for(self, request: Request) -> float:
        """Return how many seconds to wait for the tick; raises ValueError if it is not a number."""
        given = parse_qs(request.query).get("wait")
        if not given:
            return self._waiting.default
        try:
            seconds = float(given[-1])
        except ValueError:
            seconds = math.nan
        if math.isnan(seconds) or seconds < 0:
            message = f"wait={given[-1][:40]!r}: pass seconds from 0 to {self._waiting.most:g}"
            raise ValueError(message)
        return min(seconds, self._waiting.most)

    def answer(self, request: Request, report: Future[TickReport]) -> Reply:
        """Answer with what the tick did, that it goes on, or that there was none.

        The answer leaves out an error's text, which may name an address.
        """
        if not report.done():
            return _reply(request, 202, "Accepted", {"status": "the tick goes on"})
        if report.cancelled():
            said = {"error": "no tick: this process is stopping, or all its tick threads hang"}
            return _reply(request, 503, "Service Unavailable", said)
        error = report.exception()
        if isinstance(error, DatabaseError):
            said = {"error": "the database could not be asked"}
            return _reply(request, 503, "Service Unavailable", said)
        if error is not None:
            said = {"error": type(error).__name__}
            return _reply(request, 500, "Internal Server Error", said)
        return _reply(request, 200, "OK", report.result().as_json())


def _reply(
    request: Request,
    status: int,
    reason: str,
    content: object,
    more: Iterable[tuple[str, str]] = (),
) -> Reply:
    body = json.dumps(content).encode() + b"\n"
    headers = (*HEADERS, *more, ("Content-Length", str(len(body))))
    body = b"" if request.method == "HEAD" else body
    return Reply(status=status, reason=reason, headers=headers, body=body)
