"""Where a tick takes its moments from: the clock, or the `now` its caller gave."""

from dataclasses import dataclass
from datetime import datetime

from lazycron.clock import Clock


@dataclass(frozen=True, slots=True)
class Moments:
    """The clock's own moment at each question, or the given one throughout."""

    clock: Clock
    given: datetime | None = None

    def now(self) -> datetime:
        """Return the moment to stamp with."""
        return self.given if self.given is not None else self.clock.now()
