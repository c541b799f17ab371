"""Alembic's entry: migrates the connection that lazycron hands in."""

from alembic import context

from lazycron.schema import lazycron_version, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=lazycron_version.name,
    transactional_ddl=True,
)
context.run_migrations()
