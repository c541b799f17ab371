"""How long to wait after failures and losses: pure arithmetic."""

from dataclasses import dataclass
from datetime import timedelta

from lazycron.durations import Duration, to_duration
from lazycron.errors import ConfigurationError
from lazycron.texts import shown

MOST_DOUBLINGS = 6
LARGEST_FACTOR = 1000


@dataclass(frozen=True, slots=True)
class Retry:
    """How a failed run is tried again.

    `limit` counts a job's attempts; recurring tasks never give up. The n-th failure in a row puts
    the next try at start + min(cap, base x factor^min(n, 6)). `base` None: the task's interval but
    at least a minute (a crontab: a minute; a job: 30 seconds). Raises ConfigurationError for a
    limit below 1 or a factor below 1, and ScheduleError for an unreadable duration.
    """

    limit: int = 5
    base: Duration | None = None
    factor: float = 2
    cap: Duration = "6h"

    def __post_init__(self) -> None:
        """Refuse wrong values."""
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1:
            message = f"Retry(limit={shown(self.limit)}): pass a whole number from 1 up"
            raise ConfigurationError(message)
        number = isinstance(self.factor, int | float) and not isinstance(self.factor, bool)
        if not number or not 1 <= self.factor <= LARGEST_FACTOR:
            message = (
                f"Retry(factor={shown(self.factor)}): pass a number from 1 to {LARGEST_FACTOR}"
            )
            raise ConfigurationError(message)
        to_duration(self.cap, what="Retry(cap)")
        if self.base is not None:
            to_duration(self.base, what="Retry(base)")

    def after_failure(self, failures: int, default_base: timedelta) -> timedelta:
        """Return the wait after the `failures`-th failure in a row."""
        return self._wait(failures, default_base)

    def after_loss(self, losses: int, default_base: timedelta) -> timedelta:
        """Return the wait after the `losses`-th loss in a row; the first has none."""
        return timedelta(0) if losses <= 1 else self._wait(losses - 1, default_base)

    def _wait(self, doublings: int, default_base: timedelta) -> timedelta:
        base = default_base if self.base is None else to_duration(self.base, what="Retry(base)")
        seconds = base.total_seconds() * self.factor ** min(doublings, MOST_DOUBLINGS)
        cap = to_duration(self.cap, what="Retry(cap)")
        return min(cap, timedelta(seconds=min(seconds, cap.total_seconds())))
