"""Statements in a binary log: what they mean for published tables.

Rows follow of no statement that changes a table itself. Only TRUNCATE can be replicated; after any other one the
reading stops before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tranrepl.model.names import TableName
from tranrepl.publisher.mysql.events import Query

_NAME = r'(?:`(?:[^`]|``)+`|"(?:[^"]|"")+"|[\w$\u0080-\uffff]+)'
_TABLE = rf"{_NAME}(?:\s*\.\s*{_NAME})?"
_COMMENT = re.compile(r"/\*(?!!|M!).*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?({_TABLE})", re.IGNORECASE)
_ALTERING = re.compile(
    r"(?:ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    r"|DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?"
    r"|RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?)"
    rf"({_TABLE})",
    re.IGNORECASE,
)
_OF_MANY = re.compile(r"(?:DROP|RENAME)\s", re.IGNORECASE)
_DATABASE = re.compile(
    rf"(?:DROP|CREATE\s+OR\s+REPLACE)\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?({_NAME})", re.IGNORECASE
)
_CHANGING_ROWS = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD\s|WITH\s|CALL\s|BEGIN\s+NOT\s)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a statement does to published tables: empties one, or stops the reading."""

    table: TableName
    empties: bool


def meaning(query: Query, tables: Collection[TableName]) -> Meaning | None:
    """Return what a statement does to one of these tables; None where it is none of ours."""
    text = _COMMENT.sub(" ", query.text.decode(errors="replace")).strip()
    truncated = _TRUNCATE.match(text)
    if truncated is not None:
        name = _table(truncated[1], query.database)
        return Meaning(name, empties=True) if name in tables else None
    for name in _altered(text, query.database):
        if name in tables:
            return Meaning(name, empties=False)
    dropped = _DATABASE.match(text)
    if dropped is not None:
        gone = _unquoted(dropped[1])
        return next((Meaning(it, empties=False) for it in tables if it.schema == gone), None)
    return None


def changes_rows(query: Query) -> bool:
    """Return whether rows are logged as a statement."""
    return _CHANGING_ROWS.match(_COMMENT.sub(" ", query.text.decode(errors="replace")).strip()) is not None


def _altered(text: str, database: str) -> Iterator[TableName]:
    found = _ALTERING.match(text)
    if found is None:
        return
    yield _table(found[1], database)
    # A name of many, or what a table is renamed to.
    if _OF_MANY.match(text) or re.search(r"\bRENAME\b", text, re.IGNORECASE):
        yield from (
            _table(it, database) for it in re.findall(rf"(?:,|\bTO\b|\bAS\b)\s*({_TABLE})", text, re.IGNORECASE)
        )


def _table(text: str, database: str) -> TableName:
    parts = [_unquoted(it) for it in re.findall(_NAME, text)]
    return TableName(*parts) if len(parts) == 2 else TableName(database, parts[0])


def _unquoted(name: str) -> str:
    mark = name[0]
    return name[1:-1].replace(mark * 2, mark) if mark in '`"' else name
