"""The rows of recurring tasks (key ''): made, looked at, changed and forgotten by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Select,
    Update,
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
from lazycron.model.values import readable_value
from lazycron.schema import UNREADABLE, UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store.driver.database import Database
from lazycron.store.driver.prepared import AnyRow
from lazycron.store.unfinished import TakingAway
from lazycron.texts import counters_from_json, to_json

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
    progress: Any
    progress_done: int | None
    progress_total: int | None
    counters: dict[str, int]
    seen_at: datetime | None
    created_at: datetime

    @property
    def schedule_now(self) -> str:
        """The schedule that applies: the operator's override, else the code's."""
        return self.schedule_override or self.schedule or ""

    @property
    def readable(self) -> bool:
        """Whether its due time is a moment that can be reckoned with."""
        moments = (self.next_run_at, self.scheduled_for, self.created_at, self.last_run_at)
        return UNREADABLE not in moments

    @property
    def running(self) -> bool:
        """Whether the row is claimed."""
        return self.lock_token is not None


@dataclass(frozen=True, slots=True)
class Place:
    """When a free row is due, for which nominal time, and after how many attempts at it."""

    next_run_at: datetime
    scheduled_for: datetime
    attempts: int


COLUMNS = [t.c[name] for name in TaskRow.__slots__]
ALL = select(*COLUMNS).where(t.c.key == RECURRING).order_by(t.c.name)
ROW = select(*COLUMNS).where(BY_NAME)


def select_known(names: Sequence[str]) -> Select[Any]:
    """Select the recurring rows of known tasks."""
    return ALL.where(t.c.name.in_(names))


def to_row(row: AnyRow) -> TaskRow:
    """Read a table row."""
    values = row._asdict()
    values["progress"] = readable_value(values["progress"])
    values["counters"] = counters_from_json(values["counters"])
    return TaskRow(**values)


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
# A due time is only moved if the row is still as it was seen: the same last run, the same claim
# and, where it is free, the same due time. A claimed row's next_run_at is its lease's end.
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


def _if_free(column: Column[Any], value: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((t.c.lock_token.is_(null()), value), else_=column)


MOVED = {
    "next_run_at": _if_free(t.c.next_run_at, bindparam("p_next", type_=UTCDateTime)),
    "scheduled_for": _if_free(t.c.scheduled_for, bindparam("p_scheduled_for", type_=UTCDateTime)),
    "attempts": _if_free(t.c.attempts, bindparam("p_attempts", type_=t.c.attempts.type)),
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
DUE = ALL.where(
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
            "last_status": MISSED,
            "last_message": bindparam("p_message"),
            "counters": bindparam("p_counters"),
        }
    )
)
SHORTEN = (
    update(t)
    .where(
        BY_NAME,
        t.c.lock_token == bindparam("p_token"),
        t.c.next_run_at == bindparam("p_seen", type_=UTCDateTime),
    )
    .values(next_run_at=bindparam("p_until", type_=UTCDateTime))
)
MOVE = update(t).where(AS_SEEN).values(MOVED)
# A row that was stamped by a clock ahead gets new stamps too, else it would be found again.
SET_BACK = (
    update(t)
    .where(AS_SEEN)
    .values(
        MOVED
        | {
            "last_run_at": bindparam("p_last", type_=UTCDateTime),
            "created_at": bindparam("p_created", type_=UTCDateTime),
        }
    )
)
ENABLE = update(t).where(BY_NAME).values(enabled=bindparam("p_enabled"))
SEE = (
    update(t)
    .where(
        t.c.key == RECURRING,
        t.c.name.in_(bindparam("p_names", expanding=True)),
        or_(t.c.seen_at.is_(null()), t.c.seen_at < bindparam("p_before", type_=UTCDateTime)),
    )
    .values(seen_at=bindparam("p_now", type_=UTCDateTime))
)
FORGET_UNSEEN = TakingAway(
    delete(t),
    and_(
        t.c.key == RECURRING,
        t.c.lock_token.is_(null()),
        t.c.seen_at < bindparam("p_before", type_=UTCDateTime),
        not_(t.c.name.in_(bindparam("p_names", expanding=True))),
    ),
    "Forgotten",
)
FORGET = TakingAway(delete(t), and_(BY_NAME, t.c.lock_token.is_(null())), "Forgotten")
OTHERS = (
    select(t.c.id)
    .where(t.c.enabled == true(), not_(t.c.name.in_(bindparam("p_names", expanding=True))))
    .limit(1)
)


DUE_OF_OTHERS = (
    select(t.c.name)
    .where(
        t.c.enabled == true(),
        t.c.next_run_at <= bindparam("p_due", type_=UTCDateTime),
        t.c.lock_token.is_(null()),
        not_(t.c.name.in_(bindparam("p_names", expanding=True))),
    )
    .distinct()
    .order_by(t.c.name)
    .limit(100)
)


class Recurring:
    """Recurring rows outside of a run; each method is a transaction.

    A method that is given a row changes it only if the table still has it so, else returns False.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[TaskRow]:
        """Read every recurring row, known or not, by name."""
        return [to_row(row) for row in self._database.rows(ALL)]

    def of(self, name: str) -> TaskRow | None:
        """Read one task's recurring row."""
        row = self._database.row(ROW, {"p_name": name})
        return None if row is None else to_row(row)

    def due(self, names: Sequence[str], due: datetime) -> list[TaskRow]:
        """Read these tasks' recurring rows that are due and free."""
        found = self._database.rows(DUE, {"p_names": list(names), "p_due": due})
        return [to_row(row) for row in found]

    def make(
        self,
        name: str,
        schedule: str,
        *,
        enabled: bool,
        next_run_at: datetime,
        scheduled_for: datetime,
        now: datetime,
    ) -> bool:
        """Insert a task's recurring row; False where it is there already."""
        values = {
            "p_name": name,
            "p_schedule": schedule,
            "p_enabled": enabled,
            "p_next": next_run_at,
            "p_scheduled_for": scheduled_for,
            "p_now": now,
        }
        return self._database.add(INSERT, values)

    def pass_over(
        self, row: TaskRow, place: Place, *, message: str, counters: Mapping[str, int]
    ) -> bool:
        """Note that a free row's due time was missed."""
        values = {"p_message": message, "p_counters": to_json(dict(counters))}
        return self._change(PASS_OVER, row, place, values)

    def override(self, row: TaskRow, schedule: str | None, place: Place) -> bool:
        """Set or clear the operator's schedule."""
        return self._change(OVERRIDE, row, place, {"p_schedule": schedule})

    def bring_in(self, row: TaskRow, schedule: str, override: str | None, place: Place) -> bool:
        """Store a schedule changed in code, and the operator's as it is from now on."""
        values = {
            "p_old": row.schedule or "",
            "p_old_override": row.schedule_override or "",
            "p_schedule": schedule,
            "p_override": override,
        }
        return self._change(NEW_CODE, row, place, values)

    def set_back(self, row: TaskRow, place: Place, now: datetime) -> bool:
        """Move a free row back that a clock ahead has put too far; no stamp stays after now."""
        values = {
            "p_last": row.last_run_at and min(row.last_run_at, now),
            "p_created": min(row.created_at, now),
        }
        return self._change(SET_BACK, row, place, values)

    def put_off(self, row: TaskRow, next_run_at: datetime) -> bool:
        """Let a free row with the same due time wait for longer."""
        return self._change(MOVE, row, Place(next_run_at, row.scheduled_for, row.attempts))

    def _change(
        self,
        statement: Update,
        row: TaskRow,
        place: Place,
        values: Mapping[str, Any] | None = None,
    ) -> bool:
        seen = {
            "p_name": row.name,
            "p_seen_last": row.last_run_at,
            "p_seen_token": row.lock_token,
            "p_seen_next": row.next_run_at,
            "p_next": place.next_run_at,
            "p_scheduled_for": place.scheduled_for,
            "p_attempts": place.attempts,
        }
        return self._database.write(statement, seen | dict(values or {})) == 1

    def shorten_lease(self, row: TaskRow, until: datetime) -> bool:
        """End a claim's lease earlier, unless it was renewed since it was read."""
        values = {
            "p_name": row.name,
            "p_token": row.lock_token,
            "p_seen": row.next_run_at,
            "p_until": until,
        }
        return self._database.write(SHORTEN, values) == 1

    def enable(self, name: str, *, enabled: bool) -> bool:
        """Switch a task on or off; the row stays due as it was. False if it has no row."""
        return self._database.write(ENABLE, {"p_name": name, "p_enabled": enabled}) == 1

    def see(self, names: Sequence[str], now: datetime, before: datetime) -> None:
        """Stamp `seen_at` of these tasks' rows that were last stamped before a moment."""
        self._database.write(SEE, {"p_names": names, "p_now": now, "p_before": before})

    def forget(self, name: str, now: datetime) -> bool:
        """Delete a task's recurring row unless it is claimed."""
        with self._database.several() as connection:
            return FORGET(connection, {"p_name": name}, now) == 1

    def forget_unseen(self, names: Sequence[str], before: datetime, now: datetime) -> int:
        """Delete other tasks' free recurring rows that no code has known since a moment."""
        with self._database.several() as connection:
            return FORGET_UNSEEN(connection, {"p_names": names, "p_before": before}, now)

    def due_beside(self, names: Sequence[str], due: datetime) -> list[str]:
        """Read which other tasks than these have a row or a job that is due and free."""
        found = self._database.rows(DUE_OF_OTHERS, {"p_names": list(names), "p_due": due})
        return [row.name for row in found]

    def any_beside(self, names: Sequence[str]) -> bool:
        """Tell whether tasks other than these have enabled rows, jobs included."""
        return self._database.row(OTHERS, {"p_names": names}) is not None
