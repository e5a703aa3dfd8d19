"""Tables of a Subscriber that SQLAlchemy reaches, which a snapshot empties: of the article's rows, in the open
transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import find_destinations
from tranrepl.subscriber.row_filter_translation import columns_read, translated_filter
from tranrepl.subscriber.snapshot import OwnedRows, SnapshotArticle


class EmptiedTables:
    """The tables as they are in the session."""

    def __init__(self, session: sa.Connection, database: SqlDatabase) -> None:
        self._session = session
        self._database = database

    def parents(self, articles: Iterable[SnapshotArticle]) -> dict[str, list[str]]:
        """Return by article those of the articles that its rows refer to."""
        destinations = {it.article.destination: it.name for it in articles}
        parents: dict[str, list[str]] = {}
        for destination, name in destinations.items():
            keys = self._database.foreign_keys(self._session, destination)
            parents[name] = [destinations[key.referenced] for key in keys if key.referenced in destinations]
        return parents

    def holds_rows(self, it: SnapshotArticle) -> bool:
        query = sa.select(sa.literal(1)).select_from(self._table(it)).limit(1)
        return self._session.execute(query).first() is not None

    def delete(self, rows: OwnedRows) -> None:
        """Delete the rows. Nothing is deleted of an empty table."""
        deletion = sa.delete(self._table(rows.article))
        if rows.condition is not None:
            condition = translated_filter(rows.condition, self._database.sql_name, rows.name)
            deletion = deletion.where(sa.text(condition))
        self._session.execute(deletion)

    def lacking(self, rows: Sequence[OwnedRows]) -> Iterator[tuple[OwnedRows, frozenset[str]]]:
        """Yield those whose tables are there, each with the columns that its condition reads and the table lacks."""
        destinations = [it.article.article.destination for it in rows]
        tables = find_destinations(self._session, self._database, destinations)
        for it, destination in zip(rows, destinations, strict=True):
            table = tables.get(destination)
            read = columns_read(it.condition) if it.condition is not None else frozenset()
            if table is not None:
                yield it, read - table.spelled_as(sorted(read)).columns.keys()

    def _table(self, it: SnapshotArticle) -> sa.TableClause:
        schema, name = self._database.place(it.article.destination)
        return sa.table(
            quoted_name(name, quote=True), schema=None if schema is None else quoted_name(schema, quote=True)
        )
