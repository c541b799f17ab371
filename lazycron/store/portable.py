"""The claim that every database understands: look, then take if it is as it was seen."""

from sqlalchemy import Connection, bindparam, null, update

from lazycron.outcomes import Claim
from lazycron.schema import UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store.claims import CLAIMED_COLUMNS, Claiming, Stamp

MOST_TRIES = 20


class PortableClaim:
    """SELECT the oldest due row, then a conditional UPDATE: one winner, at several looks' price.

    With eight racing processes 3.5 to 3.7 UPDATEs a run find their row taken on the servers.
    """

    def __init__(self, claiming: Claiming) -> None:
        self.claiming = claiming
        self.look = claiming.first_due(*CLAIMED_COLUMNS, t.c.next_run_at)
        self.take = (
            update(t)
            .where(
                t.c.id == bindparam("p_id"),
                t.c.next_run_at == bindparam("p_seen", type_=UTCDateTime),
                t.c.lock_token.is_(null()),
                t.c.enabled,
            )
            .values(claiming.stamps)
        )

    def __call__(self, connection: Connection, stamp: Stamp) -> Claim | None:
        """Claim the oldest due row, or return None."""
        values = self.claiming.values(stamp)
        seen = {"p_due": stamp.due, "p_floor": stamp.floor}
        stamps = {name: value for name, value in values.items() if name not in seen}
        for _ in range(MOST_TRIES):
            row = connection.execute(self.look, seen).one_or_none()
            if row is None:
                return None
            # Each try ends its transaction, so that the next look is a fresh one.
            taken = connection.execute(
                self.take, stamps | {"p_id": row.id, "p_seen": row.next_run_at}
            ).rowcount
            if taken == 1:
                # A SELECT before the UPDATE shows the attempts before the claim.
                return self.claiming.to_claim(row, stamp, attempt=row.attempts + 1)
            connection.commit()
        return None
