"""Tables of a PostgreSQL Subscriber that a snapshot empties: of the article's rows, in the open transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from psycopg import sql

from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import describe_tables, qualified
from tranrepl.postgres.composed_sql import condition_sql
from tranrepl.postgres.session import Session, own_path
from tranrepl.subscriber.postgres.users_code import delete_on_own_path
from tranrepl.subscriber.row_filter_translation import columns_read
from tranrepl.subscriber.snapshot import OwnedRows, SnapshotArticle, load_order, referring


class EmptiedTables:
    """The tables as they are in the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def parents(self, articles: Iterable[SnapshotArticle]) -> dict[str, list[str]]:
        """Return by article those of the articles that its rows refer to."""
        destinations = {it.article.destination: it.name for it in articles}
        tables = describe_tables(self._session, destinations)
        parents: dict[str, list[str]] = {}
        for destination, name in destinations.items():
            table = tables.get(destination)
            keys = table.foreign_keys if table is not None else ()
            parents[name] = [destinations[key.referenced] for key in keys if key.referenced in destinations]
        return parents

    def may_truncate(self, it: SnapshotArticle) -> bool:
        table = qualified(it.article.destination).as_string(self._session)
        row = self._session.execute("SELECT pg_catalog.has_table_privilege(%s, 'TRUNCATE')", [table]).fetchone()
        return row == (True,)

    def truncate(self, articles: Iterable[SnapshotArticle]) -> None:
        tables = sql.SQL(", ").join(qualified(it.article.destination) for it in articles)
        with own_path(self._session):
            self._session.execute(sql.SQL("TRUNCATE {}").format(tables))

    def delete(self, rows: Collection[OwnedRows]) -> None:
        """Delete the rows, children first. Raises ConfigurationError where foreign keys make a circle."""
        by_name = {it.name: it for it in rows}
        order = load_order(self.parents(it.article for it in rows))
        for name in [name for level in reversed(order.levels) for name in level]:
            self._session.execute(delete_on_own_path([_deletion(by_name[name])]))

    def delete_chosen(self, found: Sequence[OwnedRows], chosen: Collection[str], *, keys_act: bool) -> list[OwnedRows]:
        """Delete those of the rows that are of the chosen articles, and where foreign keys act, of those that refer to
        them; return which. One statement does it: foreign keys among the tables, which stay, are checked at its end."""
        if keys_act:
            chosen = referring(self.parents(it.article for it in found), chosen)
        deleted = [it for it in found if it.name in chosen]
        if deleted:
            self._session.execute(delete_on_own_path([*map(_deletion, deleted)]))
        return deleted

    def lacking(self, rows: Sequence[OwnedRows]) -> Iterator[tuple[OwnedRows, frozenset[str]]]:
        """Yield those whose tables are there, each with the columns that its condition reads and the table lacks."""
        destinations: list[TableName] = [it.article.article.destination for it in rows]
        tables = describe_tables(self._session, destinations)
        for it, destination in zip(rows, destinations, strict=True):
            table = tables.get(destination)
            read = columns_read(it.condition) if it.condition is not None else frozenset()
            if table is not None:
                yield it, read - {column.name for column in table.columns}


def _deletion(rows: OwnedRows) -> sql.Composed:
    return sql.SQL("DELETE FROM {} AS {} WHERE {}").format(
        qualified(rows.article.article.destination), sql.Identifier(rows.table), condition_sql(rows.condition or "true")
    )
