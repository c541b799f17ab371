"""What `database=` may be: checked when it is given, opened at the first use."""

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Engine

from lazycron.errors import ConfigurationError
from lazycron.store.driver.engine import clone_engine, open_engine, to_url
from lazycron.store.driver.sqlite_path import absolute

DEFAULT_DATABASE = "sqlite:///lazycron.db"
ENVIRONMENT = "LAZYCRON_DATABASE"


@dataclass(frozen=True, slots=True)
class Source:
    """A database as it was given, and the folder that a relative path of SQLite's counts from."""

    given: URL | Engine | None
    folder: Path


def check_database(database: object) -> Source:
    """Return what was given, if it is a URL, an engine or None; else raise ConfigurationError.

    A relative path counts from the folder of this moment: the process may leave it before the
    first use.
    """
    folder = Path().absolute()
    if isinstance(database, Engine):
        _refuse_schema_map(database)
    if database is None or isinstance(database, Engine):
        return Source(database, folder)
    if isinstance(database, URL):
        return Source(to_url(database.render_as_string(hide_password=False)), folder)
    if isinstance(database, str):
        return Source(to_url(database), folder)
    message = (
        f"database is a {type(database).__name__}; pass a URL such as {DEFAULT_DATABASE!r}, or a "
        "sqlalchemy.Engine (for an AsyncEngine: its sync_engine's URL with a sync driver)"
    )
    raise ConfigurationError(message)


def _refuse_schema_map(engine: Engine) -> None:
    """Raise ConfigurationError where the engine would move lazycron's tables to a schema.

    lazycron's statements are compiled once, without it.
    """
    moved_to = (engine.get_execution_options().get("schema_translate_map") or {}).get(None)
    if moved_to is not None:
        message = (
            f"database is an Engine with schema_translate_map={{None: {moved_to!r}}}, which "
            "lazycron does not follow; pass one that connects to this schema, on PostgreSQL with "
            f'connect_args={{"options": "-csearch_path={moved_to}"}}'
        )
        raise ConfigurationError(message)


def open_database(source: Source) -> Engine:
    """Make lazycron's own engine; where nothing was given the environment names the database."""
    given = source.given
    if isinstance(given, Engine):
        return clone_engine(given, absolute(given.url, source.folder))
    if given is None:
        given = to_url(os.environ.get(ENVIRONMENT) or DEFAULT_DATABASE)
    return open_engine(absolute(given, source.folder))
