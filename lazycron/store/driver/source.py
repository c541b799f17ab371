"""What `database=` may be: checked when it is given, opened at the first use."""

import os

from sqlalchemy import URL, Engine

from lazycron.errors import ConfigurationError
from lazycron.store.driver.engine import clone_engine, open_engine, to_url

DEFAULT_DATABASE = "sqlite:///lazycron.db"
ENVIRONMENT = "LAZYCRON_DATABASE"


def check_database(database: object) -> URL | Engine | None:
    """Return the URL or engine that was given; raises ConfigurationError for anything else."""
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


def open_database(database: URL | Engine | None) -> Engine:
    """Make lazycron's own engine; where nothing was given the environment names the database."""
    if database is None:
        database = to_url(os.environ.get(ENVIRONMENT) or DEFAULT_DATABASE)
    return clone_engine(database) if isinstance(database, Engine) else open_engine(database)
