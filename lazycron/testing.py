"""For tests of apps that use lazycron: a clock that is a variable, and ticks along it."""

import threading
from datetime import datetime, timedelta

from lazycron.app import LazyCron
from lazycron.clock import to_moment
from lazycron.durations import Duration, to_duration
from lazycron.reports import TickReport


class ManualClock:
    """A clock that stands still until it is told otherwise; pass it as `LazyCron(clock=…)`.

    Takes an aware datetime or epoch seconds. The monotonic clock goes along when time passes
    (`tick`, or `set` to a later moment) and stands still when the wall clock is put back.
    """

    def __init__(self, moment: datetime | float) -> None:
        self._lock = threading.Lock()
        self._now = to_moment(moment)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        """Return the moment this clock shows."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._monotonic

    def set(self, moment: datetime | float) -> None:
        """Show another moment: time passes if it is later, the clock is put back if earlier."""
        with self._lock:
            moment = to_moment(moment)
            self._monotonic += max(0.0, (moment - self._now).total_seconds())
            self._now = moment

    def tick(self, duration: Duration = 1) -> None:
        """Let time pass, a second by default."""
        length = to_duration(duration, what="tick")
        with self._lock:
            self._now += length
            self._monotonic += length.total_seconds()

    def jump(self, duration: timedelta) -> None:
        """Move the wall clock only, forward or back, as a time server's correction does."""
        with self._lock:
            self._now += duration


def tick_through(
    cron: LazyCron, start: datetime | float, stop: datetime | float, step: Duration
) -> list[TickReport]:
    """Tick at `start`, then every `step`, up to and including `stop`; return the reports.

    A ManualClock is set to each moment; with any other clock each tick is handed its moment.
    """
    moment, end = to_moment(start), to_moment(stop)
    length = to_duration(step, what="step", least=timedelta(microseconds=1))
    clock = cron.settings.clock
    reports = []
    while moment <= end:
        if isinstance(clock, ManualClock):
            clock.set(moment)
            reports.append(cron.run_due())
        else:
            reports.append(cron.run_due(now=moment))
        moment += length
    return reports
