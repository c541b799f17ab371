"""PostgreSQL: one statement claims; one records, writes the history and claims the next row.

Each is its own transaction on a connection in autocommit mode, which saves three round trips.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    CTE,
    Delete,
    Insert,
    Integer,
    Select,
    Update,
    bindparam,
    exists,
    func,
    insert,
    literal,
    select,
    true,
    update,
)

from lazycron.model.settle import Claim, Settlement
from lazycron.schema import scheduled_task as t
from lazycron.schema import task_run as r
from lazycron.store import settlements
from lazycron.store.claims import CLAIMED_COLUMNS, Stamp
from lazycron.store.dialects.portable import Portable
from lazycron.store.driver.prepared import Prepare
from lazycron.store.driver.transaction import Transaction
from lazycron.store.history import RUN_PARAMETERS, run_values
from lazycron.store.settlements import BURY, RECORD, RELEASE, PreparedWrites, Recorded, Writes


def _insert_run(written: CTE) -> Insert:
    """Write the history row if the UPDATE has found its row."""
    values = [
        bindparam(f"h_{name}", type_=r.c[column].type).label(column)
        for column, name in RUN_PARAMETERS.items()
    ]
    return insert(r).from_select(list(RUN_PARAMETERS), select(*values).select_from(written))


def _written(statement: Update | Delete) -> Select[int]:
    """Write a row and its history in one statement, which returns how many rows were found."""
    written = statement.returning(t.c.id).cte("written")
    history = _insert_run(written).returning(r.c.id).cte("history")
    return select(func.count().label("found")).select_from(written).add_cte(history)


class PostgreSQL(Portable):
    """Claims with SKIP LOCKED, so that no process waits for another one's row."""

    def __init__(self, prepare: Prepare) -> None:
        super().__init__(prepare)
        self._record_whole = self._each_written(RECORD)
        self._release_whole = self._each_written(RELEASE)
        self._bury_whole = self._each_written(BURY)

    def _each_written(self, writes: Writes) -> PreparedWrites:
        return {ending: self.prepare(_written(one)) for ending, one in writes.items()}

    def _build_claims(self) -> None:
        take = self._taking(self.claiming.first_due(t.c.id))
        self._take_one = self.prepare(take.returning(*CLAIMED_COLUMNS))
        recurring = self._taking(self.claiming.first_recurring(t.c.id))
        self._take_recurring = self.prepare(recurring.returning(*CLAIMED_COLUMNS))
        self._record_and_take = {
            ending: self.prepare(self._recording_and_taking(statement, take))
            for ending, statement in RECORD.items()
        }

    def _taking(self, oldest: Select[Any]) -> Update:
        locked = oldest.with_for_update(skip_locked=True).scalar_subquery()
        return update(t).where(t.c.id == locked).values(self.claiming.stamps)

    def _recording_and_taking(self, record: Update | Delete, take: Update) -> Select[Any]:
        # The parts of one statement share a snapshot: the row just recorded still stands at its
        # lease's end there, so it cannot be its own next claim.
        written = record.returning(t.c.id).cte("written")
        history = _insert_run(written).returning(r.c.id).cte("history")
        taken = take.where(exists(select(written.c.id))).returning(*CLAIMED_COLUMNS).cte("taken")
        one = select(literal(1, Integer).label("one")).subquery("one")
        found = select(func.count()).select_from(written).scalar_subquery().label("found")
        return (
            select(found, *taken.c)
            .select_from(one.join(taken, true(), isouter=True))
            .add_cte(history)
        )

    def claim(self, transaction: Transaction, stamp: Stamp) -> Claim | None:
        """Claim the oldest due row, or return None."""
        take = self._take_recurring if stamp.recurring else self._take_one
        row = transaction.one(take, self.claiming.values(stamp))
        return None if row is None else self.claiming.to_claim(row, stamp, attempt=row.attempts)

    def record(
        self, transaction: Transaction, settlement: Settlement, by: str, then: Stamp | None
    ) -> Recorded | None:
        """Write a settlement and its history row and claim the next row; None if not ours."""
        if not settlement.is_over:
            # A paused slice writes no history, so two statements lose nothing between them.
            return super().record(transaction, settlement, by, then)
        values = settlements.recorded(settlement) | run_values(settlement, by)
        if then is None:
            found = transaction.one(self._record_whole[settlement.ending], values)
            return Recorded() if found and found.found else None
        both = values | self.claiming.values(then)
        row = transaction.one(self._record_and_take[settlement.ending], both)
        if row is None or not row.found:
            return None
        if row.id is None:
            return Recorded()
        return Recorded(self.claiming.to_claim(row, then, attempt=row.attempts))

    def bury(
        self, transaction: Transaction, settlement: Settlement, by: str, now: datetime
    ) -> bool:
        """Take an expired claim off its row and record its run as lost; False if renewed."""
        values = settlements.buried(settlement, now) | run_values(settlement, by)
        found = transaction.one(self._bury_whole[settlement.ending], values)
        return found is not None and found.found == 1

    def release(self, transaction: Transaction, settlement: Settlement, by: str) -> bool:
        """Take the claim with this token off its row and record its run as lost."""
        values = settlements.settled(settlement) | run_values(settlement, by)
        found = transaction.one(self._release_whole[settlement.ending], values)
        return found is not None and found.found == 1
