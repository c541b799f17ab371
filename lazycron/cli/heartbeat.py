"""The loop's heartbeat: a setting by which requests know that they may stand back."""

from lazycron.clock import Clock
from lazycron.store import DatabaseError
from lazycron.tick.next_due import LOOP_AT
from lazycron.wiring import Parts

BEAT_EVERY = 10.0
NONE = ""


class Heartbeat:
    """Written between ticks only: a loop that hangs in a task falls silent."""

    def __init__(self, parts: Parts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._beat_at = 0.0
        self._last: str | None = None

    def beat(self) -> None:
        """Write the heartbeat if ten seconds have passed since the last one."""
        monotonic = self._clock.monotonic()
        if self._last is None or monotonic >= self._beat_at:
            self._write(self._clock.now().isoformat())
            self._beat_at = monotonic + BEAT_EVERY

    def end(self) -> None:
        """Take the heartbeat back, unless another loop has written its own since."""
        if self._last is None:
            return
        try:
            if self._parts.store.shared.settings().get(LOOP_AT) == self._last:
                self._write(NONE)
        except DatabaseError:
            pass  # it runs out by itself

    def _write(self, text: str) -> None:
        self._parts.store.shared.put_setting(LOOP_AT, text, self._clock.now())
        self._last = text
        # This host's file at once; the others' within the half minute that settings are kept for.
        self._parts.refresh_state(settings=True)
