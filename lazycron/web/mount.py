"""How lazycron is mounted in an app: where it answers, and which trigger a request is."""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from lazycron.app import LazyCron
from lazycron.errors import ConfigurationError
from lazycron.texts import shown
from lazycron.web.endpoint import Endpoint, Waiting
from lazycron.web.threads import Visitor
from lazycron.web.watcher import Watcher, watcher_of

logger = logging.getLogger("lazycron")

TickIn = Literal["thread", "request"]

# What a decoded path may contain: no ?, #, %, quotes, backslashes or spaces.
PATH = re.compile(r"/[!$&-;=@-[\]^_a-z{-~]+")


class Everything:
    """Contains every path: the first request takes the slow way and finds the real paths."""

    def __contains__(self, path: object) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """The checked arguments of a middleware, the same for every protocol."""

    cron: LazyCron
    path: str
    admin_paths: tuple[str, ...]
    skip_paths: tuple[str, ...]
    in_request: bool
    looks: bool
    waiting: Waiting

    @property
    def watcher(self) -> Watcher:
        """The one watcher of this LazyCron, however many edges it is mounted in."""
        return watcher_of(self.cron)

    def endpoint(self) -> Endpoint:
        """Build the cron URL's endpoint with the current tokens.

        It is built within a request, which must not fail because of a bad secret.
        """
        try:
            tokens = self.cron.cron_tokens
        except Exception as error:  # noqa: BLE001
            # Only its kind: the text could hold the secret.
            logger.warning(
                "the cron URL is off: the secret cannot be used (%s)",
                type(error).__name__,
                extra={"action": "secret_failed"},
            )
            tokens = ()
        return Endpoint(tokens, self.path, self.waiting)

    def visitor(self, path: str) -> Visitor | None:
        """Return the trigger that a request for this path is; None if it is none."""
        if not self.looks or is_below(path, self.skip_paths):
            return None
        return "admin" if is_below(path, self.admin_paths) else "traffic"


def to_mount(
    app: object,
    cron: LazyCron,
    *,
    path: str,
    admin_paths: Sequence[str] | None,
    skip_paths: Sequence[str] | None,
    tick_in: TickIn,
    traffic: bool | None,
    panel: object,
    waiting: Waiting,
) -> Mount:
    """Check a middleware's arguments; raises ConfigurationError that names the bad one."""
    if not isinstance(cron, LazyCron):
        message = f"cron={cron!r}: pass the LazyCron whose tasks shall run"
        raise ConfigurationError(message)
    if not callable(app):
        message = f"app={shown(app)}: pass the app to wrap"
        raise ConfigurationError(message)
    if tick_in not in get_args(TickIn):
        message = f'tick_in={tick_in!r}: pass "thread" or "request"'
        raise ConfigurationError(message)
    if traffic is not None and not isinstance(traffic, bool):
        message = f"traffic={shown(traffic)}: pass True, False or None"
        raise ConfigurationError(message)
    if panel is not None:
        message = "panel= is not part of this version; leave it None"
        raise ConfigurationError(message)
    in_request = tick_in == "request"
    return Mount(
        cron=cron,
        path=check_path(path),
        admin_paths=check_prefixes("admin_paths", admin_paths),
        skip_paths=check_prefixes("skip_paths", skip_paths),
        in_request=in_request,
        looks=not in_request if traffic is None else traffic,
        waiting=waiting,
    )


def check_path(path: object) -> str:
    """Check the path below which lazycron answers; raises ConfigurationError."""
    found = path.rstrip("/") if isinstance(path, str) else ""
    # Servers decode what has percent signs; clients and proxies resolve dots and empty segments.
    segments = found.split("/")
    clean = PATH.fullmatch(found) and not {".", ".."} & set(segments)
    if clean and "" not in segments[1:]:
        return found
    message = (
        f'path={shown(path)}: pass an ASCII path such as "/lazycron", as requests have it once it '
        "is decoded: without ?, #, %, spaces, empty segments, and segments of dots"
    )
    raise ConfigurationError(message)


def check_prefixes(name: str, prefixes: Iterable[str] | None) -> tuple[str, ...]:
    """Check a list of path prefixes, empty for None; raises ConfigurationError."""
    given: object = () if prefixes is None else prefixes
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for one in found:
        if not isinstance(one, str) or not one.startswith("/"):
            message = f'{name}={shown(one)}: pass path prefixes such as "/admin"'
            raise ConfigurationError(message)
    return tuple(one.rstrip("/") for one in found)


def is_below(path: str, prefixes: tuple[str, ...]) -> bool:
    """Tell whether a path is one of the prefixes or below one."""
    return any(path == one or path.startswith(f"{one}/") for one in prefixes)
