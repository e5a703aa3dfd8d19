"""Types of columns: what they are to neutral code, which spells types as PostgreSQL does, and their values in SQL."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tranrepl.mysql.session import quoted
from tranrepl.publisher.mysql.table_maps import ColumnType, LoggedColumn
from tranrepl.publisher.mysql.value_text import BYTES

_DECLARED = re.compile(r"(?P<name>\w+)(?:\((?P<first>\d+)(?:,(?P<second>\d+))?\))?(?P<rest>.*)")
_PLAIN = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "mediumint": "integer",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "year": "smallint",
    "time": "interval",
    "json": "text",
    "enum": "text",
    "set": "text",
    "uuid": "uuid",
    "inet4": "inet",
    "inet6": "inet",
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob", "binary", "varbinary", "vector"), BYTES),
    **dict.fromkeys(
        (
            *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
            *("geometrycollection", "geomcollection"),
        ),
        BYTES,
    ),
}
_UNSIGNED = {"smallint": "integer", "int": "bigint", "bigint": "numeric(20,0)"}
_SIXTY_THREE = 63
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_MOST_LENGTH = 1 << 16


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """`spelling` is the catalogue's own (`column_type`)."""

    spelling: str
    name: str
    first: int | None
    second: int | None
    unsigned: bool

    @property
    def type_name(self) -> str | None:
        """Return the type as neutral code spells it: one that holds every value, but for `tinyint(1)`, of which
        it holds 0 and 1; None where its values cannot be read. Times are UTC."""
        match self.name:
            case _ if self._is_truth:
                return "boolean"
            case "decimal":
                return f"numeric({self.first},{self.second or 0})"
            case "char" | "varchar":
                return f"character varying({self.first})" if self.first else "text"
            case "bit":
                return "bigint" if (self.first or 1) <= _SIXTY_THREE else "numeric(20,0)"
            case "datetime" | "timestamp":
                return f"timestamp({self.first or 0}) without time zone"
        return (_UNSIGNED.get(self.name) if self.unsigned else None) or _PLAIN.get(self.name)

    @property
    def _is_truth(self) -> bool:
        """Whether the type is `bool`, which the server spells `tinyint(1)`."""
        return self.name == "tinyint" and self.first == 1 and not self.unsigned

    def number(self, charset: str) -> int:
        """Return a number that another type does not have, nor another character set of text. A width of display makes
        another one of `tinyint(1)` alone."""
        plain = f"{self.name} unsigned" if self.unsigned else self.name
        spelling = plain if self.name in _INTEGERS and not self._is_truth else self.spelling
        return _number(spelling, charset)

    def holds(self, earlier: int, charset: str) -> bool:
        """Return whether values of an earlier type, which has that number, are all written in this type as before."""
        return any(_number(it, charset) == earlier for it in self._narrower())

    def _narrower(self) -> Iterator[str]:
        if self.name in _INTEGERS:
            smaller = _INTEGERS[: _INTEGERS.index(self.name)]
            yield from (f"{it} unsigned" for it in smaller)
            if not self.unsigned:
                yield from smaller
        elif self.name in ("char", "varchar"):
            kinds = ("char",) if self.name == "char" else ("char", "varchar")
            yield from (f"{kind}({length})" for kind in kinds for length in range((self.first or 0) + 1))
        elif self.name in _TEXTS:
            yield from _TEXTS[: _TEXTS.index(self.name)]
            if self.name != _TEXTS[0]:
                yield from (f"{kind}({length})" for kind in ("char", "varchar") for length in range(_MOST_LENGTH))
        elif self.name == "decimal":
            rest = self.spelling.partition(")")[2]
            yield from (f"decimal({digits},{self.second or 0}){rest}" for digits in range(self.first or 0))
        elif self.name == "enum":
            labels = self._quoted_labels()
            yield from (f"enum({','.join(labels[:count])})" for count in range(1, len(labels)))

    def labels(self, charset: str) -> tuple[str, ...] | None:
        """Return the labels of an enum; None of another type, and where their texts are not sure: catalogues write a
        backslash in more than one way, and a letter beyond the first 65,536 as a question mark."""
        if self.name != "enum" or charset == "binary" or not {"\\", "?"}.isdisjoint(self.spelling):
            return None
        return tuple(it[1:-1].replace("''", "'") for it in self._quoted_labels())

    def _quoted_labels(self) -> list[str]:
        return re.findall(r"'(?:[^']|'')*'", self.spelling)

    def text(self, column: str) -> str:
        """Return SQL that writes a value as the log's reader does."""
        name = quoted(column)
        if self.type_name == BYTES:
            return f"CONCAT('\\x', HEX({name}))"
        match self.name:
            case "float":
                return f"CAST(CAST({name} AS DOUBLE) AS CHAR)"
            case "double" if self.second is not None:
                # As many digits after the point as it is declared with, if it is asked for them by itself.
                return f"CAST(CAST({name} AS DOUBLE) AS CHAR)"
            case "bit":
                return f"CAST({name} + 0 AS CHAR)"
            case it if it in (*_INTEGERS, "decimal", "double") and "zerofill" in self.spelling:
                return f"CAST({name} + 0 AS CHAR)"
        return f"CAST({name} AS CHAR)"


