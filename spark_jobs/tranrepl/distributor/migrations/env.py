"""Alembic's entry: `DistributionDatabase.migrate` hands it an open connection."""

from __future__ import annotations

from alembic import context

from tranrepl.distributor.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
