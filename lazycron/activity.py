"""What this process is busy with: ticks under way, runs by thread, and whether it is stopping."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta

# As many ticks of one process as may hang in a task each; then none is begun for a request.
MOST_HANGING = 4


class Activity:
    """Counts ticks and runs, so that others can wait for them or find one hanging."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.stopping = threading.Event()
        self._monotonic = monotonic
        self._ticks = 0
        self._idle = threading.Condition()
        self._run_began: dict[int, float] = {}

    @contextmanager
    def in_a_tick(self) -> Iterator[None]:
        """Count a tick for the time of this block."""
        with self._idle:
            self._ticks += 1
        try:
            yield
        finally:
            with self._idle:
                self._ticks -= 1
                self._idle.notify_all()

    def in_a_run(self) -> AbstractContextManager[None]:
        """Note that this thread is in a run for the time of the block that is entered with it.

        A task may run another task in its own thread: what began first counts.
        """
        thread = threading.get_ident()
        if thread in self._run_began:
            return nullcontext()
        return _InARun(self._run_began, thread, self._monotonic())

    @property
    def is_busy(self) -> bool:
        """Whether a tick is under way."""
        return self._ticks > 0

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no tick is under way, at most `timeout` seconds; return whether none is."""
        with self._idle:
            return self._idle.wait_for(lambda: self._ticks == 0, timeout)

    def hanging(self, longer_than: timedelta) -> int:
        """Count the threads that have been in one run for longer than that."""
        return sum(self.is_hanging(thread, longer_than) for thread in tuple(self._run_began))

    def is_hanging(self, thread: int | None, longer_than: timedelta) -> bool:
        """Tell whether a thread has been in one run for longer than that."""
        began = self._run_began.get(thread or 0)
        if began is None:
            return False
        return self._monotonic() - began > longer_than.total_seconds()


class _InARun:
    """A class, not a generator: between two short runs it is all that there is."""

    def __init__(self, began: dict[int, float], thread: int, now: float) -> None:
        self._began = began
        self._thread = thread
        self._now = now

    def __enter__(self) -> None:
        self._began[self._thread] = self._now

    def __exit__(self, *_: object) -> None:
        del self._began[self._thread]
