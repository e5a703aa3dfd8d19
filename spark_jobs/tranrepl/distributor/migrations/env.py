"""Alembic's entry: `DistributionDatabase.migrate` hands it an open connection, whose statements name our schema."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context
from alembic.ddl.base import AlterTable
from sqlalchemy import event

from tranrepl.distributor.schema import schema_of
from tranrepl.distributor.tables import VERSION_TABLE, metadata

connection: sa.Connection = context.config.attributes["connection"]


@event.listens_for(connection, "before_execute", retval=True)
def _name_schema(_: sa.Connection, statement: Any, values: Any, one: Any, __: Any) -> tuple[Any, Any, Any]:
    """Let Alembic's own statements name it too: it is SQLAlchemy that does for all others."""
    if isinstance(statement, AlterTable) and statement.schema is None:
        statement.schema = schema_of(connection)
    return statement, values, one


context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    version_table_schema=schema_of(connection),
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
