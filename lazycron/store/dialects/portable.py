"""The statements that every database accepts; each dialect replaces what it can do better."""

from collections.abc import Mapping
from copy import copy
from datetime import datetime
from typing import Any, Self

from sqlalchemy import bindparam, null, update

from lazycron.model.settle import Claim, Settlement
from lazycron.schema import UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store import history, settlements
from lazycron.store.claims import CLAIMED_COLUMNS, Claiming, Stamp
from lazycron.store.driver.prepared import Prepare
from lazycron.store.driver.transaction import Transaction
from lazycron.store.settlements import BURY, RECORD, RELEASE, PreparedWrites, Recorded

MOST_TRIES = 20


class Portable:
    """SELECT the oldest due row, then a conditional UPDATE: one process wins, the others retry.

    With eight racing processes on the servers, 3.5 to 3.7 UPDATEs a run find their row taken.
    """

    claiming: Claiming

    def __init__(self, prepare: Prepare) -> None:
        self.prepare = prepare
        self._record = {ending: prepare(one) for ending, one in RECORD.items()}
        self._release = {ending: prepare(one) for ending, one in RELEASE.items()}
        self._bury = {ending: prepare(one) for ending, one in BURY.items()}
        self._insert_run = prepare(history.INSERT)

    def knowing(self, claiming: Claiming) -> Self:
        """Return this dialect with the statements that claim the rows of one set of tasks."""
        made = copy(self)
        made.claiming = claiming
        made._build_claims()  # noqa: SLF001 - a copy of ours
        return made

    def _build_claims(self) -> None:
        claiming = self.claiming
        self._look = self.prepare(claiming.first_due(*CLAIMED_COLUMNS, t.c.next_run_at))
        recurring = claiming.first_recurring(*CLAIMED_COLUMNS, t.c.next_run_at)
        self._look_recurring = self.prepare(recurring)
        self._take = self.prepare(
            update(t)
            .where(
                t.c.id == bindparam("p_id"),
                t.c.next_run_at == bindparam("p_seen", type_=UTCDateTime),
                t.c.scheduled_for == bindparam("p_for", type_=UTCDateTime),
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
            seen = {"p_id": row.id, "p_seen": row.next_run_at, "p_for": row.scheduled_for}
            if transaction.count(self._take, self.claiming.stamped(stamp) | seen) == 1:
                # A SELECT before the UPDATE shows the attempts before the claim.
                return self.claiming.to_claim(row, stamp, attempt=row.attempts + 1)
            transaction.commit()
        return None

    def record(
        self, transaction: Transaction, settlement: Settlement, by: str, then: Stamp | None
    ) -> Recorded | None:
        """Write a settlement and its history row, then claim the next row; None if not ours."""
        values = settlements.recorded(settlement)
        if not self._write(transaction, self._record, settlement, values, by):
            return None
        return Recorded(self.claim(transaction, then) if then else None)

    def bury(
        self, transaction: Transaction, settlement: Settlement, by: str, now: datetime
    ) -> bool:
        """Take an expired claim off its row and record its run as lost; False if renewed."""
        values = settlements.buried(settlement, now)
        return self._write(transaction, self._bury, settlement, values, by)

    def release(self, transaction: Transaction, settlement: Settlement, by: str) -> bool:
        """Take the claim with this token off its row and record its run as lost."""
        values = settlements.settled(settlement)
        return self._write(transaction, self._release, settlement, values, by)

    def _write(
        self,
        transaction: Transaction,
        writes: PreparedWrites,
        settlement: Settlement,
        values: Mapping[str, Any],
        by: str,
    ) -> bool:
        """Write a row and, if its run is over, its history row; False if the row has changed."""
        if transaction.count(writes[settlement.ending], values) != 1:
            return False
        if settlement.is_over:
            transaction.count(self._insert_run, history.run_values(settlement, by))
        return True
