"""The rows of recurring tasks: made, looked at and changed by name (key '')."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    not_,
    null,
    or_,
    select,
    true,
    update,
)

from lazycron.model.settle import RECURRING
from lazycron.schema import UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store.driver.prepared import AnyRow
from lazycron.texts import Json, counters_from_json, readable_json, to_json

BY_NAME = and_(t.c.name == bindparam("p_name"), t.c.key == RECURRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A recurring task's row as it stands in the table."""

    id: int
    name: str
    schedule: str | None
    schedule_override: str | None
    enabled: bool
    next_run_at: datetime
    scheduled_for: datetime
    lock_token: str | None
    locked_by: str | None
    last_run_at: datetime | None
    last_status: str | None
    last_message: str | None
    last_duration_ms: int | None
    last_trigger: str | None
    failures: int
    losses: int
    attempts: int
    progress: Json
    progress_done: int | None
    progress_total: int | None
    counters: dict[str, int]
    seen_at: datetime | None
    created_at: datetime

    @property
    def schedule_now(self) -> str:
        """The schedule that counts: the operator's override, else the code's."""
        return self.schedule_override or self.schedule or ""

    @property
    def running(self) -> bool:
        """Whether the row is claimed."""
        return self.lock_token is not None


COLUMNS = [t.c[name] for name in TaskRow.__slots__]
RECURRING_ROWS = select(*COLUMNS).where(t.c.key == RECURRING).order_by(t.c.name)
ROW = select(*COLUMNS).where(BY_NAME)


def select_known(names: Sequence[str]) -> Select[Any]:
    """Select the recurring rows of known tasks."""
    return RECURRING_ROWS.where(t.c.name.in_(names))


def to_row(row: AnyRow) -> TaskRow:
    """Read a table row."""
    values = row._asdict()
    values["progress"] = readable_json(values["progress"])
    values["counters"] = counters_from_json(values["counters"])
    return TaskRow(**values)


def read_all(connection: Connection) -> list[TaskRow]:
    """Read every recurring row, known or not, by name."""
    return [to_row(row) for row in connection.execute(RECURRING_ROWS)]


def read(connection: Connection, name: str) -> TaskRow | None:
    """Read one task's recurring row."""
    row = connection.execute(ROW, {"p_name": name}).one_or_none()
    return None if row is None else to_row(row)


INSERT = insert(t).values(
    {
        "name": bindparam("p_name"),
        "key": RECURRING,
        "schedule": bindparam("p_schedule"),
        "enabled": bindparam("p_enabled"),
        "next_run_at": bindparam("p_next", type_=UTCDateTime),
        "scheduled_for": bindparam("p_scheduled_for", type_=UTCDateTime),
        "seen_at": bindparam("p_now", type_=UTCDateTime),
        "created_at": bindparam("p_now", type_=UTCDateTime),
    }
)


def make(
    connection: Connection,
    *,
    name: str,
    schedule: str,
    enabled: bool,
    next_run_at: datetime,
    scheduled_for: datetime,
    now: datetime,
) -> None:
    """Insert a task's recurring row; IntegrityError where another process was first."""
    connection.execute(
        INSERT,
        {
            "p_name": name,
            "p_schedule": schedule,
            "p_enabled": enabled,
            "p_next": next_run_at,
            "p_scheduled_for": scheduled_for,
            "p_now": now,
        },
    )


# Whoever moves a row's due time must have seen the row as it is: the same last run, the same
# claim and, where it is free, the same due time. A claimed row's next_run_at is its lease's end.
AS_SEEN = and_(
    BY_NAME,
    t.c.last_run_at.is_not_distinct_from(bindparam("p_seen_last", type_=UTCDateTime)),
    or_(
        and_(
            t.c.lock_token.is_(null()),
            bindparam("p_seen_token", type_=t.c.lock_token.type).is_(null()),
            t.c.next_run_at == bindparam("p_seen_next", type_=UTCDateTime),
        ),
        t.c.lock_token == bindparam("p_seen_token", type_=t.c.lock_token.type),
    ),
)
MOVED = {
    "scheduled_for": case(
        (t.c.lock_token.is_(null()), bindparam("p_scheduled_for", type_=UTCDateTime)),
        else_=t.c.scheduled_for,
    ),
    "next_run_at": case(
        (t.c.lock_token.is_(null()), bindparam("p_next", type_=UTCDateTime)),
        else_=t.c.next_run_at,
    ),
}
OVERRIDE = update(t).where(AS_SEEN).values(MOVED | {"schedule_override": bindparam("p_schedule")})
NEW_CODE = (
    update(t)
    .where(
        AS_SEEN,
        func.coalesce(t.c.schedule, "") == bindparam("p_old"),
        func.coalesce(t.c.schedule_override, "") == bindparam("p_old_override"),
    )
    .values(
        MOVED | {"schedule": bindparam("p_schedule"), "schedule_override": bindparam("p_override")}
    )
)


DUE = RECURRING_ROWS.where(
    t.c.name.in_(bindparam("p_names", expanding=True)),
    t.c.enabled == true(),
    t.c.next_run_at <= bindparam("p_due", type_=UTCDateTime),
    t.c.lock_token.is_(null()),
)
MISSED = "missed"
PASS_OVER = (
    update(t)
    .where(AS_SEEN)
    .values(
        MOVED
        | {
            "attempts": 0,
            "last_status": MISSED,
            "last_message": bindparam("p_message"),
            "counters": bindparam("p_counters"),
        }
    )
)


def read_due(connection: Connection, names: Sequence[str], due: datetime) -> list[TaskRow]:
    """Read these tasks' recurring rows that are due and free."""
    found = connection.execute(DUE, {"p_names": list(names), "p_due": due})
    return [to_row(row) for row in found]


