"""Alembic's entry: migrates the connection that lazycron hands in."""

from alembic import context

from lazycron.migrate import VERSION_TABLE
from lazycron.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
