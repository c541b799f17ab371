"""The settings that all hosts share, and who did what, and when."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, insert, select, update

from lazycron.schema import UTCDateTime, lazycron_action, lazycron_setting
from lazycron.store.claims import new_token
from lazycron.store.driver.database import Database

INSTALLATION = "installation"

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
    """Who did something, and when."""

    who: str
    verb: str
    at: datetime


class Shared:
    """What all hosts share besides the tasks; each method is a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def settings(self) -> dict[str, str]:
        """Read the settings that all hosts share."""
        return {row.name: row.value for row in self._database.rows(READ)}

    def setting(self, name: str) -> str | None:
        """Read one of them."""
        row = self._database.row(READ_ONE, {"p_name": name})
        return None if row is None else str(row.value)

    def put_setting(self, name: str, value: str, now: datetime) -> None:
        """Store a setting, whether it is there or not."""
        values = {"p_name": name, "p_value": value, "p_now": now}
        # The second UPDATE is for a setting that another process added in between.
        if not self._database.write(UPDATE, values) and not self._database.add(INSERT, values):
            self._database.write(UPDATE, values)

    def installation_id(self, now: datetime) -> str:
        """Return this installation's id, and make it where there is none; one racer wins."""
        found = self.setting(INSTALLATION)
        if found is None:
            values = {"p_name": INSTALLATION, "p_value": new_token(), "p_now": now}
            self._database.add(INSERT, values)
            found = self.setting(INSTALLATION)
        return found or ""

    def last_switched(self, name: str) -> Action | None:
        """Read who last enabled or disabled a task, if that was noted."""
        row = self._database.row(SWITCHED, {"p_name": name})
        return None if row is None else Action(row.who, row.verb, row.at)

    def act(self, *, who: str, verb: str, name: str | None, detail: str, at: datetime) -> None:
        """Note who did what, and when."""
        values = {"p_who": who, "p_verb": verb, "p_name": name, "p_detail": detail, "p_at": at}
        self._database.write(ACT, values)
