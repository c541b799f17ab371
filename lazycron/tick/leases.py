"""Renewal: a live run keeps its lease, whatever its task or the app's event loop is doing."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Self

from lazycron.clock import Clock
from lazycron.model.settle import Claim
from lazycron.store import Fault, fault_of

POLL_LOCKED = 0.01
# A burial on SQLite takes two looks half a second apart; a clock's step is noticed between them.
LONGEST_WAIT = 0.25
STEP = timedelta(seconds=1)
LONG_RUN = 1.0
FALLS_ASLEEP_AFTER = 40

Renew = Callable[[Claim, datetime], bool]


@dataclass(slots=True, eq=False)
class Lease:
    """One run's lease: when it is renewed next (monotonic), and whether it is lost.

    Renewals stop at `last_renewal`, the end of the task's timeout. The lease then runs out and the
    run is buried, although its function may still be busy. Used as a block, it ends with the block.
    """

    claim: Claim
    length: timedelta
    renew_at: float
    last_renewal: float | None
    now: Callable[[], datetime]
    tell_at: float
    end: Callable[["Lease"], None]
    lost: bool = False
    ended: bool = False

    def __enter__(self) -> Self:
        """Hold it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the renewals."""
        self.end(self)


class Leases:
    """Renews this process's leases from one thread, on its own connection.

    The first run starts the thread. A lease is first renewed after a third of its time. `outlived`
    is called once for each run that lasts longer than a second. On SQLite the thread polls without
    waiting for the file's lock, so that it is first when a long writer releases it (measured: with
    both sides waiting, twelve of twelve live leases were stolen).
    """

    def __init__(self, renew: Renew, outlived: Callable[[], None], clock: Clock) -> None:
        self._renew = renew
        self._outlived = outlived
        self._clock = clock
        self._monotonic = clock.monotonic
        self._zero: datetime | None = None
        self._held: set[Lease] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = -inf
        self._stopped = False

    def stop(self) -> None:
        """Let the thread end once no run holds a lease."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def hold(
        self,
        claim: Claim,
        length: timedelta,
        timeout: timedelta | None,
        now: Callable[[], datetime],
    ) -> Lease:
        """Return a block for whose time a claim's lease is renewed.

        `now` is the clock by which the ends of the lease are written.
        """
        begun = self._monotonic()
        lease = Lease(
            claim=claim,
            length=length,
            renew_at=begun + length.total_seconds() / 3,
            last_renewal=None if timeout is None else begun + timeout.total_seconds(),
            now=now,
            tell_at=begun + LONG_RUN,
            end=self._end,
        )
        with self._changed:
            self._held.add(lease)
            self._start()
            if self._wakes_at > lease.renew_at:
                self._changed.notify()
        return lease

    def _end(self, lease: Lease) -> None:
        with self._changed:
            lease.ended = True
            self._held.discard(lease)

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._serve, name="lazycron-leases", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        empty = 0
        while True:
            with self._changed:
                if self._stopped and not self._held:
                    self._thread = None
                    return
                empty = 0 if self._held else empty + 1
                self._wait(for_ever=empty > FALLS_ASLEEP_AFTER)
                now = inf if self._clock_has_stepped() else self._monotonic()
                due = [lease for lease in self._held if lease.renew_at <= now]
                now = self._monotonic()
                long = [lease for lease in self._held if lease.tell_at <= now]
            for lease in due:
                self._keep(lease)
            for lease in long:
                lease.tell_at = inf
            if long:
                self._tell()

    def _wait(self, *, for_ever: bool) -> None:
        """Wait for the next renewal, in slices while runs come and go.

        So a run that begins need not wake this thread, which would cost more than most tasks. And a
        test's clock may jump while the thread waits on the real one.
        """
        wait = min([lease.renew_at for lease in self._held], default=inf) - self._monotonic()
        wait = min(max(wait, 0.0), LONGEST_WAIT)
        self._wakes_at = inf if for_ever else self._monotonic() + wait
        self._changed.wait(None if for_ever else wait)

    def _clock_has_stepped(self) -> bool:
        """Tell whether the host's wall clock was corrected since the last slice.

        Then every lease is renewed at once: after a step ahead they look expired to a process that
        starts just now and cannot know of the step.
        """
        before = self._zero
        self._zero = self._clock.now() - timedelta(seconds=self._monotonic())
        return before is not None and abs(self._zero - before) > STEP

    def _tell(self) -> None:
        # Only a hint is lost, and the next tick writes one.
        with suppress(Exception):
            self._outlived()

    def _keep(self, lease: Lease) -> None:
        third = lease.length.total_seconds() / 3
        if lease.last_renewal is not None and self._monotonic() >= lease.last_renewal:
            self._let_go(lease)
            return
        try:
            kept = self._renew(lease.claim, lease.now() + lease.length)
        except Exception as error:  # noqa: BLE001 - the other leases are renewed in any case
            # An outage may end before the lease does; the run goes on meanwhile.
            busy = fault_of(error) is Fault.BUSY
            lease.renew_at = self._monotonic() + (POLL_LOCKED if busy else min(third, 1.0))
            return
        if kept:
            lease.renew_at = self._monotonic() + third
        else:
            lease.lost = not lease.ended
            self._let_go(lease)

    def _let_go(self, lease: Lease) -> None:
        with self._changed:
            self._held.discard(lease)
