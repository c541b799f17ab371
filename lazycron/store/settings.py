"""The settings that all hosts share, and who did what when."""

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


def act(
    connection: Connection, *, who: str, verb: str, name: str | None, detail: str, at: datetime
) -> None:
    """Note who did what when."""
    values = {"p_who": who, "p_verb": verb, "p_name": name, "p_detail": detail, "p_at": at}
    connection.execute(ACT, values)
