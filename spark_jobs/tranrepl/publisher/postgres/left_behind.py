"""What a publication leaves at a server that is not reached: the statements that remove it there."""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import sql

from tranrepl.model.catalogue import OldRowSetting
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.publisher.postgres.replica_identity import clause

DROP_SCHEMA = "DROP SCHEMA tranrepl CASCADE"
"""Drops the event triggers with the functions that they call."""


def drop_slot(name: str) -> str:
    return sql.SQL("SELECT pg_drop_replication_slot({})").format(sql.Literal(name)).as_string()


def drop_publication(name: str) -> str:
    return sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(name)).as_string()


def statements_left(name: str, tables: Mapping[TableName, OldRowSetting]) -> list[str]:
    """Return the statements, in order, the last of them with the condition under which it is to be run. `name`: of the
    slot and the publication; `tables`: their replica identities before setup."""
    alter = sql.SQL("ALTER TABLE ONLY {} REPLICA IDENTITY {}")
    identities = [
        alter.format(qualified(table), clause(before)).as_string()
        for table, before in tables.items()
        if not before.is_full
    ]
    return [
        f"{drop_slot(name)};",
        f"{drop_publication(name)};",
        *(f"{it};" for it in identities),
        f"{DROP_SCHEMA};  -- only where that database has no other publication of ours",
    ]
