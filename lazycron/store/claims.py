"""Claim, renew and checkpoint: each a conditional UPDATE whose row count is the answer."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    case,
    func,
    null,
    or_,
    select,
    true,
    update,
)

from lazycron.model.settle import RECURRING, Claim, State, Status
from lazycron.schema import UNREADABLE, UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store.driver.prepared import AnyRow
from lazycron.texts import counters_from_json

# SQLAlchemy silently sets a column that has a parameter's name; so each has a prefix: `c_` for
# what claims a row, `p_` for what is done to a claimed row. One statement may have both.
SCHEDULE_NOW = func.coalesce(t.c.schedule_override, t.c.schedule, "")
CLAIMED_COLUMNS = (
    t.c.id,
    t.c.name,
    t.c.key,
    t.c.arguments,
    SCHEDULE_NOW.label("schedule_now"),
    t.c.scheduled_for,
    t.c.attempts,
    t.c.failures,
    t.c.losses,
    t.c.progress,
    t.c.counters,
    t.c.goes_on_for,
    t.c.slices_ms,
    t.c.slices_began,
    t.c.asked_again,
)


def new_token() -> str:
    """Return a random id that no other claim has."""
    return secrets.token_hex(16)


def readable(moment: datetime | None, instead: datetime) -> datetime:
    """Return a claimed row's moment, or another one if it was edited by hand beyond use.

    So the record of the run repairs the row.
    """
    return instead if moment is None or moment == UNREADABLE else moment


def is_known(names: Sequence[str]) -> ColumnElement[bool]:
    """Tell known rows from others, by an expression that no index answers.

    With a few known names a planner would look each of them up and sort what it finds, which may
    be any number of jobs that wait for later. By the due index it reads the first due row.
    """
    return func.coalesce(t.c.name, "").in_(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a claim writes: who, since when, by which trigger, under which token.

    `due` is the tick's start, which decides what is due; `start` is the claim's own moment.
    Rows before `floor` are all unknown. Names in `without` are not claimed: their rows were made
    just now, or this trigger may not run them. `recurring` asks for the oldest due recurring row,
    however many jobs are due before it.
    """

    due: datetime
    start: datetime
    token: str
    by: str
    trigger: str
    floor: datetime
    without: frozenset[str] = frozenset()
    recurring: bool = False


