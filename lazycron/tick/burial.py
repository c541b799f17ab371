"""Burial: expired claims come off their rows, and their runs are recorded as lost."""

from collections.abc import Callable
from datetime import datetime, timedelta
from math import inf

from lazycron.clock import EPOCH, Reference
from lazycron.logfile import LogFile
from lazycron.model.settle import Claim, Outcome, Policy, Status, settle
from lazycron.store import Abandoned, DatabaseError, Fault, Store, fault_of

BETWEEN_LOOKS = 0.5
# A claim's lease ends after the claim: once nothing was found, only later ends are looked at, or
# each look would walk past every row that is due. A minute back, since hosts' clocks differ; and
# for a minute only, since an old claim's row may be enabled again.
LOOK_BACK = timedelta(minutes=1)


class Burial:
    """Looks for claims whose lease has ended, and buries them.

    On the servers one look does. On SQLite a task may hold the file's write lock past its lease,
    so that its renewal could not come through: a claim is buried at the second of two looks, half
    a second apart, that found it unchanged and the lock free (measured: 0 of 12 live leases were
    stolen so, against 12 of 12 with a single look).
    """

    def __init__(
        self,
        store: Store,
        policy_of: Callable[[Claim], Policy],
        logfile: LogFile,
        reference: Reference,
        lease_of: Callable[[str], timedelta],
    ) -> None:
        self._store = store
        self._policy_of = policy_of
        self._logfile = logfile
        self._reference = reference
        self._lease_of = lease_of
        self._suspects: dict[tuple[int, str, datetime], float] = {}
        self._floor = EPOCH
        self._floor_until = -inf

    @property
    def waits_for_second_look(self) -> bool:
        """Whether claims were found that a look half a second later may bury."""
        return bool(self._suspects)

    def look(self, now: datetime, floor: datetime) -> int:
        """Bury what is lost; return how many claims that were.

        A first loss is due at `now`: the tick that buries it has not run it.
        """
        monotonic = self._reference.monotonic()
        if monotonic >= self._floor_until or now < self._floor:
            self._floor, self._floor_until = EPOCH, monotonic + LOOK_BACK.total_seconds()
        found = self._store.abandoned(now, max(floor, self._floor))
        if not found:
            self._floor = now - LOOK_BACK
            self._suspects.clear()
            return 0
        buried = [one for one in self._certain(found) if self._bury(one, now)]
        return len(buried)

    def look_at(self, one: Abandoned, now: datetime) -> bool:
        """Bury one claim whose lease has ended, be its row enabled or not, at the same terms."""
        others = self._suspects
        certain = self._certain([one])
        self._suspects = others | self._suspects
        return bool(certain) and self._bury(one, now)

    def _certain(self, found: list[Abandoned]) -> list[Abandoned]:
        if self._store.is_sqlite and not self._lock_is_free():
            self._suspects.clear()
            return []
        now = self._reference.monotonic()
        self._suspects = {one.seen: self._suspects.get(one.seen, now) for one in found}
        return [one for one in found if now - self._suspects[one.seen] >= self._patience(one)]

    def _patience(self, one: Abandoned) -> float:
        """Return for how many seconds a claim must have been seen expired before it is buried.

        After a step of the clock live leases look expired until their holders have renewed them.
        """
        lease = self._lease_of(one.claim.name)
        if self._reference.stepped_within(lease):
            return lease.total_seconds() / 3 + BETWEEN_LOOKS
        return BETWEEN_LOOKS if self._store.is_sqlite else 0.0

    def _lock_is_free(self) -> bool:
        try:
            return self._store.write_lock_is_free()
        except DatabaseError as error:
            if fault_of(error) is Fault.BUSY:
                return False
            raise

    def _bury(self, one: Abandoned, now: datetime) -> bool:
        message = f"Lost: {one.by or 'its process'} neither finished nor renewed it."
        outcome = Outcome(status=Status.LOST, message=message, ms=None)
        settlement = settle(
            one.claim,
            outcome,
            self._policy_of(one.claim),
            now=now,
            earliest=now,
        )
        try:
            buried = self._store.bury(settlement, one.by, now)
        except DatabaseError as error:
            if fault_of(error) is Fault.BUSY:
                self._suspects.clear()
                return False
            raise
        self._suspects.pop(one.seen, None)
        if buried:
            rest = f"{one.claim.trigger}  {message}"
            self._logfile.note(now, one.claim.name, Status.LOST, None, rest)
        return buried
