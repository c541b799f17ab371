"""Bring the database's tables to this version's shape, by Alembic revisions."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, select, text
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.schema import CreateIndex, CreateTable

from lazycron.errors import BusyError
from lazycron.schema import TABLES, lazycron_version, metadata, missing_tables

HEAD = "0001"
LOCK = "lazycron migrate"
# Longer than a migration takes, shorter than an operator's patience.
PATIENCE = 60
# The loggers of Alembic that say at INFO what a migration does.
COMPARING = ("comments", "constraints", "schema", "server_defaults", "tables", "types")
CHATTY = (
    "alembic.runtime.migration",
    "alembic.runtime.plugins",
    "alembic.autogenerate.compare",
    *(f"alembic.autogenerate.compare.{part}" for part in COMPARING),
    "alembic.ddl.impl",
    "alembic.ddl.postgresql",
)


def migrate(engine: Engine, revision: str = "head") -> None:
    """Run the migrations up or down to a revision; safe when many processes start at once.

    The second process waits for the first and finds nothing to do. Tables that an app's own
    Alembic has made in this version's shape are used as they are. Tables that are missing at this
    version's revision are made again. Those of a later version are left alone. Raises BusyError
    after a minute's wait on MariaDB or MySQL.
    """
    with _one_at_a_time(), _quiet():
        _migrate(engine, revision)


# Alembic has one context for the whole process, so two databases are migrated one after the other.
# Each process has its own lock: one that another thread held at a fork would be held for ever.
_LOCKS: dict[int, threading.Lock] = {}


def _one_at_a_time() -> threading.Lock:
    return _LOCKS.setdefault(os.getpid(), threading.Lock())


def _migrate(engine: Engine, revision: str) -> None:
    # Imported here: an app whose tables exist never loads it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    with engine.connect() as connection, _alone(connection):
        config.attributes["connection"] = connection
        current = revision_of(connection)
        if revision in ("head", HEAD) and (current or "") >= HEAD:
            # Tables of a later version of the code, which was rolled back, stay as they are.
            metadata.create_all(connection)
            return
        # Alembic would make it with the server's default storage engine.
        lazycron_version.create(connection, checkfirst=True)
        if current is None and revision != "base" and _has_our_shape(connection):
            command.stamp(config, "head")
            current = HEAD
        if revision == "base" or (current or "") > revision != "head":
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)


def make_within(connection: Connection, *, may_make: bool) -> bool:
    """See to the tables in an SQLite transaction that the caller ends; False: they are missing.

    The caller may hold the file's write lock, so no other process can make them meanwhile. Alembic
    belongs to one thread at a time, and a coroutine's connection lets others run in between.
    """
    missing = missing_tables(connection)
    if not missing or not may_make:
        return not missing
    current = revision_of(connection)
    if (current or "") < HEAD and len(missing) < len(TABLES):
        return False
    # The revision first, and each if it is not there: in autocommit each is a transaction.
    connection.execute(CreateTable(lazycron_version, if_not_exists=True))
    if current is None:
        stamp = insert(lazycron_version).values(version_num=HEAD).on_conflict_do_nothing()
        connection.execute(stamp)
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            connection.execute(CreateIndex(index, if_not_exists=True))
    return True


def folder() -> Path:
    """Return the folder of the revisions: in the built package, beside it in the repository."""
    inside = Path(__file__).parent / "migrations"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "migrations"


def is_current(engine: Engine) -> bool:
    """Tell whether the tables have this version's shape or a later one's, and all are there."""
    with engine.connect() as connection:
        return (revision_of(connection) or "") >= HEAD and not missing_tables(connection)


def revision_at(engine: Engine) -> str | None:
    """Return the revision an engine's database is at; None without lazycron's version table."""
    with engine.connect() as connection:
        return revision_of(connection)


def revision_of(connection: Connection) -> str | None:
    """Return the revision the database is at; None without lazycron's version table."""
    if not inspect(connection).has_table(lazycron_version.name):
        return None
    found = connection.execute(select(lazycron_version.c.version_num)).scalar()
    return None if found is None else str(found)


def _has_our_shape(connection: Connection) -> bool:
    """Tell whether every table is there, with no difference that Alembic can see."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    if missing_tables(connection):
        return False

    def is_ours(name: str | None, kind: str, parents: object) -> bool:
        del parents
        return kind != "table" or name in TABLES

    options = {"version_table": lazycron_version.name, "include_name": is_ours}
    context = MigrationContext.configure(connection, opts=options)
    return not compare_metadata(context, metadata)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Alembic's log of our migration out of the app's log, for this thread only."""
    thread = threading.get_ident()

    def worth_telling(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno >= logging.WARNING

    loggers = [logging.getLogger(name) for name in CHATTY]
    for one in loggers:
        one.addFilter(worth_telling)
    try:
        yield
    finally:
        for one in loggers:
            one.removeFilter(worth_telling)


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Hold the database's own lock, so that one process migrates at a time, then commit."""
    name = connection.dialect.name
    if name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        # After the wait for the lock, what was committed meanwhile must be visible.
        connection.execution_options(isolation_level="READ COMMITTED")
    if name == "postgresql":
        # Released by the commit. Such locks belong to the database, not to the server.
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": LOCK})
    named = _hold_named_lock(connection) if name in ("mysql", "mariadb") else None
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    else:
        connection.commit()
    finally:
        if named is not None:
            # Each statement of a migration commits there, so the lock belongs to the session.
            connection.execute(text("DO RELEASE_LOCK(:lock)"), {"lock": named})
            connection.commit()


def _hold_named_lock(connection: Connection) -> str:
    # Such locks belong to the server: the name, of 64 characters, says which database is meant.
    database = str(connection.execute(text("SELECT DATABASE()")).scalar())
    name = f"{LOCK} {sha256(database.encode()).hexdigest()[:32]}"
    asked = text("SELECT GET_LOCK(:lock, :patience)")
    if connection.execute(asked, {"lock": name, "patience": PATIENCE}).scalar() != 1:
        message = f"another process has been migrating {database} for {PATIENCE} seconds"
        raise BusyError(message)
    return name
