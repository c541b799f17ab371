"""The settings that all hosts share, and who did what when."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, select, update

from lazycron.schema import UTCDateTime, lazycron_action, lazycron_setting

s = lazycron_setting

READ = select(s.c.name, s.c.value)
READ_ONE = select(s.c.value).where(s.c.name == bindparam("p_name"))
INSERT = insert(s).values(
    name=bindparam("p_name"),
    value=bindparam("p_value"),
    changed_at=bindparam("p_now", type_=UTCDateTime),
)
UPDATE = (
    update(s)
    .where(s.c.name == bindparam("p_name"))
    .values(value=bindparam("p_value"), changed_at=bindparam("p_now", type_=UTCDateTime))
)
ACT = insert(lazycron_action).values(
    at=bindparam("p_at", type_=UTCDateTime),
    who=bindparam("p_who"),
    verb=bindparam("p_verb"),
    name=bindparam("p_name"),
    detail=bindparam("p_detail"),
)


def read(connection: Connection) -> dict[str, str]:
    """Read all settings."""
    return {row.name: row.value for row in connection.execute(READ)}


def read_one(connection: Connection, name: str) -> str | None:
    """Read one setting."""
    return connection.execute(READ_ONE, {"p_name": name}).scalar()


def change(connection: Connection, name: str, value: str, now: datetime) -> bool:
    """Change a setting that is there; False where there is none."""
    values = {"p_name": name, "p_value": value, "p_now": now}
    return connection.execute(UPDATE, values).rowcount == 1


def add(connection: Connection, name: str, value: str, now: datetime) -> None:
    """Add a setting; IntegrityError where another process was first."""
    connection.execute(INSERT, {"p_name": name, "p_value": value, "p_now": now})


SWITCHED = (
    select(lazycron_action.c.who, lazycron_action.c.verb, lazycron_action.c.at)
    .where(
        lazycron_action.c.name == bindparam("p_name"),
        lazycron_action.c.verb.in_(["enable", "disable"]),
    )
    .order_by(lazycron_action.c.id.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Action:
    """What somebody did, and when."""

    who: str
    verb: str
    at: datetime


def last_switched(connection: Connection, name: str) -> Action | None:
    """Read who enabled or disabled a task last, if that was noted."""
    row = connection.execute(SWITCHED, {"p_name": name}).one_or_none()
    return None if row is None else Action(row.who, row.verb, row.at)


def act(
    connection: Connection, *, who: str, verb: str, name: str | None, detail: str, at: datetime
) -> None:
    """Note who did what when."""
    values = {"p_who": who, "p_verb": verb, "p_name": name, "p_detail": detail, "p_at": at}
    connection.execute(ACT, values)
