"""A table in ranges of pages, which several sessions read at once."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translated_errors

SMALLEST_RANGE = 8 * 1024 * 1024
"""Bytes."""
LARGEST_RANGE = 128 * 1024 * 1024
_RANGES_A_CORE = 4


@dataclass(frozen=True, slots=True)
class TableSize:
    pages: int
    bytes: int
    """With what is stored out of line."""


@dataclass(frozen=True, slots=True)
class TableRange:
    """Rows of an article on pages from `first_page` up to before `end_page` (None: to the end)."""

    article: RegisteredArticle
    number: int
    """From 1."""
    first_page: int
    end_page: int | None

    @property
    def name(self) -> str:
        return str(self.article.source)

    def condition(self) -> sql.Composable | None:
        """Return the range's WHERE condition; None where the range is the whole table."""
        first = sql.SQL("ctid >= {}").format(sql.Literal(f"({self.first_page},0)"))
        if self.end_page is None:
            return None if self.first_page == 0 else first
        return sql.SQL("{} AND ctid < {}").format(first, sql.Literal(f"({self.end_page},0)"))

    def share(self, size: TableSize) -> float:
        """Return the range's part of the table, from 0 to 1."""
        end = max(size.pages, self.first_page) if self.end_page is None else self.end_page
        return (end - self.first_page) / size.pages if size.pages else 1.0


def table_size(session: Session, article: RegisteredArticle) -> TableSize:
    """Return the table's size as it is now: the rows that an earlier snapshot shows lie within it."""
    with translated_errors(f"Publisher {session.info.dbname}"):
        row = session.execute(
            "SELECT pg_catalog.pg_relation_size(t) / current_setting('block_size')::bigint, "
            "pg_catalog.pg_table_size(t) FROM CAST(%s AS regclass) t",
            [qualified(article.source).as_string(session)],
        ).fetchone()
    pages, size = row or (0, 0)
    return TableSize(int(pages), int(size))


def range_bytes(total: int, cores: int) -> int:
    """Return how many bytes of a table a range should hold, so that all cores are busy to the end."""
    return min(LARGEST_RANGE, max(SMALLEST_RANGE, total // (cores * _RANGES_A_CORE)))


def table_ranges(article: RegisteredArticle, size: TableSize, bytes_each: int) -> list[TableRange]:
    """Divide a table into ranges, at least one; the last one is open, for pages that are there by the time it is
    read."""
    pages_each = max(1, size.pages * bytes_each // max(1, size.bytes))
    starts = list(range(0, size.pages, pages_each)) or [0]
    ends = [*starts[1:], None]
    return [
        TableRange(article, number, first, end)
        for number, (first, end) in enumerate(zip(starts, ends, strict=True), start=1)
    ]
