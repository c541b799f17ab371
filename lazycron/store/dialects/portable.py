"""The statements that every database understands; each dialect replaces what it can do better."""

from datetime import datetime

from sqlalchemy import bindparam, null, update

from lazycron.model.settle import Claim, Settlement
from lazycron.schema import UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store import settlements
from lazycron.store.claims import CLAIMED_COLUMNS, Claiming, Stamp
from lazycron.store.driver.transaction import Transaction
from lazycron.store.settlements import BURY, RECORD, RELEASE, Recorded

MOST_TRIES = 20


class Portable:
    """SELECT the oldest due row, then a conditional UPDATE: one winner, at several looks' price.

    With eight racing processes 3.5 to 3.7 UPDATEs a run find their row taken on the servers.
    """

    def __init__(self, claiming: Claiming) -> None:
        self.claiming = claiming
        self._look = claiming.first_due(*CLAIMED_COLUMNS, t.c.next_run_at)
        self._look_recurring = claiming.first_recurring(*CLAIMED_COLUMNS, t.c.next_run_at)
        self._take = (
            update(t)
            .where(
                t.c.id == bindparam("p_id"),
                t.c.next_run_at == bindparam("p_seen", type_=UTCDateTime),
                t.c.lock_token.is_(null()),
                t.c.enabled,
            )
            .values(claiming.stamps)
        )

    def claim(self, transaction: Transaction, stamp: Stamp) -> Claim | None:
        """Claim the oldest due row, or return None; ends the transaction between two looks."""
        query = self._look_recurring if stamp.recurring else self._look
        look = self.claiming.looks(stamp)
        for _ in range(MOST_TRIES):
            row = transaction.one(query, look)
            if row is None:
                return None
            take = self.claiming.stamped(stamp) | {"p_id": row.id, "p_seen": row.next_run_at}
            if transaction.count(self._take, take) == 1:
                # A SELECT before the UPDATE shows the attempts before the claim.
                return self.claiming.to_claim(row, stamp, attempt=row.attempts + 1)
            transaction.commit()
        return None

    def record(
        self, transaction: Transaction, settlement: Settlement, by: str, then: Stamp | None
    ) -> Recorded | None:
        """Write a settlement and its history row, then claim the next row; None: not ours."""
        values = settlements.recorded(settlement)
        if not settlements.write(transaction, RECORD, settlement, values, by):
            return None
        return Recorded(self.claim(transaction, then) if then else None)

    def bury(
        self, transaction: Transaction, settlement: Settlement, by: str, now: datetime
    ) -> bool:
        """Take an expired claim off its row and record its run as lost; False: renewed."""
        values = settlements.buried(settlement, now)
        return settlements.write(transaction, BURY, settlement, values, by)

    def release(self, transaction: Transaction, settlement: Settlement, by: str) -> bool:
        """Take any claim off its row by its token and record its run as lost."""
        values = settlements.settled(settlement)
        return settlements.write(transaction, RELEASE, settlement, values, by)
