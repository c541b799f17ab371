"""Once keys: markers that some effect has been started, guarded by the table's primary key."""

from collections.abc import Callable, Iterable
from datetime import datetime

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from lazycron.model.once import OnceKey
from lazycron.model.settle import Status
from lazycron.schema import WAS_REFUSED, UTCDateTime
from lazycron.schema import once_key as o
from lazycron.schema import task_run as r
from lazycron.store.driver.database import Database
from lazycron.store.driver.prepared import AnyRow
from lazycron.store.joining import Joining

SLICE = 1000


VALUES = {
    "key": bindparam("p_key"),
    "task": bindparam("p_task"),
    "created_at": bindparam("p_now", type_=UTCDateTime),
    "expires_at": bindparam("p_expires", type_=UTCDateTime),
}
INSERT = insert(o).values(VALUES)
INSERT_UNLESS_TAKEN = {
    "postgresql": postgresql.insert(o)
    .values(VALUES)
    .on_conflict_do_nothing(index_elements=["key"])
    .returning(o.c.key),
    "sqlite": sqlite.insert(o)
    .values(VALUES)
    .on_conflict_do_nothing(index_elements=["key"])
    .returning(o.c.key),
}
BY_KEY = o.c.key == bindparam("p_key")
EXPIRE = delete(o).where(BY_KEY, o.c.expires_at <= bindparam("p_now", type_=UTCDateTime))
REFUSE = update(o).where(BY_KEY).values(refused=o.c.refused + 1)
# An expired key may have another holder by the time its first holder comes back.
OURS = and_(BY_KEY, o.c.created_at == bindparam("p_created", type_=UTCDateTime))
FINISH = update(o).where(OURS).values(finished_at=bindparam("p_now", type_=UTCDateTime))
GIVE_BACK = delete(o).where(OURS, o.c.finished_at.is_(null()))
READ = select(o).where(BY_KEY)
OLDEST = (
    select(o.c.key)
    .where(o.c.expires_at < bindparam("p_now", type_=UTCDateTime))
    .order_by(o.c.expires_at)
    .limit(SLICE)
)
LOST = exists().where(
    r.c.name == o.c.task,
    r.c.status == Status.LOST.value,
    r.c.started_at <= o.c.created_at,
    r.c.finished_at >= o.c.created_at,
)
LISTED = select(o, LOST.label("lost")).order_by(o.c.created_at, o.c.key)
UNFINISHED = LISTED.where(
    o.c.finished_at.is_(null()),
    or_(o.c.expires_at.is_(null()), o.c.expires_at > bindparam("p_now", type_=UTCDateTime)),
    or_(o.c.created_at <= bindparam("p_before", type_=UTCDateTime), LOST),
)
FINISH_BY_HAND = (
    update(o)
    .where(BY_KEY, o.c.finished_at.is_(null()))
    .values(finished_at=bindparam("p_now", type_=UTCDateTime))
)
RELEASE = delete(o).where(BY_KEY, o.c.finished_at.is_(null()))
# Written as in the index: with a parameter SQLite would not use it.
REFUSED = select(o.c.task, func.sum(o.c.refused)).where(WAS_REFUSED).group_by(o.c.task)


class OnceKeys:
    """Once keys; each method is a transaction of its own, or a part of the caller's connection."""

    def __init__(self, database: Database, joining: Joining, is_alive: Callable[[], bool]) -> None:
        self._database = database
        self._joining = joining
        self._is_alive = is_alive

    def register(
        self,
        connection: Connection | None,
        key: str,
        task: str | None,
        now: datetime,
        expires: datetime | None,
    ) -> bool:
        """Register a key before its effect; False where it is taken.

        Where another open transaction registers the key, this waits for its end; on SQLite it waits
        for every writer, as long as the engine's timeout.
        """
        values = {"p_key": key, "p_task": task, "p_now": now, "p_expires": expires}

        def register(joined: Connection) -> bool:
            joined.execute(EXPIRE, {"p_key": key, "p_now": now})
            statement = INSERT_UNLESS_TAKEN.get(joined.dialect.name)
            if statement is not None:
                return joined.execute(statement, values).scalar() is not None
            try:
                joined.execute(INSERT, values)
            except IntegrityError:
                return False
            return True

        return self._joining(connection, register)

    def refuse(self, connection: Connection | None, key: str) -> OnceKey | None:
        """Count a refusal and return who has the key; None if it was given back meanwhile."""

        def refuse(joined: Connection) -> OnceKey | None:
            joined.execute(REFUSE, {"p_key": key})
            row = joined.execute(READ, {"p_key": key}).one_or_none()
            return None if row is None else OnceKey(**row._asdict())

        return self._joining(connection, refuse)

    def finish(
        self, connection: Connection | None, key: str, created_at: datetime, now: datetime
    ) -> None:
        """Note that the effect of a key registered at that moment is finished."""
        values = {"p_key": key, "p_created": created_at, "p_now": now}
        self._joining(connection, lambda joined: joined.execute(FINISH, values))

    def give_back(self, connection: Connection | None, key: str, created_at: datetime) -> None:
        """Give back a key that was registered at that moment and whose effect has failed."""
        if not self._is_alive():
            return
        values = {"p_key": key, "p_created": created_at}
        self._joining(connection, lambda joined: joined.execute(GIVE_BACK, values))

    def prune(self, now: datetime) -> int:
        """Delete up to a thousand expired keys; return how many were deleted."""
        keys = [row.key for row in self._database.rows(OLDEST, {"p_now": now})]
        if keys:
            self._database.write(delete(o).where(o.c.key.in_(keys)), {})
        return len(keys)

    def refused(self) -> dict[str | None, int]:
        """Count each task's refused registrations."""
        return {task: int(number) for task, number in self._database.rows(REFUSED)}

    def listed(self, limit: int) -> list[OnceKey]:
        """Read keys, the oldest first."""
        return _to_keys(self._database.rows(LISTED.limit(limit)))

    def unfinished(self, now: datetime, before: datetime, limit: int) -> list[OnceKey]:
        """Read unfinished keys in force, registered until `before` or in a run that was lost."""
        values = {"p_now": now, "p_before": before}
        return _to_keys(self._database.rows(UNFINISHED.limit(limit), values))

    def finish_by_hand(self, key: str, now: datetime) -> bool:
        """Note that a key's effect is finished; False where no unfinished key has this name."""
        return self._database.write(FINISH_BY_HAND, {"p_key": key, "p_now": now}) == 1

    def release(self, key: str) -> bool:
        """Delete an unfinished key; False where there is none of this name."""
        return self._database.write(RELEASE, {"p_key": key}) == 1


def _to_keys(rows: Iterable[AnyRow]) -> list[OnceKey]:
    return [OnceKey(**(row._asdict() | {"lost": bool(row.lost)})) for row in rows]
