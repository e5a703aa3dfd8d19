"""An article at a Subscriber that SQLAlchemy reaches: where its table is, and how values become its columns'."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tranrepl.model.article import RegisteredArticle
from tranrepl.subscriber.base.identifiers import always_quoted, table_clause
from tranrepl.subscriber.value_conversion import ColumnType, Conversion


@dataclass(frozen=True, slots=True)
class SqlColumn:
    name: str
    """As it is published."""
    type: ColumnType
    conversion: Conversion
    catalogue_name: str
    """As the destination's catalogue has it: another spelling where the database ignores case."""
    identity: bool = False
    """It is an identity, which takes a value where the statement says so, and never another one."""
    fills_itself: bool = False
    """An UPDATE that leaves it out gives it a value of the database's own."""


@dataclass(frozen=True, slots=True)
class SqlTarget:
    """`columns` are the destination's, in the article's order."""

    article: RegisteredArticle
    schema: str | None
    name: str
    columns: tuple[SqlColumn, ...]
    key_is_unique: bool
    """The Subscriber's table has at most one row for a key of the article."""

    @property
    def key_columns(self) -> tuple[SqlColumn, ...]:
        return tuple(self.columns[at] for at in self.article.key_positions)

    def kept(self, table: sa.TableClause, names: Container[str]) -> dict[Any, Any]:
        """Return what an UPDATE of `table` that assigns the columns of these names sets besides: those that fill
        themselves, to what they are."""
        filled = [table.c[it.name] for it in self.columns if it.fills_itself and it.name not in names]
        return dict(zip(filled, filled, strict=True))

    def table(self) -> sa.TableClause:
        """Return the table for statements: every name is quoted, every value bound as its conversion says."""
        columns: list[sa.ColumnClause[object]] = [
            sa.column(always_quoted(it.name), it.conversion.bind) for it in self.columns
        ]
        return table_clause((self.schema, self.name), *columns)
