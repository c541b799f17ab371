"""Delete history and once keys that are too many or too old, in slices, during ticks."""

from collections.abc import Callable
from datetime import datetime, timedelta

from lazycron.store import SLICE, Store
from lazycron.tick.tick import Tick

BY_AGE_AFTER = 60.0


class Pruning:
    """Costs a tick one indexed look for each recurring task it ran, and each minute one by age."""

    def __init__(
        self,
        store: Store,
        monotonic: Callable[[], float],
        *,
        keep_runs: int,
        keep_age: timedelta,
    ) -> None:
        self.by_age_at = 0.0
        self._store = store
        self._monotonic = monotonic
        self._keep_runs = keep_runs
        self._keep_age = keep_age
        self._added = 0
        self._looked_up_to = 0

    def prune(self, tick: Tick) -> None:
        """Prune at the end of a tick, at least as many rows as were added since the last time."""
        for name in dict.fromkeys(tick.recurring):
            self._store.history.prune_beyond(name, self._keep_runs)
        self._added += tick.executed
        if self._monotonic() < self.by_age_at:
            return
        self.by_age_at = self._monotonic() + BY_AGE_AFTER
        added, self._added = self._added, 0
        self._prune_older(tick.due - self._keep_age, 1 + added // SLICE)
        for _ in range(1 + added // SLICE):
            if self._store.once.prune(tick.due) < SLICE:
                break

    def _prune_older(self, before: datetime, slices: int) -> None:
        """Prune from the first run on, until a slice is not full of old runs.

        After that each minute's slices go on through the whole history: runs of a clock that was
        ahead may stand before older ones for years.
        """
        after: int | None = 0
        for _ in range(slices):
            deleted, after = self._store.history.prune_older(before)
            if deleted < SLICE:
                break
        for _ in range(slices):
            if after is None:
                return
            _, last = self._store.history.prune_older(before, max(after, self._looked_up_to))
            self._looked_up_to = last or 0
