"""After an answer that did not come: what the commit before it has done all the same."""

from sqlalchemy import Connection, bindparam, select

from lazycron.model.arguments import asked_again
from lazycron.model.settle import Claim, Settlement
from lazycron.schema import UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.schema import task_run as r
from lazycron.store.claims import CLAIMED_COLUMNS, Claiming, Stamp

# All runs of the name, at worst: answers are lost once a year. A run's status and pid tell it from
# a burial of it.
STORED = select(r.c.id).where(
    r.c.name == bindparam("p_name"),
    r.c.started_at == bindparam("p_started_at", type_=UTCDateTime),
    r.c.status == bindparam("p_status"),
    r.c.pid == bindparam("p_pid"),
)
# A full scan: tokens have no index, and answers are lost once a year.
UNDER_TOKEN = select(*CLAIMED_COLUMNS).where(t.c.lock_token == bindparam("p_token"))


def is_stored(connection: Connection, settlement: Settlement, by: str) -> bool:
    """Tell whether the history has this run, as this process would have written it."""
    pid = by.rpartition(":")[2]
    values = {
        "p_started_at": settlement.claim.began_at,
        "p_name": settlement.claim.name,
        "p_status": settlement.outcome.status.value,
        "p_pid": int(pid) if pid.isdecimal() else None,
    }
    return connection.execute(STORED, values).first() is not None


def claimed_under(connection: Connection, claiming: Claiming, stamp: Stamp) -> Claim | None:
    """Return the claim that was made with this stamp, if it was."""
    row = connection.execute(UNDER_TOKEN, {"p_token": stamp.token}).one_or_none()
    # A job that was asked for again meanwhile waits for its own time: its lease's end lets it go.
    if row is None or asked_again(row.arguments, stamp.token) is not None:
        return None
    return claiming.to_claim(row, stamp, attempt=row.attempts)
