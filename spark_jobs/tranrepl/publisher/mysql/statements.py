"""Statements in a binary log: what they mean for published tables.

Rows follow of no statement that changes a table itself. Its text says which table that is, and whether its rows may be
others now; the new definition is never read from the text. One that names a published table and is not understood ends
the reading.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from tranrepl.model.names import TableName
from tranrepl.publisher.mysql.events import Query

_NAME = r'(?:`(?:[^`]|``)+`|"(?:[^"]|"")+"|[\w$\u0080-\uffff]+)'
_TABLE = rf"{_NAME}(?:\s*\.\s*{_NAME})?"
_WAIT = r"(?:\s+WAIT\s+\d+|\s+NOWAIT)?"
_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"", re.DOTALL)
_COMMENT = re.compile(
    rf"(?P<kept>{_QUOTED.pattern})"
    r"|/\*(?!M?!).*?\*/|--(?=\s|$)[^\n]*|#[^\n]*",
    re.DOTALL,
)
_EXECUTED_FROM = re.compile(r"/\*M?!")
_EXECUTED = re.compile(r"/\*M?!\d*|\*/")
"""The ends of a comment whose text the server executes."""
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?({_TABLE}){_WAIT}", re.IGNORECASE)
_OF_ONE = re.compile(
    r"(?:ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?)"
    rf"(?P<table>{_TABLE})(?![\w$`\"])",
    re.IGNORECASE,
)
_OF_OTHERS_TOO = re.compile(
    r"\bRENAME\b(?!\s+(?:COLUMN|INDEX|KEY)\b)|\bEXCHANGE\b|\bCONVERT\s+(?:TABLE|PARTITION)\b", re.IGNORECASE
)
"""What makes ALTER TABLE change another table than its own."""
_DROP = re.compile(
    rf"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?{_TABLE}(?:\s*,\s*{_TABLE})*{_WAIT}(?:\s+(?:RESTRICT|CASCADE))?",
    re.IGNORECASE,
)
_RENAMED = rf"{_TABLE}{_WAIT}\s+TO\s+{_TABLE}"
_RENAME = re.compile(rf"RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?{_RENAMED}(?:\s*,\s*{_RENAMED})*", re.IGNORECASE)
_DATABASE = re.compile(
    r"(?:DROP|CREATE\s+OR\s+REPLACE)\s+(?:DATABASE|SCHEMA)\b\s*(?:IF\s+(?:NOT\s+)?EXISTS\b\s*)?"
    rf"({_NAME})",
    re.IGNORECASE,
)
_OBJECT = r"(?:VIEW|TRIGGER|PROCEDURE|FUNCTION|PACKAGE|EVENT|USER|ROLE|SERVER|DATABASE|SCHEMA|INDEX)"
_HARMLESS = re.compile(
    r"(?:GRANT|REVOKE|ANALYZE|OPTIMIZE|CHECK|REPAIR|FLUSH|XA|SET\s+(?:PASSWORD|ROLE|DEFAULT\s+ROLE)|RENAME\s+USER"
    r"|(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?TEMPORARY\s+TABLE"
    r"|(?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?"
    rf"(?:ALGORITHM\s*=\s*\w+\s+|DEFINER\s*=\s*{_NAME}(?:\s*@\s*{_NAME})?\s+|SQL\s+SECURITY\s+\w+\s+"
    rf"|(?:AGGREGATE|UNIQUE|FULLTEXT|SPATIAL|ONLINE|OFFLINE)\s+)*{_OBJECT})\b",
    re.IGNORECASE,
)
_INDEX = re.compile(
    r"(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(?:(?:ONLINE|OFFLINE|UNIQUE|FULLTEXT|SPATIAL)\s+)*INDEX\b"
    rf".*?\sON\s+({_TABLE})(?![\w$`\"])",
    re.IGNORECASE | re.DOTALL,
)
_WITH_ROWS = re.compile(
    r"\b(?:IGNORE|PARTITION|PARTITIONING|TABLESPACE|EXCHANGE|VERSIONING|PERIOD)\b"
    r"|\bCONVERT\b(?!\s+TO\b)|\bRENAME\b(?!\s+(?:COLUMN|INDEX|KEY)\b)",
    re.IGNORECASE,
)
"""What makes ALTER TABLE change rows, or the table another one."""
_ADDS_PARTITIONS = re.compile(
    rf"ALTER\s+(?:ONLINE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}\s+ADD\s+PARTITION\b", re.IGNORECASE
)
"""It does nothing else: rows move at most."""
_MOVED = re.compile(
    rf"(?=\b(?:RENAME\s+COLUMN|CHANGE(?:\s+COLUMN)?)\s+(?:IF\s+EXISTS\s+)?(?P<old>{_NAME})\s+(?:TO\s+)?(?P<new>{_NAME})"
    rf"|\bDROP\s+(?:COLUMN\s+)?(?:IF\s+EXISTS\s+)?(?P<dropped>{_NAME}))",
    re.IGNORECASE,
)
"""Columns that get another name, or go. It takes no text: words in a string may hide none that follow."""
_KEPT = re.compile(
    rf"(?=\b(?:MODIFY|CHANGE)(?:\s+COLUMN)?\s+(?:IF\s+EXISTS\s+)?({_NAME}))",
    re.IGNORECASE,
)
"""Columns that were there before."""
_IN_TRANSACTION = re.compile(
    r"(?:SAVEPOINT|ROLLBACK\s+(?:WORK\s+)?TO|RELEASE\s+SAVEPOINT|BEGIN|COMMIT|ROLLBACK|XA)\b(?!\s+NOT\b)"
    r"|DROP\s+(?:TEMPORARY\s+)?TABLE\b",
    re.IGNORECASE,
)
_CREATE_TABLE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMPORARY\s+)?TABLE\b", re.IGNORECASE)
_QUERIES = re.compile(r"\bSELECT\b|\bVALUES\s*\(", re.IGNORECASE)
_UNDECODABLE = "\ufffd"


class Effect(Enum):
    """What a statement does to a published table."""

    EMPTIED = auto()
    ALTERED = auto()
    INDEXED = auto()
    """An index of the table was made or dropped, and nothing else."""
    NAMED = auto()
    """The statement names the table, and is not understood."""


@dataclass(frozen=True, slots=True)
class Meaning:
    table: TableName
    effect: Effect


def meaning(query: Query, tables: Collection[TableName]) -> Meaning | None:
    """Return what a statement does to one of these tables; None where it is none of ours."""
    whole = query.text.decode(errors="replace")
    text = _without_comments(whole)
    dropped = _DATABASE.match(text)
    is_harmless = dropped is None and _HARMLESS.match(text) is not None
    if is_harmless:
        return _indexed(text, query.database, tables)
    found = dropped or _DATABASE.search(text)
    if found is not None:
        gone = found[1].lower()
        lost = next((it for it in tables if _is_named(it.schema.lower(), gone)), None)
        # Elsewhere in the text it may be part of a comment of a column.
        if lost is not None or dropped is not None:
            return None if lost is None else Meaning(lost, Effect.ALTERED)
    is_exact = _UNDECODABLE not in text and _EXECUTED_FROM.search(whole) is None
    truncated = _TRUNCATE.fullmatch(text) if is_exact else None
    if truncated is not None:
        name = _table(truncated[1], query.database)
        if name in tables:
            return Meaning(name, Effect.EMPTIED)
    altered, is_whole = _altered(text, query.database) if is_exact else ([], False)
    # The server may take names of any letter case for the same.
    known = {_folded(it) for it in altered}
    ours = next((it for it in tables if _folded(it) in known), None)
    if ours is not None or is_whole:
        return None if ours is None else Meaning(ours, Effect.ALTERED)
    named = _EXECUTED.sub(" ", whole).lower()
    return next((Meaning(it, Effect.NAMED) for it in tables if _is_named(it.table.lower(), named)), None)


def meanings(query: Query, tables: Collection[TableName]) -> Iterator[Meaning]:
    """Yield what a statement does to each of these tables that it concerns."""
    left = set(tables)
    while (found := meaning(query, left)) is not None:
        yield found
        left.remove(found.table)


def _indexed(text: str, database: str, tables: Collection[TableName]) -> Meaning | None:
    found = _INDEX.match(text)
    known = None if found is None else _folded(_table(found[1], database))
    return next((Meaning(it, Effect.INDEXED) for it in tables if _folded(it) == known), None)


def why_rows_unknown(query: Query, columns: Collection[str], added: Collection[str] = ()) -> str | None:
    """Return why rows of the table that a statement alters may be others now, or values of these columns, which it has
    now; None where they are as they were. `added`: columns of which nothing was known before."""
    whole = query.text.decode(errors="replace")
    text = _without_comments(whole)
    plain = _QUOTED.sub(" x ", text)
    altered = _OF_ONE.match(text)
    in_place = (altered is not None and text[:1].upper() == "A") or _INDEX.match(text) is not None
    # A backslash may be one of NO_BACKSLASH_ESCAPES: then strings end elsewhere.
    is_exact = not any(it in whole for it in (_UNDECODABLE, "\\")) and _EXECUTED_FROM.search(whole) is None
    has_rows = _WITH_ROWS.search(plain) is not None and _ADDS_PARTITIONS.match(text) is None
    if not is_exact or not in_place or has_rows:
        return "a statement may have changed its rows, and the log does not have them"
    known = {it.lower() for it in columns}
    # A quoted name needs no space beside it.
    names = _QUOTED.sub(lambda found: " '' " if found[0][0] == "'" else f" {found[0]} ", text)
    for it in _MOVED.finditer(names):
        old, new = (None if name is None else _unquoted(name) for name in (it["old"] or it["dropped"], it["new"]))
        if old is None or (new is not None and new.lower() == old.lower()):
            continue
        if it["dropped"] is None:
            return f"column {old} was renamed, and a column is known by its name"
        if old.lower() in known:
            return f"column {old} was dropped, and another one has its name"
    named = {_unquoted(it).lower() for it in re.findall(_NAME, names)}
    kept = {_unquoted(it[1]).lower() for it in _KEPT.finditer(names)}
    seen = next((it for it in added if it.lower() not in named or it.lower() in kept), None)
    return None if seen is None else f"column {seen} was there before, generated or not shown to our role"


def hides_rows(query: Query, *, stands_alone: bool) -> bool:
    """Return whether a statement is logged instead of rows that it may have changed: any one among rows that does not
    belong there, and a table made of a query, which may call functions."""
    text = _without_comments(query.text.decode(errors="replace"))
    if _CREATE_TABLE.match(text):
        return _QUERIES.search(_QUOTED.sub(" ", text)) is not None
    return not stands_alone and _IN_TRANSACTION.match(text) is None


def _without_comments(text: str) -> str:
    plain = _COMMENT.sub(lambda found: found["kept"] or " ", text)
    return _EXECUTED.sub(" ", plain).strip(" \t\r\n;")


def _altered(text: str, database: str) -> tuple[list[TableName], bool]:
    """Return the tables that a statement changes itself, and whether these are all."""
    one = _OF_ONE.match(text)
    if one is not None:
        is_whole = one[0][:1].upper() == "C" or _OF_OTHERS_TOO.search(text) is None
        return [_table(one["table"], database)], is_whole
    if any(it.fullmatch(text) for it in (_TRUNCATE, _DROP, _RENAME)):
        # Words of the statement among them are names of no table.
        return [_table(it, database) for it in re.findall(_TABLE, text)], True
    return [], False


def _is_named(name: str, text: str) -> bool:
    """Return whether a text has the name as a word. Of a text that cannot be decoded all other letters are alike."""
    quoted = "|".join(re.escape(it) for it in {name, name.replace("`", "``"), name.replace('"', '""')})
    if _UNDECODABLE in text:
        quoted = re.sub(r"[^\x00-\x7f]+", lambda _: r"(?:[^\x00-\x7f].?)+", quoted)
    return re.search(rf"(?<![\w$])(?:{quoted})(?![\w$])", text) is not None


def _folded(name: TableName) -> tuple[str, str]:
    return name.schema.lower(), name.table.lower()


def _table(text: str, database: str) -> TableName:
    parts = [_unquoted(it) for it in re.findall(_NAME, text)]
    return TableName(*parts) if len(parts) == 2 else TableName(database, parts[0])


def _unquoted(name: str) -> str:
    mark = name[0]
    return name[1:-1].replace(mark * 2, mark) if mark in '`"' else name
