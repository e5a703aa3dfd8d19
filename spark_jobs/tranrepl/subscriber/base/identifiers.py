"""Names as SQLAlchemy's dialects quote them, for statements that we write as text."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa


class Identifiers:
    """Quotes names, whatever is in them."""

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
