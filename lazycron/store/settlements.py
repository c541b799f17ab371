"""Write how a claim ended: one conditional UPDATE or DELETE, with the history row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Delete,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    case,
    delete,
    false,
    func,
    null,
    select,
    true,
    update,
)

from lazycron.model.settle import RECURRING, Claim, Ending, Settlement, State
from lazycron.schema import UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store.claims import CLAIMED_COLUMNS, OURS, SCHEDULE_NOW, is_known, readable
from lazycron.store.driver.prepared import AnyRow, Prepared
from lazycron.texts import counters_from_json, to_json

Writes = Mapping[Ending, Update | Delete]
PreparedWrites = Mapping[Ending, Prepared]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The settlement is stored; `next` is the claim made in the same commit."""

    next: Claim | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """The row is still ours, but was changed since the claim: settle again with what it says now.

    A recurring row's schedule was changed, or a job was asked for again.
    """

    schedule: str
    asked_again: datetime | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The row is no longer ours; nothing was written."""


def _unless_cleared(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((bindparam("p_clear", type_=Boolean), null()), else_=column)


SETTLED: dict[str, Any] = {
    "next_run_at": bindparam("p_next", type_=UTCDateTime),
    "scheduled_for": bindparam("p_scheduled_for", type_=UTCDateTime),
    "lock_token": null(),
    "locked_by": null(),
    "last_status": bindparam("p_status"),
    "last_message": bindparam("p_message"),
    "last_duration_ms": bindparam("p_ms"),
    "failures": bindparam("p_failures"),
    "losses": bindparam("p_losses"),
    "attempts": bindparam("p_attempts"),
    # A success clears the progress, and so do new arguments; any other end keeps the last one.
    "progress": case(
        (bindparam("p_clear", type_=Boolean), null()),
        else_=func.coalesce(bindparam("p_progress", type_=Text), t.c.progress),
    ),
    "progress_done": _unless_cleared(t.c.progress_done),
    "progress_total": _unless_cleared(t.c.progress_total),
    "counters": bindparam("p_counters"),
    "goes_on_for": bindparam("p_goes_on_for", type_=UTCDateTime),
    "slices_ms": bindparam("p_slices_ms", type_=BigInteger),
    "slices_began": bindparam("p_slices_began", type_=UTCDateTime),
    "asked_again": null(),
}

DEAD: dict[str, Any] = {
    "state": State.DEAD.value,
    "enabled": false(),
    # A dead job gives its key up, so that another can be enqueued; its arguments keep the key.
    "key": null(),
}


def _writes(condition: ColumnElement[bool]) -> Writes:
    """Return the statement for each ending of a row under a condition."""
    write = update(t).where(condition)
    return {
        "stays": write.values(SETTLED),
        "dies": write.values(SETTLED | DEAD),
        "goes": delete(t).where(condition),
    }


# A job may be asked for again while it is claimed: then a settlement without it is not written.
KNOWING = and_(
    OURS,
    t.c.asked_again.is_not_distinct_from(bindparam("p_asked_again", type_=UTCDateTime)),
)
RECORD = _writes(and_(KNOWING, bindparam("p_schedule") == SCHEDULE_NOW))
RELEASE = _writes(KNOWING)
BURY = _writes(
    and_(
        KNOWING,
        t.c.next_run_at == bindparam("p_seen", type_=UTCDateTime),
        t.c.next_run_at <= bindparam("p_now", type_=UTCDateTime),
    )
)
STILL_OURS = select(SCHEDULE_NOW.label("schedule_now"), t.c.asked_again).where(OURS)


def settled(settlement: Settlement) -> dict[str, Any]:
    """Return the parameters with which a settlement is written."""
    claim, outcome = settlement.claim, settlement.outcome
    ours = {"p_id": claim.id, "p_token": claim.token, "p_asked_again": claim.asked_again}
    if settlement.ending == "goes":
        return ours
    return ours | {
        "p_next": settlement.next_run_at,
        "p_scheduled_for": settlement.scheduled_for,
        "p_status": outcome.status.value,
        "p_message": outcome.message,
        "p_ms": outcome.ms,
        "p_failures": settlement.failures,
        "p_losses": settlement.losses,
        "p_attempts": settlement.attempts,
        "p_clear": settlement.clears_progress,
        "p_progress": outcome.progress,
        "p_counters": to_json(dict(settlement.counters)),
        "p_goes_on_for": settlement.goes_on_for,
        "p_slices_ms": settlement.slices_ms,
        "p_slices_began": settlement.slices_began,
    }


def recorded(settlement: Settlement) -> dict[str, Any]:
    """Return the parameters of RECORD."""
    return settled(settlement) | {"p_schedule": settlement.claim.schedule}


def buried(settlement: Settlement, now: datetime) -> dict[str, Any]:
    """Return the parameters of BURY."""
    return settled(settlement) | {"p_seen": settlement.claim.lease_until, "p_now": now}


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """A claim whose lease has ended: the claim, who held it, and when the lease ended."""

    claim: Claim
    by: str

    @property
    def seen(self) -> tuple[int, str, datetime]:
        """What must be unchanged when it is buried."""
        return (self.claim.id, self.claim.token, self.claim.lease_until)


ABANDONED_COLUMNS = (
    *CLAIMED_COLUMNS,
    t.c.lock_token,
    t.c.progress_token,
    t.c.locked_by,
    t.c.next_run_at,
    t.c.last_run_at,
    t.c.last_trigger,
)


def select_abandoned(names: Sequence[str]) -> Select[Any]:
    """Select the oldest expired claims of known tasks."""
    return (
        select(*ABANDONED_COLUMNS)
        .where(
            t.c.enabled == true(),
            t.c.next_run_at <= bindparam("p_now", type_=UTCDateTime),
            t.c.next_run_at >= bindparam("p_floor", type_=UTCDateTime),
            t.c.lock_token.is_not(null()),
            is_known(names),
        )
        .order_by(t.c.next_run_at, t.c.id)
        .limit(10)
    )


CLAIM_OF = select(*ABANDONED_COLUMNS).where(
    t.c.name == bindparam("p_name"), t.c.key == RECURRING, t.c.lock_token.is_not(null())
)
CLAIM_OF_JOB = select(*ABANDONED_COLUMNS).where(
    t.c.id == bindparam("p_id"), t.c.lock_token.is_not(null())
)


def to_abandoned(row: AnyRow) -> Abandoned:
    """Read a claimed row back as a claim and its holder."""
    claim = Claim(
        id=row.id,
        name=row.name,
        key=row.key,
        token=row.lock_token,
        schedule=row.schedule_now,
        scheduled_for=readable(row.scheduled_for, row.next_run_at),
        started_at=readable(row.last_run_at, row.next_run_at),
        lease_until=row.next_run_at,
        trigger=row.last_trigger,
        attempt=row.attempts,
        failures=row.failures,
        losses=row.losses,
        arguments=row.arguments,
        progress=row.progress,
        counters=counters_from_json(row.counters),
        goes_on_for=row.goes_on_for,
        slices_ms=row.slices_ms,
        slices_began=row.slices_began,
        asked_again=row.asked_again,
        has_advanced=row.progress_token == row.lock_token,
    )
    return Abandoned(claim=claim, by=row.locked_by or "")
