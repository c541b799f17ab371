"""Bring the database's tables to this version's shape, by Alembic revisions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

VERSION_TABLE = "lazycron_version"
HEAD = "0001"


def migrate(engine: Engine, revision: str = "head") -> None:
    """Run the migrations up or down to a revision; safe when many processes start at once.

    Whoever comes second waits for the first and finds nothing to do.
    """
    # Imported here: an app whose tables are in place never pays for it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    with engine.connect() as connection, _alone(connection):
        config.attributes["connection"] = connection
        current = revision_of(connection)
        if revision == "head" and current == HEAD:
            return
        if revision == "base" or (current or "") > revision != "head":
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)


def folder() -> Path:
    """Return where the revisions lie: in the package once built, beside it in the repository."""
    inside = Path(__file__).parent / "migrations"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "migrations"


def is_current(engine: Engine) -> bool:
    """Tell whether the tables have this version's shape."""
    with engine.connect() as connection:
        return revision_of(connection) == HEAD


def revision_of(connection: Connection) -> str | None:
    """Return the revision the database is at; None without lazycron's version table."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant
    return None if found is None else str(found)


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Hold the database's own lock, so that one process migrates at a time, then commit."""
    name = connection.dialect.name
    if name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
