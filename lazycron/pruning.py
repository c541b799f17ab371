"""History and once keys that are too many or too old go with the ticks, in slices."""

from collections.abc import Callable
from datetime import timedelta

from lazycron.store import SLICE, Store
from lazycron.ticks import Tick

BY_AGE_AFTER = 60.0


class Pruning:
    """Costs a tick one indexed look for each recurring task it ran, and one by age a minute."""

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

    def prune(self, tick: Tick) -> None:
        """Prune at the end of a tick, by slices at least as large as what was added since."""
        for name in dict.fromkeys(tick.recurring):
            self._store.prune_beyond(name, self._keep_runs)
        self._added += tick.executed
        if self._monotonic() < self.by_age_at:
            return
        self.by_age_at = self._monotonic() + BY_AGE_AFTER
        added, self._added = self._added, 0
        for _ in range(1 + added // SLICE):
            if self._store.prune_older(tick.due - self._keep_age) < SLICE:
                break
        for _ in range(1 + added // SLICE):
            if self._store.jobs.prune_once(tick.due) < SLICE:
                break