class Claiming:
    """The claim statements of one set of known tasks, built once: rebuilding costs 4.7x.

    `leases` maps each known name to how long a claim of it holds. Names are bound one by one,
    which beats an expanding IN.
    """

    def __init__(self, leases: Mapping[str, timedelta]) -> None:
        self.names = tuple(sorted(leases))
        # A process that knows no task claims none, but its statements still need some lease.
        self.lengths = tuple(sorted(set(leases.values()))) or (timedelta(minutes=5),)
        self._leases = dict(leases)

    @cached_property
    def is_due(self) -> ColumnElement[bool]:
        """What makes a row claimable: enabled, due, free and known."""
        return and_(
            # `enabled = true` and not `IS true`, which MariaDB answers with a full scan.
            t.c.enabled == true(),
            t.c.next_run_at <= bindparam("c_due", type_=UTCDateTime),
            t.c.next_run_at >= bindparam("c_floor", type_=UTCDateTime),
            t.c.lock_token.is_(null()),
            is_known(self.names),
        )

    def first_due(self, *columns: ColumnElement[Any]) -> Select[Any]:
        """Select the oldest due row: due time, then id."""
        return select(*columns).where(self.is_due).order_by(t.c.next_run_at, t.c.id).limit(1)

    def first_recurring(self, *columns: ColumnElement[Any]) -> Select[Any]:
        """Select the oldest due recurring row that is not paused, found through UNIQUE(name, key).

        A paused one has had its turn: it would use up each tick's seconds before any other task.

        The due time stands in an expression, so that no database uses the due index: any number of
        jobs may lie before the row there. SQLite would use it once it has analysed the table.
        """
        due = and_(
            t.c.enabled == true(),
            t.c.next_run_at <= bindparam("c_due", type_=UTCDateTime),
            t.c.next_run_at >= bindparam("c_floor", type_=UTCDateTime),
        )
        return (
            select(*columns)
            .where(
                t.c.name.in_(self.names),
                t.c.key == RECURRING,
                case((due, 1), else_=0) == 1,
                func.coalesce(t.c.last_status, "") != Status.PAUSED.value,
                t.c.lock_token.is_(null()),
            )
            .order_by(t.c.next_run_at, t.c.id)
            .limit(1)
        )

    @cached_property
    def stamps(self) -> dict[str, Any]:
        """The SET clause of every claim."""
        return {
            "next_run_at": self._lease_end,
            "lock_token": bindparam("c_token"),
            "locked_by": bindparam("c_by"),
            "last_run_at": bindparam("c_start", type_=UTCDateTime),
            "last_trigger": bindparam("c_trigger"),
            "attempts": t.c.attempts + 1,
        }

    @cached_property
    def take_by_name(self) -> Update:
        """Claim a free recurring row, due or not; one that is not due gets its start as due time.

        `scheduled_for` stands first in the SET clause, since MariaDB evaluates from left to right.
        """
        due = and_(t.c.enabled == true(), t.c.next_run_at <= bindparam("c_due", type_=UTCDateTime))
        nominal = case((due, t.c.scheduled_for), else_=bindparam("c_start", type_=UTCDateTime))
        values = [(t.c.scheduled_for, nominal)]
        values += [(t.c[name], value) for name, value in self.stamps.items()]
        return (
            update(t)
            .where(
                t.c.name == bindparam("p_name"), t.c.key == RECURRING, t.c.lock_token.is_(null())
            )
            .ordered_values(*values)
        )

    @property
    def _lease_end(self) -> ColumnElement[datetime]:
        ends = [
            (
                t.c.name.in_([n for n in self.names if self._leases[n] == length]),
                bindparam(f"c_lease_{number}", type_=UTCDateTime),
            )
            for number, length in enumerate(self.lengths)
        ]
        if len(ends) == 1:
            return ends[0][1]
        return case(*ends[:-1], else_=ends[-1][1])

    def looks(self, stamp: Stamp) -> dict[str, Any]:
        """Return the parameters that find a due row."""
        return {"c_due": stamp.due, "c_floor": stamp.floor}

    def stamped(self, stamp: Stamp) -> dict[str, Any]:
        """Return the parameters that claim a row."""
        ends = {
            f"c_lease_{number}": stamp.start + length for number, length in enumerate(self.lengths)
        }
        return ends | {
            "c_start": stamp.start,
            "c_token": stamp.token,
            "c_by": stamp.by,
            "c_trigger": stamp.trigger,
        }

    def values(self, stamp: Stamp) -> dict[str, Any]:
        """Return the parameters of a statement that finds and claims a row at once."""
        return self.looks(stamp) | self.stamped(stamp)

    def to_claim(self, row: AnyRow, stamp: Stamp, *, attempt: int) -> Claim:
        """Turn a claimed row into a plain value."""
        return Claim(
            id=row.id,
            name=row.name,
            key=row.key,
            token=stamp.token,
            schedule=row.schedule_now,
            scheduled_for=readable(row.scheduled_for, stamp.start),
            started_at=stamp.start,
            lease_until=stamp.start + self._leases[row.name],
            trigger=stamp.trigger,
            attempt=attempt,
            failures=row.failures,
            losses=row.losses,
            arguments=row.arguments,
            progress=row.progress,
            counters=counters_from_json(row.counters),
            goes_on_for=row.goes_on_for,
            slices_ms=row.slices_ms,
            slices_began=row.slices_began,
            asked_again=row.asked_again,
        )


CLAIMED = select(*CLAIMED_COLUMNS).where(
    t.c.name == bindparam("p_name"), t.c.key == RECURRING, t.c.lock_token == bindparam("p_token")
)


