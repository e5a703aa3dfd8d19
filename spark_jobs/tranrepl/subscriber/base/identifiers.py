"""Names that are always quoted, as SQLAlchemy's dialects quote them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name


def always_quoted(name: str) -> quoted_name:
    return quoted_name(name, quote=True)


def table_clause(place: tuple[str | None, str], *columns: sa.ColumnClause[Any]) -> sa.TableClause:
    """Return a table, by its schema and name, for statements of SQLAlchemy's."""
    schema, name = place
    return sa.table(always_quoted(name), *columns, schema=None if schema is None else always_quoted(schema))


class Identifiers:
    """Quotes names for statements that we write as text."""

    def __init__(self, kind: str) -> None:
        """Prepare quoting for `kind`, the name of an SQLAlchemy dialect."""
        dialect: Callable[..., sa.Dialect] = sa.URL.create(kind).get_dialect()
        # Without the driver's own style of parameters, for which it might double percent signs.
        self._preparer = dialect(paramstyle="named").identifier_preparer

    def quoted(self, name: str) -> str:
        return self._preparer.quote_identifier(name)

    def qualified(self, *parts: str | None) -> str:
        """Return the parts that are there, each quoted, with dots between."""
        return ".".join(self.quoted(part) for part in parts if part)
