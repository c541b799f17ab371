"""PostgreSQL: one statement claims; one records, writes the history and claims the next row.

Each is a transaction of its own on a connection in autocommit mode: three round trips less.
"""

from datetime import datetime

from sqlalchemy import (
    CTE,
    Connection,
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

from lazycron.outcomes import Claim, Settlement
from lazycron.schema import scheduled_task as t
from lazycron.schema import task_run as r
from lazycron.store import claims
from lazycron.store.claims import CLAIMED_COLUMNS, Claiming, Recorded, Stamp
from lazycron.store.history import RUN_PARAMETERS, run_values
from lazycron.store.portable import Portable


def _insert_run(written: CTE) -> Insert:
    """Write the history row, provided that the row's UPDATE has found its row."""
    values = [
        bindparam(f"h_{name}", type_=r.c[column].type).label(column)
        for column, name in RUN_PARAMETERS.items()
    ]
    return insert(r).from_select(list(RUN_PARAMETERS), select(*values).select_from(written))


def _recorded(update_row: Update) -> Select[int]:
    """Write a row and its history in one statement; selects how many rows were found."""
    written = update_row.returning(t.c.id).cte("written")
    history = _insert_run(written).returning(r.c.id).cte("history")
    return select(func.count()).select_from(written).add_cte(history)


RECORD = _recorded(claims.RECORD)
RELEASE = _recorded(claims.RELEASE)
BURY = _recorded(claims.BURY)


class PostgreSQL(Portable):
    """Claims with SKIP LOCKED, so that racers pass each other by."""

    def __init__(self, claiming: Claiming) -> None:
        super().__init__(claiming)
        oldest = claiming.first_due(t.c.id).with_for_update(skip_locked=True).scalar_subquery()
        take = update(t).where(t.c.id == oldest).values(claiming.stamps)
        self._take_one = take.returning(*CLAIMED_COLUMNS)
        # The parts of one statement share a snapshot: the row just recorded still stands at its
        # lease's end there, so it cannot be its own next claim.
        written = claims.RECORD.returning(t.c.id).cte("written")
        history = _insert_run(written).returning(r.c.id).cte("history")
        taken = take.where(exists(select(written.c.id))).returning(*CLAIMED_COLUMNS).cte("taken")
        one = select(literal(1, Integer).label("one")).subquery("one")
        found = select(func.count()).select_from(written).scalar_subquery().label("found")
        self._record_and_take = (
            select(found, *taken.c)
            .select_from(one.join(taken, true(), isouter=True))
            .add_cte(history)
        )

    def claim(self, connection: Connection, stamp: Stamp) -> Claim | None:
        """Claim the oldest due row, or return None."""
        row = connection.execute(self._take_one, self.claiming.values(stamp)).one_or_none()
        return None if row is None else self.claiming.to_claim(row, stamp, attempt=row.attempts)

    def record(
        self, connection: Connection, settlement: Settlement, by: str, then: Stamp | None
    ) -> Recorded | None:
        """Write a settlement and its history row and claim the next row; None: not ours."""
        values = claims.recorded(settlement) | run_values(settlement, by)
        if then is None:
            found = connection.execute(RECORD, values).scalar_one()
            return Recorded() if found else None
        both = values | self.claiming.values(then)
        row = connection.execute(self._record_and_take, both).one()
        if not row.found:
            return None
        if row.id is None:
            return Recorded()
        return Recorded(self.claiming.to_claim(row, then, attempt=row.attempts))

    def bury(self, connection: Connection, settlement: Settlement, by: str, now: datetime) -> bool:
        """Take an expired claim off its row and record its run as lost; False: renewed."""
        values = claims.buried(settlement, now) | run_values(settlement, by)
        return connection.execute(BURY, values).scalar_one() == 1

    def release(self, connection: Connection, settlement: Settlement, by: str) -> bool:
        """Take any claim off its row by its token and record its run as lost."""
        values = claims.settled(settlement) | run_values(settlement, by)
        return connection.execute(RELEASE, values).scalar_one() == 1
