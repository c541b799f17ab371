"""The statements that name the known tasks, built once for each set of names."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    TextClause,
    bindparam,
    func,
    literal_column,
    select,
    text,
    true,
)

from lazycron.schema import UTCDateTime
from lazycron.schema import scheduled_task as t
from lazycron.store import claims, recurring, settlements
from lazycron.store.claims import Claiming
from lazycron.store.dialects.mariadb import MariaDB
from lazycron.store.dialects.portable import Portable
from lazycron.store.dialects.postgresql import PostgreSQL
from lazycron.store.dialects.sqlite import SQLite
from lazycron.store.driver.prepared import Prepared

CLOCKS: Mapping[str, ColumnElement[datetime]] = {
    "postgresql": func.clock_timestamp(type_=UTCDateTime).label("clock"),
    "mariadb": func.utc_timestamp(literal_column("6"), type_=UTCDateTime).label("clock"),
    "mysql": func.utc_timestamp(literal_column("6"), type_=UTCDateTime).label("clock"),
}
# Where lazycron's tables are. PostgreSQL finds them by its search path, however that was set, and
# gives each table its own number.
PLACES: Mapping[str, TextClause] = {
    "postgresql": text("SELECT current_database() || ' ' || to_regclass('lazycron_setting')::oid"),
    "mariadb": text("SELECT DATABASE()"),
    "mysql": text("SELECT DATABASE()"),
}
DIALECTS: Mapping[str, type[Portable]] = {
    "sqlite": SQLite,
    "postgresql": PostgreSQL,
    "mariadb": MariaDB,
    "mysql": MariaDB,
}
# One set for each trigger that may not run everything, and some for ticks that made rows.
SETS = 32


@dataclass(frozen=True, slots=True)
class ForNames:
    """The statements about one set of names."""

    claiming: Claiming
    dialect: Portable
    next_due: Prepared
    abandoned: Prepared
    known_rows: Prepared


class Statements:
    """The statements about all known names, and about all but some."""

    def __init__(
        self,
        dialect: Portable,
        clock: ColumnElement[datetime] | None,
        leases: Mapping[str, timedelta],
    ) -> None:
        self._dialect = dialect
        self._clock = clock
        self._leases = dict(leases)
        self.all = self._build(frozenset())
        self._some = lru_cache(SETS)(self._build)

    def is_about(self, leases: Mapping[str, timedelta]) -> bool:
        """Tell whether these are the known names and their leases."""
        return leases == self._leases

    def without(self, names: frozenset[str]) -> ForNames:
        """Return the statements for all known names but these."""
        return self._some(names) if names else self.all

    def _build(self, without: frozenset[str]) -> ForNames:
        leases = {name: lease for name, lease in self._leases.items() if name not in without}
        claiming = Claiming(leases)
        first: Select[Any] = (
            select(t.c.next_run_at)
            .where(
                t.c.enabled == true(),
                claims.is_known(claiming.names),
                t.c.next_run_at >= bindparam("p_floor", type_=UTCDateTime),
            )
            .order_by(t.c.next_run_at, t.c.id)
            .limit(1)
        )
        # The server's clock is read with it: 6 and 23 microseconds a tick.
        clock = self._clock
        if clock is not None:
            first = select(first.scalar_subquery().label("next_run_at"), clock)
        prepare = self._dialect.prepare
        return ForNames(
            claiming,
            self._dialect.knowing(claiming),
            prepare(first),
            prepare(settlements.select_abandoned(claiming.names)),
            prepare(recurring.select_known(claiming.names)),
        )
