"""What SIGINT and SIGTERM do while tasks run: finish the run, or end it, and say so."""

import os
import signal
import socket
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from lazycron.cli.output import say
from lazycron.process import Activity

HANDLED = (signal.SIGINT, signal.SIGTERM)
FINISHING = "stopping; a run under way is finished first, another signal ends it at once"


class Signals:
    """Handlers for the time of a `with` block in the main thread; elsewhere it does nothing.

    The first signal sets `activity.stopping` and lets the run under way finish; the second raises
    KeyboardInterrupt wherever the main thread is. With `at_once` the first SIGINT raises as well,
    but only while a task's function runs: an exception in the middle of lazycron's own work would
    leave a claim behind.
    """

    def __init__(self, activity: Activity, *, at_once: bool) -> None:
        self.first: int | None = None
        self.ended_by: int | None = None
        self._activity = activity
        self._at_once = at_once
        self._pid = os.getpid()
        self._before: dict[int, Any] = {}
        self._listener: threading.Thread | None = None
        self._ears, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)  # noqa: FBT003 - the standard library's own

    def has_interrupted(self) -> bool:
        """Tell whether a KeyboardInterrupt is ours."""
        return self.ended_by is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._listener = threading.Thread(
                target=self._listen, name="lazycron-signals", daemon=True
            )
            self._listener.start()
            self._before = {number: signal.signal(number, self._handle) for number in HANDLED}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._mouth.close()
        if self._listener is not None:
            self._listener.join()
        self._ears.close()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            _behave_as_before(number)
            return
        again, self.first = self.first is not None, self.first or number
        ends = again or (self._at_once and number == signal.SIGINT and self._is_in_a_task())
        if ends:
            self.ended_by = number
        # An event must not be set here: the main thread may be holding its lock at this moment.
        self._tell(number)
        if ends:
            message = f"ended by {signal.Signals(number).name}"
            raise KeyboardInterrupt(message)

    def _is_in_a_task(self) -> bool:
        """Tell whether the main thread, where handlers run, is inside a task's function."""
        return self._activity.is_in_a_task(threading.get_ident())

    def _tell(self, number: int) -> None:
        # Full, the pipe holds more than the listener needs already.
        with suppress(OSError):
            self._mouth.send(bytes([number]))

    def _listen(self) -> None:
        heard = 0
        while received := self._ears.recv(1):
            self._activity.stopping.set()
            heard += 1
            if heard == 1 and not self.has_interrupted():
                name = signal.Signals(received[0]).name
                say(f"lazycron: {name}: {FINISHING}", err=True)


def _behave_as_before(number: int) -> None:
    """Do in a task's forked child what the signal does in any program."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
