"""Names and literals of T-SQL, for statements that we write as text."""

from __future__ import annotations

from tranrepl.subscriber.base.identifiers import Identifiers

SCHEMA = "dbo"
"""Where procedures, and tables without a schema, are looked for."""
_IDENTIFIERS = Identifiers("mssql")


def quoted(name: str) -> str:
    return _IDENTIFIERS.quoted(name)


def qualified(schema: str | None, name: str) -> str:
    return _IDENTIFIERS.qualified(schema or SCHEMA, name)


def literal(text: str) -> str:
    return "N'" + text.replace("'", "''") + "'"