def _number(spelling: str, charset: str) -> int:
    return zlib.crc32(f"{spelling} {charset}".encode()) & 0x7FFFFFFF


def declared(spelling: str) -> DeclaredType:
    """Parse a type as the catalogue spells it, as in `int(10) unsigned`."""
    found = _DECLARED.match(spelling.lower())
    if found is None:
        return DeclaredType(spelling, spelling, None, None, unsigned=False)
    first, second = (None if found[it] is None else int(found[it]) for it in ("first", "second"))
    return DeclaredType(spelling, found["name"], first, second, "unsigned" in found["rest"])


_LOGGED = {
    ColumnType.TINY: ("smallint", "boolean"),
    ColumnType.SHORT: ("smallint", "integer"),
    ColumnType.INT24: ("integer",),
    ColumnType.LONG: ("integer", "bigint"),
    ColumnType.LONGLONG: ("bigint", "numeric"),
    ColumnType.FLOAT: ("real",),
    ColumnType.DOUBLE: ("double precision",),
    ColumnType.DECIMAL: ("numeric",),
    ColumnType.YEAR: ("smallint",),
    ColumnType.DATE: ("date",),
    ColumnType.TIME: ("interval",),
    ColumnType.DATETIME: ("timestamp",),
    ColumnType.TIMESTAMP: ("timestamp",),
    ColumnType.BIT: ("bigint", "numeric"),
    ColumnType.ENUM: ("text",),
    ColumnType.SET: ("text",),
    ColumnType.GEOMETRY: (BYTES,),
    ColumnType.VECTOR: (BYTES,),
    ColumnType.JSON: ("text",),
    ColumnType.STRING: ("character varying", "text", BYTES, "uuid", "inet"),
    **dict.fromkeys((ColumnType.VARCHAR, ColumnType.VARCHAR_COMPRESSED), ("character varying", "text", BYTES)),
    **dict.fromkeys((ColumnType.BLOB, ColumnType.BLOB_COMPRESSED), ("text", BYTES)),
}


def is_of_type(column: LoggedColumn, type_name: str) -> bool:
    """Return whether a column of the log can be the one that was registered with this type; any one can where$
    no type is registered."""
    if not type_name:
        return True
    base, _, rest = type_name.partition("(")
    if base.partition(" without")[0] not in _LOGGED.get(column.type, ()):
        return False
    match column.type:
        case ColumnType.DECIMAL:
            return rest == f"{column.metadata[0]},{column.metadata[1]})"
        case ColumnType.DATETIME | ColumnType.TIMESTAMP:
            return rest.partition(")")[0] == str(column.metadata[0])
        case ColumnType.SHORT | ColumnType.LONG | ColumnType.LONGLONG:
            return base == _LOGGED[column.type][column.unsigned]
    return True
