"""Where a tick takes its moments from: the reference, or the `now` its caller gave."""

from dataclasses import dataclass
from datetime import datetime

from lazycron.reference import Reference


@dataclass(frozen=True, slots=True)
class Moments:
    """The reference's own moment at each question, or the given one throughout."""

    reference: Reference
    given: datetime | None = None

    def now(self) -> datetime:
        """Return the moment to stamp with."""
        return self.given if self.given is not None else self.reference.now()
