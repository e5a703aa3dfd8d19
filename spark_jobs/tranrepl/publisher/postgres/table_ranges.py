"""A table in ranges, which several sessions read at once: of pages; or, where it is large and its rows lie in the order
of their keys, of keys, which a later snapshot can go on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.source_types import Family, source_type
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.partitions import partitioned, tables_with_rows
from tranrepl.publisher.snapshot import KeyRange, TableRange

_INTEGERS = (Family.SMALLINT, Family.INTEGER, Family.BIGINT)
_FEWEST_KEY_RANGES = 8
_ROWS_LOOKED_AT = 4
"""On each page: some places hold no row that the snapshot shows."""
_IN_ORDER = 0.9


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


def table_of(chosen: TableRange) -> TableName:
    """Return the table that a range's rows are in."""
    return chosen.table if isinstance(chosen, PageRange) else chosen.article.source


def range_condition(chosen: TableRange) -> sql.Composable | None:
    """Return what is true for a range's rows; None where it is the whole table."""
    if isinstance(chosen, PageRange):
        return chosen.condition()
    if not isinstance(chosen, KeyRange):
        raise TypeError(f"{chosen.name}: a range of another database")
    column = sql.Identifier(chosen.article.columns[chosen.article.key_positions[0]].name)
    bounds = ((sql.SQL(">="), chosen.first), (sql.SQL("<"), chosen.end))
    parts = [sql.SQL("{} {} {}").format(column, it, sql.Literal(key)) for it, key in bounds if key is not None]
    return sql.SQL(" AND ").join(parts) if parts else None


def key_bounds_at(session: Session, article: RegisteredArticle, pages: Sequence[int]) -> list[int] | None:
    """Return about which keys the rows on these pages have, as bounds of ranges of keys; None where the key's first
    column is no whole number, or the rows do not lie in its order: reading such ranges would jump about the table."""
    first = article.columns[article.key_positions[0]]
    if len(pages) < _FEWEST_KEY_RANGES or partitioned([article]):
        return None
    if source_type(first.type_name).family not in _INTEGERS:
        return None
    places = [f"({page},{row})" for page in pages for row in range(1, _ROWS_LOOKED_AT + 1)]
    query = sql.SQL(
        "SELECT min({key}) FROM ONLY {table} WHERE ctid = ANY ({places}::tid[]) "
        "GROUP BY (ctid::text::point)[0] ORDER BY (ctid::text::point)[0]"
    ).format(key=sql.Identifier(first.name), table=qualified(article.source), places=sql.Literal(places))
    with translated_errors(f"Publisher {session.info.dbname}"):
        keys = [int(key) for (key,) in session.execute(query).fetchall()]
    ascending = sum(one < other for one, other in pairwise(keys))
    if len(keys) < len(pages) / 2 or ascending < _IN_ORDER * (len(keys) - 1):
        return None
    return sorted(set(keys))[1:]


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
