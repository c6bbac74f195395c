"""Alembic environment; `queue_manager.store.migrate` gives the connection as `config.attributes["connection"]`."""

from __future__ import annotations

from alembic import context

from queue_manager.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
