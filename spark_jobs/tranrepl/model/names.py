"""Names: of tables, publications, connections and classes, and SQL's names of several parts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".\s]+)')
_PROCEDURE_PART = re.compile(r'"((?:[^"]|"")+)"|([^"\[.\s][^".\s]*)|\[((?:[^\]]|\]\])+)\]')


def name_parts(text: str) -> list[str]:
    """Split a dotted name into its parts; a part that holds a dot, a space or a quote is in double quotes, as in
    SQL.

    Raises ValueError where the text is no such name.
    """
    return _parts(text, _PART)


def procedure_parts(text: str) -> list[str]:
    """Split the dotted name of a procedure as `name_parts` does; a part may stand in brackets too, as in T-SQL and in
    the commands of SQL Server's articles: `CALL [dbo].[sp_MSins_Vendor]`.

    Raises ValueError where the text is no such name.
    """
    return _parts(text, _PROCEDURE_PART)


def _parts(text: str, part: re.Pattern[str]) -> list[str]:
    parts: list[str] = []
    position = 0
    while match := part.match(text, position):
        quoted, plain, *bracketed = match.groups()
        parts.append(quoted.replace('""', '"') if quoted else plain or bracketed[0].replace("]]", "]"))
        position = match.end()
        if position == len(text) or text[position] != ".":
            break
        position += 1
    if position != len(text):
        raise ValueError("a part with a dot, a space or a quote is in double quotes")
    return parts


def _identifier(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", value):
        raise ValueError("allowed: letters, digits, _ and -")
    return value


def _connection_id(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", value):
        raise ValueError("allowed: a connection's id, of letters, digits, _, . and -")
    return value


def _import_path(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", value):
        raise ValueError("allowed: the import path of a class, as in package.module.Class")
    return value


Name = Annotated[str, Field(min_length=1, max_length=40), AfterValidator(_identifier)]
ConnectionId = Annotated[
    str, Field(min_length=1, json_schema_extra={"pattern": "^[A-Za-z0-9_.-]+$"}), AfterValidator(_connection_id)
]
ImportPath = Annotated[
    str, Field(json_schema_extra={"pattern": r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"}), AfterValidator(_import_path)
]


_PLAIN_PART = re.compile(r'[^".\s*]+')
_PLAIN_NAME = re.compile(r'([^".\s*]+)\.([^".\s*]+)')
_WITH_STAR = re.compile(r'(?P<schema>"(?:[^"]|"")+"|[^".\s*]+)\.(?P<table>[^".\s]*\*[^".\s]*)')
_IN_QUOTES = "a part with a dot, a space, a quote or a * in double quotes"


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table as the catalogue spells it, without case folding."""

    schema: str
    table: str

    def __str__(self) -> str:
        plain = f"{self.schema}.{self.table}"
        return plain if _PLAIN_NAME.fullmatch(plain) else f"{_quoted_part(self.schema)}.{_quoted_part(self.table)}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse `schema.table`; a part that holds a dot, a space, a quote or a * is in double quotes, as in SQL."""
        plain = _PLAIN_NAME.fullmatch(text)
        if plain is not None:
            return TableName(*plain.groups())
        try:
            parts = name_parts(text)
        except ValueError:
            parts = []
        if len(parts) == 1 and "*" not in text:
            raise ValueError(f"allowed: schema.table, as in {TableName('public', *parts)}")
        if len(parts) != 2 or any("*" in plain for _, plain in _PART.findall(text)):
            raise ValueError(f"allowed: schema.table, {_IN_QUOTES}")
        return TableName(*parts)


@dataclass(frozen=True, slots=True, order=True)
class TablePattern(TableName):
    """The tables of a schema whose names match: each * of `table` means any characters, or none."""

    def __str__(self) -> str:
        return f"{_quoted_part(self.schema)}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Parse `schema.pattern`, as in `sales.order_*`."""
        found = _WITH_STAR.fullmatch(text)
        if found is None:
            raise ValueError(f"allowed: schema.table, with * in the table's name where several are meant, {_IN_QUOTES}")
        return cls(name_parts(found["schema"])[0], found["table"])

    @property
    def is_whole_schema(self) -> bool:
        return self.table == "*"

    def matches(self, name: TableName) -> bool:
        return name.schema == self.schema and _expression(self.table).fullmatch(name.table) is not None


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split(r"\*+", pattern))), re.DOTALL)


def _quoted_part(part: str) -> str:
    return part if _PLAIN_PART.fullmatch(part) else '"' + part.replace('"', '""') + '"'


def _table_name(value: object) -> TableName:
    if isinstance(value, TableName):
        return value
    if not isinstance(value, str):
        raise ValueError("allowed: schema.table")
    return TableName.parse(value)


def _table_or_pattern(value: object) -> TableName:
    if isinstance(value, str) and _WITH_STAR.fullmatch(value):
        return TablePattern.parse(value)
    return _table_name(value)


Table = Annotated[
    TableName,
    BeforeValidator(_table_name),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["purchasing.vendor", 'sales."Order Details"']}),
]

TableOrPattern = Annotated[
    TableName,
    BeforeValidator(_table_or_pattern),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["purchasing.vendor", "sales.*", 'sales."Order Details"']}),
]
"""A table, or a TablePattern for several."""
