"""The model's tables at a Subscriber, as setup makes them, and the version that made them.

Source: `MSrepl_version`.
"""

from __future__ import annotations

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.replication_tables import METADATA, REPLICATION_TABLES, THIS_VERSION, VERSION, TablesVersion


def replication_tables(session: sa.Connection, database: SqlDatabase) -> list[sa.Table]:
    """Return the model's tables that are there, and are ours: SQL Server's own replication has tables of these
    names."""
    there = database.replication_columns(session, REPLICATION_TABLES)
    return [table for name, table in METADATA.tables.items() if set(there.get(name, ())).issuperset(table.c.keys())]


def create_tables(session: sa.Connection, database: SqlDatabase, where: str) -> TablesVersion | None:
    """Create the model's tables; return which version had made them, None where there were none. Idempotent.

    Raises ConfigurationError where a newer version made them, or tables of these names are another's, as SQL Server's
    own are.
    """
    found = find_version(session, database)
    if found is not None:
        found.require_not_newer(where)
    there = database.replication_columns(session, REPLICATION_TABLES)
    for name, table in METADATA.tables.items():
        if name not in there:
            table.create(session, checkfirst=False)
        elif not set(there[name]).issuperset(table.c.keys()):
            raise ConfigurationError(
                f"{where}: table {name} is another program's: SQL Server's own replication has one of that name",
                remedy="deliver into a database that takes part in no other replication",
            )
    if found != THIS_VERSION:
        session.execute(sa.delete(VERSION))
        session.execute(sa.insert(VERSION).values(revision=THIS_VERSION.revision, version=THIS_VERSION.version))
    return found


def find_version(session: sa.Connection, database: SqlDatabase) -> TablesVersion | None:
    """Return which version made the tables; None where there are none of ours."""
    if not database.has_table(session, VERSION):
        return None
    row = session.execute(sa.select(VERSION.c.revision, VERSION.c.version)).first()
    return None if row is None else TablesVersion(*row)
