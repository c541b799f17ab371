"""What tests put into lazycron's tables and read from them, past lazycron itself."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import URL, Engine, insert, select, update

from lazycron import Every
from lazycron.schema import scheduled_task, task_run

HOUR = timedelta(hours=1)
# Before every test's now: a row that was made in the future is taken for a clock set back.
BORN = datetime(2025, 12, 31, tzinfo=UTC)


def put_rows(
    engine: Engine, names: Sequence[str], *, due: datetime, every: timedelta = HOUR
) -> None:
    """Insert recurring rows that are due at a moment, a microsecond apart."""
    rows = [
        {
            "name": name,
            "key": "",
            "schedule": Every(every).text,
            "enabled": True,
            "next_run_at": due + timedelta(microseconds=number),
            "scheduled_for": due + timedelta(microseconds=number),
            "created_at": BORN,
        }
        for number, name in enumerate(names)
    ]
    with engine.begin() as connection:
        connection.execute(insert(scheduled_task), rows)


def set_row(engine: Engine, name: str, **values: Any) -> None:
    """Overwrite columns of a row."""
    found = update(scheduled_task).where(scheduled_task.c.name == name)
    with engine.begin() as connection:
        assert connection.execute(found.values(**values)).rowcount == 1


def row_of(engine: Engine, name: str) -> dict[str, Any]:
    """Read all columns of a task's row."""
    found = select(scheduled_task).where(scheduled_task.c.name == name)
    with engine.connect() as connection:
        return dict(connection.execute(found).one()._mapping)


def statuses(engine: Engine, name: str | None = None) -> list[str]:
    """Read what the runs came to, oldest first, of one task or of all."""
    found = select(task_run.c.status).order_by(task_run.c.id)
    if name is not None:
        found = found.where(task_run.c.name == name)
    with engine.connect() as connection:
        return list(connection.execute(found).scalars())


def text_of(url: URL) -> str:
    """Write a URL with its password."""
    return url.render_as_string(hide_password=False)


ASYNC_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "mariadb": "mariadb+aiomysql",
}


def asynchronous(url: URL) -> URL:
    """Return the URL by which an async app opens the same database."""
    return url.set(drivername=ASYNC_DRIVERS[url.get_backend_name()])
