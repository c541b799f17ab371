"""Runs that no record will end: the history is told of them as their rows are taken away.

The slices of a paused run share one history row, which its last slice writes. Where a job is
replaced or discarded, or a row forgotten, no last slice comes.
"""

from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Insert,
    String,
    Text,
    Update,
    and_,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal,
    null,
    or_,
    select,
)

from lazycron.model.settle import RECURRING, Status
from lazycron.schema import UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.schema import task_run as r

IS_PAUSED = and_(
    t.c.lock_token.is_(null()),
    t.c.slices_began.is_not(null()),
    t.c.goes_on_for == t.c.scheduled_for,
)
# A claim that may be taken away with its row is one whose lease has ended.
IS_UNFINISHED = case((or_(t.c.lock_token.is_not(null()), IS_PAUSED), 1), else_=0) == 1


def _text(column: ColumnElement[int]) -> ColumnElement[str]:
    return cast(column, String(20))


_DONE = case(
    (t.c.progress_done.is_(null()), literal(" after a pause.", Text)),
    (t.c.progress_total.is_(null()), literal(" after ", Text) + _text(t.c.progress_done) + "."),
    else_=literal(" after ", Text)
    + _text(t.c.progress_done)
    + literal(" of ", Text)
    + _text(t.c.progress_total)
    + literal(".", Text),
)
_WHAT = bindparam("u_what", type_=Text)


def _told(condition: ColumnElement[bool]) -> Insert:
    """Write the history rows of the unfinished runs among some rows, which stay as they are."""
    paused = t.c.lock_token.is_(null())
    values = {
        "name": t.c.name,
        "job_id": case((t.c.key == RECURRING, null()), else_=t.c.id),
        "key": t.c.key,
        "scheduled_for": t.c.scheduled_for,
        "started_at": case(
            (IS_PAUSED, t.c.slices_began),
            else_=func.coalesce(t.c.last_run_at, bindparam("u_now", type_=UTCDateTime)),
        ),
        "finished_at": bindparam("u_now", type_=UTCDateTime),
        "duration_ms": case((paused, t.c.slices_ms), else_=null()),
        "status": case((paused, Status.PAUSED.value), else_=Status.LOST.value),
        "trigger": func.coalesce(t.c.last_trigger, "manual"),
        "attempt": case((paused, t.c.attempts + 1), else_=t.c.attempts),
        "message": case(
            (paused, _WHAT + _DONE),
            else_=literal("Lost: ", Text) + _WHAT + literal(" after its lease had ended.", Text),
        ),
    }
    found = select(*values.values()).where(condition, IS_UNFINISHED)
    # Locked, so that whoever is told of is also what goes.
    told = insert(r).from_select(list(values), found.with_for_update())
    return told.execution_options(preserve_rowcount=True)


class TakingAway:
    """An UPDATE or DELETE that takes runs away, and the history rows of those it takes."""

    def __init__(
        self, statement: Update | Delete, condition: ColumnElement[bool], what: str
    ) -> None:
        self._told = _told(condition)
        # A run that was paused since the look for it has yet to be told of: the caller sees that
        # nothing was found, and looks again.
        self._statement = statement.where(
            condition,
            or_(
                bindparam("u_told", type_=t.c.enabled.type),
                case((IS_PAUSED, 1), else_=0) == 0,
            ),
        )
        self._what = what

    def __call__(self, connection: Connection, values: dict[str, object], now: datetime) -> int:
        """Take the rows away; return how many there were."""
        given = values | {"u_now": now, "u_what": self._what}
        told = connection.execute(self._told, given).rowcount
        return connection.execute(self._statement, values | {"u_told": told > 0}).rowcount
