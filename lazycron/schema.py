"""The tables, as every database has them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    Engine,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    text,
    true,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.types import TypeDecorator, TypeEngine

from lazycron.schedules.shaped import TEXT_LENGTH

NAME_LENGTH = 191
# What a moment is read as that was edited by hand and is none: an error would stop the rows beside
# it, too. No moment of lazycron's own is as late, and there is time after it to reckon with.
UNREADABLE = datetime(9500, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9001, 1, 1, tzinfo=UTC)


class UTCDateTime(TypeDecorator[datetime]):
    """An aware moment in UTC to the microsecond; naive values are refused.

    It is DATETIME(6) on MariaDB and MySQL, timestamptz on PostgreSQL, and on SQLite ISO text of
    fixed width, which sorts by time and which people can read.
    """

    impl = String(32)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime] | TypeEngine[str]:
        """Choose the column type of this database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TIMESTAMP(timezone=True, precision=6))
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sqlite.TEXT())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | str | None:
        """Turn an aware moment into what the driver takes; raises ValueError for a naive one."""
        found: datetime | str | None = self.bind_processor(dialect)(value)
        return found

    def process_result_value(
        self, value: datetime | str | None, dialect: Dialect
    ) -> datetime | None:
        """Turn what the driver gives into an aware moment in UTC."""
        del dialect
        return _from_driver(value)

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any]:
        """Return the function for each written value: ten a run, without SQLAlchemy's wrappers."""
        return _TO_DRIVER.get(dialect.name, _to_text)

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[datetime | str | None], datetime | None]:
        """Return the function for each value that is read."""
        del dialect, coltype
        return _from_driver


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is UTC:  # nearly all are
        return moment
    if moment.utcoffset() is None:
        message = f"{moment!r} has no time zone; lazycron stores aware moments only"
        raise ValueError(message)
    return moment.astimezone(UTC)