def pass_over(
    connection: Connection,
    row: TaskRow,
    *,
    next_run_at: datetime,
    scheduled_for: datetime,
    message: str,
    counters: Mapping[str, int],
) -> bool:
    """Note that a free row's due time was missed; False if it has changed since it was seen."""
    values = _seen(row) | {
        "p_next": next_run_at,
        "p_scheduled_for": scheduled_for,
        "p_message": message,
        "p_counters": to_json(dict(counters)),
    }
    return connection.execute(PASS_OVER, values).rowcount == 1


def _seen(row: TaskRow) -> dict[str, Any]:
    return {
        "p_name": row.name,
        "p_seen_last": row.last_run_at,
        "p_seen_token": row.lock_token,
        "p_seen_next": row.next_run_at,
    }


def override(
    connection: Connection,
    row: TaskRow,
    schedule: str | None,
    *,
    next_run_at: datetime,
    scheduled_for: datetime,
) -> bool:
    """Set or clear the operator's schedule; False if the row has changed since it was seen."""
    values = _seen(row) | {
        "p_schedule": schedule,
        "p_next": next_run_at,
        "p_scheduled_for": scheduled_for,
    }
    return connection.execute(OVERRIDE, values).rowcount == 1


def bring_in(
    connection: Connection,
    row: TaskRow,
    schedule: str,
    override: str | None,
    *,
    next_run_at: datetime,
    scheduled_for: datetime,
) -> bool:
    """Store a schedule changed in code; one process wins, the others get False."""
    values = _seen(row) | {
        "p_old": row.schedule or "",
        "p_old_override": row.schedule_override or "",
        "p_schedule": schedule,
        "p_override": override,
        "p_next": next_run_at,
        "p_scheduled_for": scheduled_for,
    }
    return connection.execute(NEW_CODE, values).rowcount == 1


SHORTEN = (
    update(t)
    .where(
        BY_NAME,
        t.c.lock_token == bindparam("p_token"),
        t.c.next_run_at == bindparam("p_seen", type_=UTCDateTime),
    )
    .values(next_run_at=bindparam("p_until", type_=UTCDateTime))
)


def shorten_lease(connection: Connection, row: TaskRow, until: datetime) -> bool:
    """End a claim's lease earlier; False if it was renewed since it was seen."""
    values = {
        "p_name": row.name,
        "p_token": row.lock_token,
        "p_seen": row.next_run_at,
        "p_until": until,
    }
    return connection.execute(SHORTEN, values).rowcount == 1


MOVE = update(t).where(AS_SEEN).values(MOVED)


def move(connection: Connection, row: TaskRow, next_run_at: datetime) -> bool:
    """Move a free row's due time; False if the row has changed since it was seen.

    A due time that is being tried again stays the one it is: effects are keyed by it.
    """
    kept = row.attempts > 0 and row.scheduled_for <= next_run_at
    nominal = row.scheduled_for if kept else next_run_at
    values = _seen(row) | {"p_next": next_run_at, "p_scheduled_for": nominal}
    return connection.execute(MOVE, values).rowcount == 1


def put_off(connection: Connection, row: TaskRow, next_run_at: datetime) -> bool:
    """Let a free row wait for longer with the same due time; False if it has changed."""
    values = _seen(row) | {"p_next": next_run_at, "p_scheduled_for": row.scheduled_for}
    return connection.execute(MOVE, values).rowcount == 1


ENABLE = update(t).where(BY_NAME).values(enabled=bindparam("p_enabled"))


def enable(connection: Connection, name: str, *, enabled: bool) -> bool:
    """Switch a task on or off; the row stays due as it was. False if there is no such row."""
    return connection.execute(ENABLE, {"p_name": name, "p_enabled": enabled}).rowcount == 1


SEE = (
    update(t)
    .where(
        t.c.key == RECURRING,
        t.c.name.in_(bindparam("p_names", expanding=True)),
        or_(t.c.seen_at.is_(null()), t.c.seen_at < bindparam("p_before", type_=UTCDateTime)),
    )
    .values(seen_at=bindparam("p_now", type_=UTCDateTime))
)
FORGET_UNSEEN = delete(t).where(
    t.c.key == RECURRING,
    t.c.lock_token.is_(null()),
    t.c.seen_at < bindparam("p_before", type_=UTCDateTime),
    not_(t.c.name.in_(bindparam("p_names", expanding=True))),
)
FORGET = delete(t).where(BY_NAME, t.c.lock_token.is_(null()))
UNKNOWN = (
    select(t.c.id)
    .where(t.c.enabled == true(), not_(t.c.name.in_(bindparam("p_names", expanding=True))))
    .limit(1)
)


def see(connection: Connection, names: tuple[str, ...], now: datetime, before: datetime) -> None:
    """Stamp `seen_at` of known rows that were last stamped before a moment."""
    connection.execute(SEE, {"p_names": names, "p_now": now, "p_before": before})


def forget_unseen(connection: Connection, names: tuple[str, ...], before: datetime) -> int:
    """Delete free recurring rows that no code has known since a moment, except known ones."""
    return connection.execute(FORGET_UNSEEN, {"p_names": names, "p_before": before}).rowcount


def forget(connection: Connection, name: str) -> bool:
    """Delete a task's recurring row unless it is claimed."""
    return connection.execute(FORGET, {"p_name": name}).rowcount == 1


def any_unknown(connection: Connection, names: tuple[str, ...]) -> bool:
    """Tell whether enabled rows of tasks that this process does not know exist."""
    return connection.execute(UNKNOWN, {"p_names": names}).first() is not None
