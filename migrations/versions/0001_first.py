"""The first revision: every table lazycron has."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, sqlite

from lazycron.schema import UTCDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.String(191).with_variant(
    mysql.VARCHAR(191, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
TOKEN = sa.String(32).with_variant(
    mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
)
LONG = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
ID = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    _make_table(
        "scheduled_task",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("key", NAME, nullable=True),
        sa.Column("arguments", LONG, nullable=True),
        sa.Column("state", sa.String(16), nullable=False, server_default="active"),
        sa.Column("schedule", sa.String(400), nullable=True),
        sa.Column("schedule_override", sa.String(400), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False, server_default=sa.true()),
        sa.Column("next_run_at", UTCDateTime, nullable=False),
        sa.Column("scheduled_for", UTCDateTime, nullable=False),
        sa.Column("lock_token", TOKEN, nullable=True),
        sa.Column("locked_by", sa.String(191), nullable=True),
        sa.Column("last_run_at", UTCDateTime, nullable=True),
        sa.Column("last_status", sa.String(16), nullable=True),
        sa.Column("last_message", LONG, nullable=True),
        sa.Column("last_duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_trigger", sa.String(16), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("losses", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("progress", LONG, nullable=True),
        sa.Column("progress_done", sa.BigInteger(), nullable=True),
        sa.Column("progress_total", sa.BigInteger(), nullable=True),
        sa.Column("progress_token", TOKEN, nullable=True),
        sa.Column("counters", LONG, nullable=True),
        sa.Column("goes_on_for", UTCDateTime, nullable=True),
        sa.Column("slices_ms", sa.BigInteger(), nullable=True),
        sa.Column("slices_began", UTCDateTime, nullable=True),
        sa.Column("asked_again", UTCDateTime, nullable=True),
        sa.Column("seen_at", UTCDateTime, nullable=True),
        sa.Column("created_at", UTCDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scheduled_task"),
        sqlite_autoincrement=True,
    )
    _make_index(
        "uq_scheduled_task_name_key",
        "scheduled_task",
        ["name", "key"],
        where="key IS NOT NULL",
        unique=True,
    )
    _make_index(
        "ix_scheduled_task_enabled_next_run_at_id",
        "scheduled_task",
        ["enabled", "next_run_at", "id"],
    )
    _make_table(
        "task_run",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.Column("key", NAME, nullable=True),
        sa.Column("scheduled_for", UTCDateTime, nullable=False),
        sa.Column("started_at", UTCDateTime, nullable=False),
        sa.Column("finished_at", UTCDateTime, nullable=True),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("trigger", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(191), nullable=True),
        sa.Column("pid", sa.BigInteger(), nullable=True),
        sa.Column("message", LONG, nullable=True),
        sa.Column("error", LONG, nullable=True),
        sa.Column("result", LONG, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_task_run"),
    )
    _make_index("ix_task_run_name_id", "task_run", ["name", "id"])
    _make_index("ix_task_run_job_id", "task_run", ["job_id"], where="job_id IS NOT NULL")
    _make_table(
        "once_key",
        sa.Column("key", NAME, nullable=False),
        sa.Column("task", NAME, nullable=True),
        sa.Column("created_at", UTCDateTime, nullable=False),
        sa.Column("finished_at", UTCDateTime, nullable=True),
        sa.Column("expires_at", UTCDateTime, nullable=True),
        sa.Column("refused", sa.Integer(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("key", name="pk_once_key"),
    )
    _make_index("ix_once_key_expires_at", "once_key", ["expires_at"])
    _make_index("ix_once_key_refused_task", "once_key", ["refused", "task"], where="refused > 0")
    _make_table(
        "lazycron_action",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("at", UTCDateTime, nullable=False),
        sa.Column("who", sa.String(191), nullable=False),
        sa.Column("verb", sa.String(32), nullable=False),
        sa.Column("name", NAME, nullable=True),
        sa.Column("detail", LONG, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_lazycron_action"),
        sqlite_autoincrement=True,
    )
    _make_index("ix_lazycron_action_at", "lazycron_action", ["at"])
    _make_table(
        "lazycron_setting",
        sa.Column("name", NAME, nullable=False),
        sa.Column("value", LONG, nullable=False),
        sa.Column("changed_at", UTCDateTime, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_lazycron_setting"),
    )


def _make_table(name: str, *parts: sa.schema.SchemaItem, **options: Any) -> None:
    """Make a table, unless a migration that was killed here has made it.

    Each statement commits by itself on MariaDB. A stranger's table of this name is an error.
    """
    inspector = sa.inspect(op.get_bind())
    if inspector.has_table(name):
        found = {column["name"] for column in inspector.get_columns(name)}
        if found == {part.name for part in parts if isinstance(part, sa.Column)}:
            return
    # Everything rests on transactions, whatever a server makes by default.
    innodb: dict[str, Any] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}
    op.create_table(name, *parts, **options, **innodb)


def _make_index(
    name: str, table: str, columns: list[str], where: str | None = None, *, unique: bool = False
) -> None:
    """Make an index, unless a migration that was killed here has made it.

    A `where` counts on the databases that have partial indexes.
    """
    found = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
    if name not in found:
        part = None if where is None else sa.text(where)
        op.create_index(
            name, table, columns, unique=unique, sqlite_where=part, postgresql_where=part
        )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("lazycron_setting", "lazycron_action", "once_key", "task_run", "scheduled_task"):
        if sa.inspect(op.get_bind()).has_table(table):
            op.drop_table(table)
