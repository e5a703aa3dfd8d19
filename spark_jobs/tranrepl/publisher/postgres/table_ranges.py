"""A table in ranges of pages, which several sessions read at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.partitions import tables_with_rows
from tranrepl.publisher.snapshot import TableRange


@dataclass(frozen=True, slots=True)
class TableSize:
    pages: int
    bytes: int
    """With what is stored out of line."""


@dataclass(frozen=True, slots=True)
class PageRange(TableRange):
    """Rows on pages from `first_page` up to before `end_page` (None: to the end)."""

    table: TableName
    """The article's, or a partition of it."""
    first_page: int = 0
    end_page: int | None = None

    def condition(self) -> sql.Composable | None:
        """Return what is true for its rows; None where it is the whole table."""
        first = sql.SQL("ctid >= {}").format(sql.Literal(f"({self.first_page},0)"))
        if self.end_page is None:
            return None if self.first_page == 0 else first
        return sql.SQL("{} AND ctid < {}").format(first, sql.Literal(f"({self.end_page},0)"))


def table_sizes(session: Session, article: RegisteredArticle) -> dict[TableName, TableSize]:
    """Return the sizes of the tables that the article's rows are in, as they are now: the rows that an earlier snapshot
    shows lie within them. Of a partitioned table, these are its partitions, as the session's snapshot shows them."""
    with translated_errors(f"Publisher {session.info.dbname}"):
        tables = tables_with_rows(session, article)
        names = [qualified(it).as_string(session) for it in tables]
        rows = session.execute(_SIZES, [names]).fetchall()
    return {table: TableSize(int(pages), int(size)) for table, (pages, size) in zip(tables, rows, strict=True)}


_SIZES = """
SELECT pg_catalog.pg_relation_size(t::regclass) / current_setting('block_size')::bigint,
       pg_catalog.pg_table_size(t::regclass)
  FROM unnest(%s::text[]) WITH ORDINALITY named(t, place) ORDER BY place
"""


def table_ranges(
    article: RegisteredArticle, sizes: Mapping[TableName, TableSize], bytes_each: int | None
) -> list[PageRange]:
    """Return at least one range of each table; a table's last one is open, for pages that are there by the time it is
    read."""
    sizes = sizes or {article.source: TableSize(0, 0)}
    pages = sum(it.pages for it in sizes.values())
    found = [
        (table, first, end, _share(first, end, size, pages, len(sizes)))
        for table, size in sizes.items()
        for first, end in _bounds(size, bytes_each)
    ]
    return [
        PageRange(article, number, share, table, first, end)
        for number, (table, first, end, share) in enumerate(found, start=1)
    ]


def _bounds(size: TableSize, bytes_each: int | None) -> Iterator[tuple[int, int | None]]:
    pages_each = max(1, size.pages * bytes_each // max(1, size.bytes)) if bytes_each is not None else size.pages
    starts = list(range(0, size.pages, max(1, pages_each))) or [0]
    return zip(starts, [*starts[1:], None], strict=True)


def _share(first: int, end: int | None, size: TableSize, pages: int, tables: int) -> float:
    return ((size.pages if end is None else end) - first) / pages if pages else 1.0 / tables
