"""TABLE_MAP events: a table as the binary log describes it before rows of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from tranrepl.errors import DataError
from tranrepl.model.names import TableName


class ColumnType(IntEnum):
    """Types of columns, by the log's numbers."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP = 17
    DATETIME = 18
    TIME = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    DECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    STRING = 254
    GEOMETRY = 255


_METADATA_BYTES = {
    ColumnType.FLOAT: 1,
    ColumnType.DOUBLE: 1,
    ColumnType.VARCHAR: 2,
    ColumnType.BIT: 2,
    ColumnType.TIMESTAMP: 1,
    ColumnType.DATETIME: 1,
    ColumnType.TIME: 1,
    ColumnType.BLOB_COMPRESSED: 1,
    ColumnType.VARCHAR_COMPRESSED: 2,
    ColumnType.VECTOR: 1,
    ColumnType.JSON: 1,
    ColumnType.DECIMAL: 2,
    ColumnType.BLOB: 1,
    ColumnType.STRING: 2,
    ColumnType.GEOMETRY: 1,
}
_BYTES = {
    ColumnType.TINY: 1,
    ColumnType.YEAR: 1,
    ColumnType.SHORT: 2,
    ColumnType.INT24: 3,
    ColumnType.DATE: 3,
    ColumnType.LONG: 4,
    ColumnType.FLOAT: 4,
    ColumnType.LONGLONG: 8,
    ColumnType.DOUBLE: 8,
    ColumnType.TIME: 3,
    ColumnType.TIMESTAMP: 4,
    ColumnType.DATETIME: 5,
}
"""The bytes of a value, without the fraction of its second."""
_NUMERIC = {
    ColumnType.TINY,
    ColumnType.SHORT,
    ColumnType.INT24,
    ColumnType.LONG,
    ColumnType.LONGLONG,
    ColumnType.FLOAT,
    ColumnType.DOUBLE,
    ColumnType.DECIMAL,
    ColumnType.YEAR,
}
"""Those that have a bit of SIGNEDNESS."""
_CHARACTER = {
    ColumnType.STRING,
    ColumnType.VARCHAR,
    ColumnType.BLOB,
    ColumnType.BLOB_COMPRESSED,
    ColumnType.VARCHAR_COMPRESSED,
}
_LABELLED = {ColumnType.ENUM, ColumnType.SET}


class Flavor(IntEnum):
    """Which of the two families wrote a log."""

    MARIADB = 1
    MYSQL = 2


_CHARACTER_OF = {
    Flavor.MARIADB: _CHARACTER | {ColumnType.GEOMETRY},
    Flavor.MYSQL: _CHARACTER | {ColumnType.VECTOR},
}
"""Which columns the lists of collations count."""


@dataclass(frozen=True, slots=True)
class LoggedColumn:
    """A column. `metadata` is as its type has it; `name` is empty where the log has no names."""

    type: ColumnType
    metadata: bytes
    nullable: bool
    name: str = ""
    unsigned: bool = False
    collation: int | None = None
    labels: tuple[bytes, ...] = ()
    """The values of an ENUM or SET, in the column's character set."""

    @property
    def length_bytes(self) -> int:
        """Return of how many bytes the length is that precedes a value; 0 where all values are as long."""
        match self.type:
            case ColumnType.VARCHAR | ColumnType.VARCHAR_COMPRESSED:
                return 1 if int.from_bytes(self.metadata, "little") < 256 else 2
            case ColumnType.STRING:
                return 1 if self.most_bytes < 256 else 2
            case (
                ColumnType.BLOB | ColumnType.BLOB_COMPRESSED | ColumnType.JSON | ColumnType.GEOMETRY | ColumnType.VECTOR
            ):
                return self.metadata[0]
            case _:
                return 0

    @property
    def most_bytes(self) -> int:
        """Return how long a CHAR or BINARY is at most, in bytes."""
        return (((self.metadata[0] & 0x30) ^ 0x30) << 4) | self.metadata[1]

    @property
    def bytes(self) -> int:
        """Return of how many bytes a value is; 0 where a length precedes it."""
        match self.type:
            case ColumnType.BIT:
                return self.metadata[1] + (self.metadata[0] > 0)
            case ColumnType.TIMESTAMP | ColumnType.DATETIME | ColumnType.TIME:
                return _BYTES[self.type] + self.fraction_bytes
            case ColumnType.DECIMAL:
                return decimal_bytes(self.metadata[0] - self.metadata[1]) + decimal_bytes(self.metadata[1])
            case ColumnType.ENUM | ColumnType.SET:
                return self.metadata[1]
            case _:
                return _BYTES.get(self.type, 0)

    @property
    def fraction_bytes(self) -> int:
        """Return of how many bytes the fraction of a second is."""
        return (self.metadata[0] + 1) // 2


_OF_REST = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_bytes(digits: int) -> int:
    """Return in how many bytes so many digits of a DECIMAL are, on one side of its point."""
    return digits // 9 * 4 + _OF_REST[digits % 9]