def claim_by_name(
    connection: Connection, claiming: Claiming, stamp: Stamp, name: str
) -> Claim | None:
    """Claim a task's recurring row whether due or not; None where it is claimed already."""
    values = claiming.stamped(stamp) | {"c_due": stamp.due, "p_name": name}
    if connection.execute(claiming.take_by_name, values).rowcount != 1:
        return None
    row = connection.execute(CLAIMED, {"p_name": name, "p_token": stamp.token}).one()
    return claiming.to_claim(row, stamp, attempt=row.attempts)


# A full scan: tokens have no index, and answers are lost once a year.
UNDER_TOKEN = select(*CLAIMED_COLUMNS).where(t.c.lock_token == bindparam("p_token"))


def claimed_under(connection: Connection, claiming: Claiming, stamp: Stamp) -> Claim | None:
    """Return the claim that was made with this stamp, where the database's answer was lost."""
    row = connection.execute(UNDER_TOKEN, {"p_token": stamp.token}).one_or_none()
    # A job that was asked for again meanwhile waits for its own time: its lease's end frees it.
    if row is None or row.asked_again is not None:
        return None
    return claiming.to_claim(row, stamp, attempt=row.attempts)


# A job that is run by its name keeps the moment it is scheduled for, and so its idempotency key.
JOB_LOOKS = 3
OLDEST_JOBS = (
    select(*CLAIMED_COLUMNS)
    .where(
        t.c.name == bindparam("p_name"),
        or_(t.c.key.is_(null()), t.c.key != RECURRING),
        # A job that is held back can be run by its name; a dead job cannot.
        t.c.state == State.ACTIVE,
        t.c.lock_token.is_(null()),
    )
    .order_by(t.c.next_run_at, t.c.id)
    .limit(20)
)


def claim_job(connection: Connection, claiming: Claiming, stamp: Stamp, name: str) -> Claim | None:
    """Claim a task's oldest waiting job whether due or not; None where there is none.

    A job whose arguments were replaced since it was read is not claimed.
    """
    take = (
        update(t)
        .where(
            t.c.id == bindparam("p_id"),
            t.c.lock_token.is_(null()),
            t.c.state == State.ACTIVE,
            t.c.scheduled_for == bindparam("p_seen", type_=UTCDateTime),
            t.c.attempts == bindparam("p_attempts"),
            func.coalesce(t.c.arguments, "") == bindparam("p_arguments"),
        )
        .values(claiming.stamps)
    )
    for _ in range(JOB_LOOKS):
        rows = connection.execute(OLDEST_JOBS, {"p_name": name}).all()
        # SQLite would not let a transaction that began with a read go on to write.
        connection.commit()
        for row in rows:
            seen = {
                "p_id": row.id,
                "p_seen": row.scheduled_for,
                "p_attempts": row.attempts,
                "p_arguments": row.arguments or "",
            }
            if connection.execute(take, claiming.stamped(stamp) | seen).rowcount == 1:
                return claiming.to_claim(row, stamp, attempt=row.attempts + 1)
        if not rows:
            break
    return None


OURS = and_(t.c.id == bindparam("p_id"), t.c.lock_token == bindparam("p_token"))
RENEW = update(t).where(OURS).values(next_run_at=bindparam("p_lease", type_=UTCDateTime))
# The progress of a job that was given other arguments meanwhile is not kept, since it does not
# belong to them. Past its time-out a run keeps its progress, but its lease runs out.
_KEEPS = t.c.asked_again.is_(null())
CHECKPOINT = (
    update(t)
    .where(OURS)
    .values(
        next_run_at=case(
            (bindparam("p_renews", type_=Boolean), bindparam("p_lease", type_=UTCDateTime)),
            else_=t.c.next_run_at,
        ),
        progress=case((_KEEPS, bindparam("p_progress", type_=Text)), else_=null()),
        progress_done=case((_KEEPS, bindparam("p_done", type_=BigInteger)), else_=null()),
        progress_total=case((_KEEPS, bindparam("p_total", type_=BigInteger)), else_=null()),
        progress_token=t.c.lock_token,
    )
)