def _to_text(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    if moment.tzinfo is not UTC:
        moment = _in_utc(moment)
    return moment.isoformat(" ", "microseconds")[:26]


def _to_naive(moment: datetime | None) -> datetime | None:
    return None if moment is None else _in_utc(moment).replace(tzinfo=None)


def _to_aware(moment: datetime | None) -> datetime | None:
    return None if moment is None else _in_utc(moment)


_TO_DRIVER: Mapping[str, Callable[[datetime | None], Any]] = {
    "sqlite": _to_text,
    "postgresql": _to_aware,
    "mysql": _to_naive,
    "mariadb": _to_naive,
}


def _from_driver(value: datetime | str | None) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (AttributeError, ValueError, OverflowError):
        return UNREADABLE
    return moment if FIRST <= moment < LAST else UNREADABLE


# Names and keys are compared byte by byte: MariaDB's default collation takes "a" for "A".
_NAME = String(NAME_LENGTH).with_variant(
    mysql.VARCHAR(NAME_LENGTH, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
_TOKEN = String(32).with_variant(
    mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
)
# TEXT holds 64 KiB on MariaDB, less than a bounded result in utf8mb4.
_LONG = Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
_ID = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
# Used again where a row is inserted unless its key is taken.
HAS_KEY = text("key IS NOT NULL")
# Most once keys are registered once and kept for ever; few of them are asked for again.
WAS_REFUSED = text("refused > 0")
# lazycron depends on transactions, whatever storage engine is the server's default.
_INNODB: Mapping[str, Any] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}
metadata = MetaData(naming_convention=NAMING)

scheduled_task = Table(
    "scheduled_task",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("name", _NAME, nullable=False),
    # '' for the recurring row; NULL, which repeats on every database, for a job without a key
    Column("key", _NAME, nullable=True),
    Column("arguments", _LONG, nullable=True),
    Column("state", String(16), nullable=False, server_default="active"),
    Column("schedule", String(TEXT_LENGTH), nullable=True),
    Column("schedule_override", String(TEXT_LENGTH), nullable=True),
    Column("enabled", Boolean, nullable=False, server_default=true()),
    Column("next_run_at", UTCDateTime, nullable=False),
    Column("scheduled_for", UTCDateTime, nullable=False),
    Column("lock_token", _TOKEN, nullable=True),
    Column("locked_by", String(191), nullable=True),
    Column("last_run_at", UTCDateTime, nullable=True),
    Column("last_status", String(16), nullable=True),
    Column("last_message", _LONG, nullable=True),
    Column("last_duration_ms", BigInteger, nullable=True),
    Column("last_trigger", String(16), nullable=True),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("losses", Integer, nullable=False, server_default="0"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("progress", _LONG, nullable=True),
    Column("progress_done", BigInteger, nullable=True),
    Column("progress_total", BigInteger, nullable=True),
    # The token of the claim that stored the last checkpoint: a loss after one is another matter.
    Column("progress_token", _TOKEN, nullable=True),
    Column("counters", _LONG, nullable=True),
    # For a due time that goes on after a pause or a postponement: the due time, how long the slices
    # of a paused run took, and when the first slice began.
    Column("goes_on_for", UTCDateTime, nullable=True),
    Column("slices_ms", BigInteger, nullable=True),
    Column("slices_began", UTCDateTime, nullable=True),
    # When a job that was asked for again while claimed is due, with the new arguments.
    Column("asked_again", UTCDateTime, nullable=True),
    Column("seen_at", UTCDateTime, nullable=True),
    Column("created_at", UTCDateTime, nullable=False),
    # Most jobs have no key: where the database can leave them out, they cost no entry.
    Index(
        "uq_scheduled_task_name_key",
        "name",
        "key",
        unique=True,
        sqlite_where=HAS_KEY,
        postgresql_where=HAS_KEY,
    ),
    Index(None, "enabled", "next_run_at", "id"),
    sqlite_autoincrement=True,
    **_INNODB,
)

task_run = Table(
    "task_run",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("name", _NAME, nullable=False),
    Column("job_id", BigInteger, nullable=True),
    Column("key", _NAME, nullable=True),
    Column("scheduled_for", UTCDateTime, nullable=False),
    Column("started_at", UTCDateTime, nullable=False),
    Column("finished_at", UTCDateTime, nullable=True),
    Column("duration_ms", BigInteger, nullable=True),
    Column("status", String(16), nullable=False),
    Column("trigger", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("host", String(191), nullable=True),
    Column("pid", BigInteger, nullable=True),
    Column("message", _LONG, nullable=True),
    Column("error", _LONG, nullable=True),
    Column("result", _LONG, nullable=True),
    Index(None, "name", "id"),
    Index(
        None,
        "job_id",
        sqlite_where=text("job_id IS NOT NULL"),
        postgresql_where=text("job_id IS NOT NULL"),
    ),
    **_INNODB,
)

once_key = Table(
    "once_key",
    metadata,
    Column("key", _NAME, primary_key=True),
    Column("task", _NAME, nullable=True),
    Column("created_at", UTCDateTime, nullable=False),
    Column("finished_at", UTCDateTime, nullable=True),
    Column("expires_at", UTCDateTime, nullable=True),
    Column("refused", Integer, nullable=False, server_default="0"),
    Index(None, "expires_at"),
    Index(None, "refused", "task", sqlite_where=WAS_REFUSED, postgresql_where=WAS_REFUSED),
    **_INNODB,
)

lazycron_action = Table(
    "lazycron_action",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("at", UTCDateTime, nullable=False),
    Column("who", String(191), nullable=False),
    Column("verb", String(32), nullable=False),
    Column("name", _NAME, nullable=True),
    Column("detail", _LONG, nullable=True),
    Index(None, "at"),
    sqlite_autoincrement=True,
    **_INNODB,
)

lazycron_setting = Table(
    "lazycron_setting",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("value", _LONG, nullable=False),
    Column("changed_at", UTCDateTime, nullable=False),
    **_INNODB,
)

# Alembic creates it and writes to it. It is declared here so that an app whose own Alembic uses
# this metadata does not find an unknown table.
lazycron_version = Table(
    "lazycron_version",
    metadata,
    Column("version_num", String(32), primary_key=True),
    **_INNODB,
)

# The names of lazycron's own tables.
TABLES = sorted(table.name for table in metadata.tables.values() if table is not lazycron_version)


def missing_tables(bind: Connection | Engine) -> list[str]:
    """Return the names of lazycron's tables that are missing."""
    there = set(inspect(bind).get_table_names())
    return [name for name in TABLES if name not in there]
