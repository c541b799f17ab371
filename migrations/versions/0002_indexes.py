"""Indexes: one entry less for each job and each run, and one for refused once keys.

The history is pruned by id instead of by age's own index, and a job without a key is not in the
index of the keys, where the database can leave it out. Refused once keys are few, and have an
index: an overview would otherwise read all keys that were ever kept.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BY_AGE = "ix_task_run_started_at"
KEYS = "uq_scheduled_task_name_key"
HAS_KEY = "key IS NOT NULL"
REFUSED = "ix_once_key_refused_task"
WAS_REFUSED = "refused > 0"


def upgrade() -> None:
    """Drop the one, narrow the other."""
    if BY_AGE in _indexes("task_run"):
        op.drop_index(BY_AGE, "task_run")
    if _can_leave_out() and KEYS in _constraints():
        _drop_constraint()
    if KEYS not in _indexes("scheduled_task"):
        _make_index(KEYS, "scheduled_task", ["name", "key"], HAS_KEY, unique=True)
    if REFUSED not in _indexes("once_key"):
        _make_index(REFUSED, "once_key", ["refused", "task"], WAS_REFUSED)


def downgrade() -> None:
    """Widen the one, make the other anew."""
    if REFUSED in _indexes("once_key"):
        op.drop_index(REFUSED, "once_key")
    if _can_leave_out():
        op.drop_index(KEYS, "scheduled_task")
        _add_constraint()
    if BY_AGE not in _indexes("task_run"):
        op.create_index(BY_AGE, "task_run", ["started_at"])


def _make_index(
    name: str, table: str, columns: list[str], where: str, *, unique: bool = False
) -> None:
    part = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=part, postgresql_where=part)


def _can_leave_out() -> bool:
    """Tell whether there are partial indexes: MariaDB and MySQL have none."""
    return op.get_bind().dialect.name in ("sqlite", "postgresql")


def _indexes(table: str) -> set[str | None]:
    return {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}


def _constraints() -> set[str | None]:
    found = sa.inspect(op.get_bind()).get_unique_constraints("scheduled_task")
    return {constraint["name"] for constraint in found}


def _drop_constraint() -> None:
    with _altered() as table:
        table.drop_constraint(KEYS, type_="unique")


def _add_constraint() -> None:
    with _altered() as table:
        table.create_unique_constraint(KEYS, ["name", "key"])


@contextmanager
def _altered() -> Iterator[BatchOperations]:
    """Alter the table; on SQLite that means another table, whose ids go on where these were."""
    bind = op.get_bind()
    options = {"sqlite_autoincrement": True}
    sequence = "sqlite_sequence WHERE name = 'scheduled_task'"
    last = None
    if bind.dialect.name == "sqlite":
        last = bind.exec_driver_sql(f"SELECT seq FROM {sequence}").scalar()  # noqa: S608
    with op.batch_alter_table("scheduled_task", table_kwargs=options) as table:
        yield table
    if last is not None:
        bind.exec_driver_sql(f"DELETE FROM {sequence}")  # noqa: S608
        bind.exec_driver_sql("INSERT INTO sqlite_sequence VALUES ('scheduled_task', ?)", (last,))
