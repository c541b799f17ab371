"""The value of `database=`: checked when it is given, opened at the first use."""

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Engine

from lazycron.errors import ConfigurationError
from lazycron.store.driver.engine import clone_engine, open_engine, to_url
from lazycron.store.driver.sqlite_path import absolute

DEFAULT_DATABASE = "sqlite:///lazycron.db"
ENVIRONMENT = "LAZYCRON_DATABASE"


@dataclass(slots=True)
class Source:
    """Where lazycron's own engine comes from: one database for good, in forks and after a close.

    A relative SQLite path starts at the folder in which the LazyCron was made, whatever folder the
    process is in at its first use.
    """

    given: URL | Engine | None
    folder: Path | None

    def url(self) -> URL:
        """Return the URL with an absolute path; the environment's is read once.

        Raises ConfigurationError where a relative path starts at a folder that was deleted.
        """
        if self.given is None:
            self.given = to_url(os.environ.get(ENVIRONMENT) or DEFAULT_DATABASE)
        url = self.given.url if isinstance(self.given, Engine) else self.given
        try:
            return absolute(url, self.folder)
        except FileNotFoundError:
            message = (
                f"database {url.database!r} is relative, and the working folder was deleted; pass "
                'an absolute path, such as "sqlite:////srv/shop/lazycron.db"'
            )
            raise ConfigurationError(message) from None

    def open(self) -> Engine:
        """Make lazycron's own engine."""
        url = self.url()
        return clone_engine(self.given, url) if isinstance(self.given, Engine) else open_engine(url)


def check_database(database: object) -> Source:
    """Return where the engine comes from; raises ConfigurationError for anything else."""
    source = Source(_checked(database), _folder())
    if source.given is not None:
        source.url()
    return source


def _checked(database: object) -> URL | Engine | None:
    if isinstance(database, Engine):
        _refuse_schema_map(database)
    if database is None or isinstance(database, Engine):
        return database
    if isinstance(database, URL):
        return to_url(database.render_as_string(hide_password=False))
    if isinstance(database, str):
        return to_url(database)
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


def _folder() -> Path | None:
    """Return the working folder; None where it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None
