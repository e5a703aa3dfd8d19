"""A table in ranges of pages, which several sessions read at once."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.snapshot import TableRange


@dataclass(frozen=True, slots=True)
class TableSize:
    pages: int
    bytes: int
    """With what is stored out of line."""


@dataclass(frozen=True, slots=True)
class PageRange(TableRange):
    """Rows on pages from `first_page` up to before `end_page` (None: to the end)."""

    first_page: int = 0
    end_page: int | None = None

    def condition(self) -> sql.Composable | None:
        """Return what is true for its rows; None where it is the whole table."""
        first = sql.SQL("ctid >= {}").format(sql.Literal(f"({self.first_page},0)"))
        if self.end_page is None:
            return None if self.first_page == 0 else first
        return sql.SQL("{} AND ctid < {}").format(first, sql.Literal(f"({self.end_page},0)"))


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


def table_ranges(article: RegisteredArticle, size: TableSize, bytes_each: int | None) -> list[PageRange]:
    """Return at least one range; the last one is open, for pages that are there by the time it is read."""
    pages_each = max(1, size.pages * bytes_each // max(1, size.bytes)) if bytes_each is not None else size.pages
    starts = list(range(0, size.pages, max(1, pages_each))) or [0]
    ends = [*starts[1:], None]
    return [
        PageRange(article, number, _share(first, end, size), first, end)
        for number, (first, end) in enumerate(zip(starts, ends, strict=True), start=1)
    ]


def _share(first: int, end: int | None, size: TableSize) -> float:
    return ((size.pages if end is None else end) - first) / size.pages if size.pages else 1.0
