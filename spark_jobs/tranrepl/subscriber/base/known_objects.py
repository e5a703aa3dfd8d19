"""What the catalogue says of all articles' tables and custom procedures, read by one question of a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.catalogue import Destination
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import find_destinations
from tranrepl.subscriber.base.procedures import ProcedureName, StoredProcedure, custom_names


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """What was asked about; None: it is not there. What has no entry is not known."""

    tables: Mapping[TableName, Destination | None]
    procedures: Mapping[ProcedureName, StoredProcedure | None]

    def without(self, table: TableName) -> KnownObjects:
        """Forget a table that is about to be made."""
        return replace(self, tables={name: it for name, it in self.tables.items() if name != table})


NOTHING_KNOWN = KnownObjects({}, {})


def read_known(session: sa.Connection, database: SqlDatabase, articles: Sequence[Article]) -> KnownObjects:
    """Read the articles' tables and custom procedures; nothing is asked for none."""
    tables = [it.destination_table for it in articles]
    found = find_destinations(session, database, tables) if tables else {}
    scripter = database.scripter
    names = custom_names(articles, scripter.names) if scripter else []
    stored = scripter.stored(session, names) if scripter and names else {}
    return KnownObjects({it: found.get(it) for it in tables}, {it: stored.get(it) for it in names})
