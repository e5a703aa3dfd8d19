"""A PostgreSQL Publisher's end of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.comparison import Checksum, ColumnForm, ComparedEnd
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import describe_tables, qualified
from tranrepl.postgres.compared_table import SnapshotPlace, compared_end, native_hashes
from tranrepl.postgres.comparison_forms import publisher_column
from tranrepl.postgres.comparison_statements import PostgresSide
from tranrepl.postgres.composed_sql import condition_sql
from tranrepl.postgres.imported_snapshot import snapshot_session
from tranrepl.postgres.session import Session, connect, translated_errors
from tranrepl.publisher.postgres.partitions import tables_with_rows, whole_table
from tranrepl.publisher.postgres.snapshot_session import hold_tables


@dataclass(frozen=True, slots=True)
class PostgresComparison:
    connection: Connection
    snapshot: str
    _session: Session

    @property
    def where(self) -> str:
        return f"Publisher {self.connection.database}"

    def describe(self, articles: Sequence[RegisteredArticle]) -> dict[TableName, TableDescription]:
        with translated_errors(self.where):
            return describe_tables(self._session, [it.source for it in articles])

    def native_hashes(self) -> tuple[object, ...]:
        """Return what the server's hash functions make of sample values."""
        return native_hashes(self._session)

    def table_bytes(self, articles: Sequence[RegisteredArticle]) -> int:
        """Return the size of all these articles' tables, in bytes."""
        with translated_errors(self.where):
            tables = [it for article in articles for it in tables_with_rows(self._session, article)]
            names = [qualified(it).as_string(self._session) for it in tables]
            row = self._session.execute(_TOTAL, [names]).fetchone()
        return int(row[0]) if row else 0

    def end(
        self, article: RegisteredArticle, forms: Sequence[ColumnForm], checksum_by: Checksum, part_bytes: int
    ) -> ComparedEnd:
        """Return the article's end, its columns in these forms, read in parts of about that many bytes."""
        columns = tuple(publisher_column(it, form) for it, form in zip(article.columns, forms, strict=True))
        table, condition = whole_table(article)
        if article.filter is not None:
            chosen = condition_sql(article.filter)
            condition = chosen if condition is None else sql.SQL("{} AND ({})").format(condition, chosen)
        side = PostgresSide(table, columns, article.key_positions, checksum_by, condition)
        place = SnapshotPlace(self.connection, self.snapshot, f"{self.where}, article {article.source}")
        return compared_end(self._session, article.source, side, place, part_bytes)


@contextmanager
def publisher_comparison(
    connection: Connection, snapshot: str, articles: Sequence[RegisteredArticle]
) -> Iterator[PostgresComparison]:
    """Open the Publisher's exported snapshot; until the end, nobody empties or rewrites the articles' tables."""
    with (
        connect(connection, "tranrepl validation", autocommit=True) as session,
        snapshot_session(connection, snapshot, "tranrepl validation") as holding,
    ):
        hold_tables(holding, articles)
        yield PostgresComparison(connection, snapshot, session)


_TOTAL = "SELECT coalesce(sum(pg_catalog.pg_relation_size(t::regclass)), 0)::bigint FROM unnest(%s::text[]) t"
