"""The settings of a LazyCron, checked once."""

import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from lazycron.clock import Clock, SystemClock
from lazycron.durations import Duration, to_duration
from lazycron.errors import ConfigurationError
from lazycron.files import is_log_or_lock
from lazycron.model.report import Budget
from lazycron.model.retry import Retry
from lazycron.schedules.shaped import to_zone
from lazycron.texts import shown

SHORTEST_SECRET = 16
SHORTEST_LEASE = timedelta(seconds=1)
HANGING = timedelta(seconds=20)
TOKEN_LENGTH = 40
CRON_TOKEN = "lazycron-cron"  # noqa: S105 - what a token is made for, not a token
HEALTH_TOKEN = "lazycron-health"  # noqa: S105 - as above
OFF = ("off", "0", "false", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one LazyCron except its database; durations are timedeltas."""

    # Not in the repr, which ends up in tracebacks and debuggers.
    secrets: tuple[str, ...] | None = field(repr=False)
    state_file: Path | None
    budget: Budget
    lease: timedelta
    retry: Retry
    tz: str
    keep_runs: int
    keep_age: timedelta
    create_tables: bool | None
    drain: timedelta
    enabled: bool | None
    clock: Clock

    @property
    def is_on(self) -> bool:
        """Whether requests and the loop may tick: on, unless LAZYCRON=off says otherwise."""
        if self.enabled is not None:
            return self.enabled
        return os.environ.get("LAZYCRON", "").strip().lower() not in OFF

    @property
    def hanging_after(self) -> timedelta:
        """How long a run may take before it counts as hanging: the budget's seconds.

        Without a limit it is twenty seconds: otherwise one hanging run would stop all others.
        """
        return HANGING if self.budget.seconds is None else self.budget.length

    def all_secrets(self) -> tuple[str, ...]:
        """Return the secrets, the environment's LAZYCRON_SECRET where none was given."""
        if self.secrets is not None:
            return self.secrets
        found = os.environ.get("LAZYCRON_SECRET")
        return (found,) if found else ()

    def good_secrets(self) -> tuple[str, ...]:
        """Return the secrets that are long enough for tokens."""
        return tuple(one for one in self.all_secrets() if len(one) >= SHORTEST_SECRET)

    def tokens(self, purpose: str) -> tuple[str, ...]:
        """Return the tokens for a purpose, one for each good secret, the first secret's first."""
        return tuple(_token(one, purpose) for one in self.good_secrets())


def changed(given: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with new values; raises ConfigurationError for unknown names."""
    unknown = sorted(changes.keys() - given.keys())
    if unknown:
        message = f"no setting is named {', '.join(unknown)}; there are {', '.join(given)}"
        raise ConfigurationError(message)
    return given | changes


def check_settings(
    *,
    secret: str | Sequence[str] | None,
    state_file: str | os.PathLike[str] | None,
    budget: Budget,
    lease: Duration,
    retry: Retry,
    tz: str,
    keep_runs: int,
    keep_age: Duration,
    create_tables: bool | None,
    drain: Duration,
    enabled: bool | None,
    clock: Clock | None,
) -> Settings:
    """Check every setting; raises ConfigurationError or ScheduleError that names the bad one."""
    _check_kind("budget", budget, Budget)
    _check_kind("retry", retry, Retry)
    for name, value in (("create_tables", create_tables), ("enabled", enabled)):
        if value is not None and not isinstance(value, bool):
            message = f"{name}={shown(value)}: pass True, False or None"
            raise ConfigurationError(message)
    if isinstance(keep_runs, bool) or not isinstance(keep_runs, int) or keep_runs < 1:
        message = f"keep_runs={shown(keep_runs)}: pass a whole number from 1 up"
        raise ConfigurationError(message)
    to_zone(tz if isinstance(tz, str) else shown(tz))
    if clock is not None and not (_has(clock, "now") and _has(clock, "monotonic")):
        message = f"clock={shown(clock)}: pass an object with now() and monotonic()"
        raise ConfigurationError(message)
    return Settings(
        secrets=_secrets(secret),
        state_file=None if state_file is None else _path(state_file),
        budget=budget,
        lease=to_duration(lease, what="lease", least=SHORTEST_LEASE),
        retry=retry,
        tz=tz,
        keep_runs=keep_runs,
        keep_age=to_duration(keep_age, what="keep_age", least=timedelta(seconds=1)),
        create_tables=create_tables,
        drain=to_duration(drain, what="drain"),
        enabled=enabled,
        clock=SystemClock() if clock is None else clock,
    )


def _token(secret: str, purpose: str) -> str:
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()[:TOKEN_LENGTH]


def _check_kind(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        message = f"{name}={shown(value)}: pass a {kind.__name__}(…)"
        raise ConfigurationError(message)


def _has(clock: object, method: str) -> bool:
    return callable(getattr(clock, method, None))


def _path(value: str | os.PathLike[str]) -> Path:
    try:
        path = Path(value)
    except TypeError:
        path = Path()
    if not path.name or "\x00" in path.name:
        message = f"state_file={shown(value)}: pass the path of a file"
        raise ConfigurationError(message)
    if is_log_or_lock(path):
        message = (
            f"state_file={shown(value)}: lazycron's log and lock files have such names; pass one "
            'such as "state.json"'
        )
        raise ConfigurationError(message)
    return path.absolute()


def _secrets(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    # An iterator or a set has no first secret, a mapping none at all.
    given = (value,) if isinstance(value, str) else value
    secrets = tuple(given) if isinstance(given, tuple | list) else (None,)
    if not all(isinstance(one, str) for one in secrets):
        # The value is not shown: it may be most of a secret.
        message = "secret is neither a text nor a list of texts"
        raise ConfigurationError(message)
    return secrets