@dataclass(frozen=True)
class LoggedTable:
    """A table and all its columns, generated and invisible ones among them."""

    name: TableName
    columns: tuple[LoggedColumn, ...]

    @cached_property
    def has_names(self) -> bool:
        return all(it.name for it in self.columns)


class Reader:
    """Reads an event's fields one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        if len(found) < count:
            raise DataError("an event of the binary log is shorter than what it says of itself")
        self.at += count
        return found

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def packed(self) -> int:
        """Return an integer whose first byte says its length."""
        first = self.number(1)
        return first if first < 251 else self.number({252: 2, 253: 3, 254: 8}[first])

    def text(self) -> bytes:
        return self.take(self.packed())

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.data)


def read_table_map(body: bytes, flavor: Flavor) -> LoggedTable:
    """Return what a TABLE_MAP event says, from after its table's number on. Raises DataError for a type that is not
    known, or one that the log does not describe."""
    reader = Reader(body, 2)
    schema = reader.take(reader.number(1) + 1)[:-1].decode()
    table = reader.take(reader.number(1) + 1)[:-1].decode()
    name = TableName(schema, table)
    types = reader.take(reader.packed())
    metadata = Reader(reader.text())
    nullable = _bits_from_lowest(reader.take((len(types) + 7) // 8), len(types))
    columns = [_column(name, it, metadata, null) for it, null in zip(types, nullable, strict=True)]
    optional: dict[int, bytes] = {}
    while not reader.is_over:
        kind = reader.number(1)
        optional[kind] = reader.text()
    return LoggedTable(name, tuple(_described(columns, optional, flavor)))


def _column(table: TableName, number: int, metadata: Reader, nullable: bool) -> LoggedColumn:
    try:
        kind = ColumnType(number)
    except ValueError:
        raise DataError(
            f"table {table}: the binary log has a column of type {number}, whose values cannot be read",
            remedy="leave the table out, or give the column a type that can be: times of before MariaDB 5.3 are "
            "converted by `SET GLOBAL mysql56_temporal_format=ON; ALTER TABLE … FORCE`",
        ) from None
    own = metadata.take(_METADATA_BYTES.get(kind, 0))
    if kind is ColumnType.STRING and own[0] in (ColumnType.ENUM, ColumnType.SET):
        kind = ColumnType(own[0])
    return LoggedColumn(kind, own, nullable)


def _described(columns: list[LoggedColumn], optional: Mapping[int, bytes], flavor: Flavor) -> Iterator[LoggedColumn]:
    """Yield the columns with what the optional metadata say of them."""
    numeric = [at for at, it in enumerate(columns) if it.type in _NUMERIC]
    character = [at for at, it in enumerate(columns) if it.type in _CHARACTER_OF[flavor]]
    labelled = [at for at, it in enumerate(columns) if it.type in _LABELLED]
    unsigned = dict(zip(numeric, _bits_from_highest(optional.get(1, b""), len(numeric)), strict=False))
    collations = _collations(optional.get(2), optional.get(3), character)
    collations |= _collations(optional.get(10), optional.get(11), labelled)
    names = dict(enumerate(_texts(optional.get(4, b""))))
    sets, enums = _lists(optional.get(5, b"")), _lists(optional.get(6, b""))
    for at, it in enumerate(columns):
        labels: tuple[bytes, ...] = ()
        if it.type is ColumnType.SET:
            labels = next(sets, ())
        if it.type is ColumnType.ENUM:
            labels = next(enums, ())
        yield LoggedColumn(
            it.type,
            it.metadata,
            it.nullable,
            names.get(at, b"").decode(),
            unsigned.get(at, False),
            collations.get(at),
            labels,
        )


def _collations(default: bytes | None, each: bytes | None, columns: list[int]) -> dict[int, int]:
    """Return the columns' collations, from the form with a default or from the one with a number for each."""
    if each is not None:
        reader = Reader(each)
        return {at: reader.packed() for at in columns}
    if default is None:
        return {}
    reader = Reader(default)
    found = dict.fromkeys(columns, reader.packed())
    while not reader.is_over:
        at = columns[reader.packed()]
        found[at] = reader.packed()
    return found


def _texts(data: bytes) -> Iterator[bytes]:
    reader = Reader(data)
    while not reader.is_over:
        yield reader.text()


def _lists(data: bytes) -> Iterator[tuple[bytes, ...]]:
    reader = Reader(data)
    while not reader.is_over:
        yield tuple(reader.text() for _ in range(reader.packed()))


def _bits_from_lowest(data: bytes, count: int) -> list[bool]:
    return [bool(data[at // 8] >> at % 8 & 1) for at in range(count)]


def _bits_from_highest(data: bytes, count: int) -> list[bool]:
    return [bool(data[at // 8] << at % 8 & 0x80) for at in range(count if data else 0)]
