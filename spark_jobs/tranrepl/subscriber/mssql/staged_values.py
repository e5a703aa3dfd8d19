"""Cells of images as what is bulk copied into a staging table, and the T-SQL that makes them the column's values.

What a column is given is what `value_conversion` would have bound. Bulk copy takes a value of no bytes for NULL, and
FreeTDS cuts blanks at the end: texts stand between two characters, binary values behind a byte, which T-SQL takes away.
What is not a number travels as text, and the server converts it. A column whose types leave open what is stored has no
way here.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from tranrepl.model.row_images import contents
from tranrepl.model.source_types import Family, SourceType
from tranrepl.subscriber.base.staged_bulk import StagedColumn
from tranrepl.subscriber.batching.cell_values import (
    BYTES,
    BYTES_PREFIX,
    DATE,
    IN_UTC,
    TIME,
    WHOLE_NUMBER,
    decimal_pattern,
    fraction,
    require_matching,
    unescaped,
    without_null,
)
from tranrepl.subscriber.batching.steps import MismatchError
from tranrepl.subscriber.mssql.catalogue import CatalogueColumn
from tranrepl.subscriber.value_conversion import UUID_FORM


def bulk_copy(session: sa.Connection, table: str, columns: Sequence[Sequence[Any]]) -> None:
    """Copy rows, given by their columns, into a table of the session's own, in the order of its columns.

    Raises what the server or FreeTDS says as SQLAlchemy does: pymssql raises it as it is.
    """
    import pymssql
    from pymssql import _mssql

    driver: Any = session.connection.dbapi_connection
    try:
        # All of it is one batch: a batch is a statement. Of a name that begins with # pymssql would ask another
        # database's catalogue; nothing here depends on the answer.
        driver.bulk_copy(f"tempdb..{table}", zip(*columns, strict=True), batch_size=max(1, len(columns[0])))
    except _mssql.MSSQLException as error:
        raised: Any = pymssql.OperationalError(*error.args)
        lost = session.dialect.is_disconnect(raised, driver, None)
        raise OperationalError("bulk copy", None, raised, connection_invalidated=lost) from error


encoded: Any = type("unicode", (bytes,), {"__slots__": (), "__doc__": "A text's bytes, as the column stores them."})
"""Makes bytes what pymssql copies as they are: it goes by the name of a value's class, and FreeTDS encodes nothing. A
`str` it would encode by what the catalogue says of the table's columns, which not every server says of this one."""


Values = Sequence[Any]
"""What bulk copy takes for a column, one a row."""
_Convert = Callable[[pa.StringArray], Values]

_INTEGERS = {"tinyint": (0, 2**8 - 1), "smallint": (-(2**15), 2**15 - 1), "int": (-(2**31), 2**31 - 1)}
_BIGINT = (-(2**63), 2**63 - 1)
_WHOLE = frozenset({Family.SMALLINT, Family.INTEGER, Family.BIGINT})
_EXACT_AS_DOUBLE = frozenset({Family.REAL, Family.DOUBLE, Family.SMALLINT, Family.INTEGER})
_NO_NUMBER = frozenset({Family.BITS, Family.BOOLEAN, Family.BYTES})
_NUMBER: Final = "-?[0-9.]+(e[+-]?[0-9]+)?"
_HUNDREDTHS = 2
"""Digits of a second that `datetime` keeps; of the third, only some values."""
_FIRST_DATETIME = "1753"
_MARK: Final = "x"
"""Stands before and after every text."""
_FOUR_BYTES = 0xF0
"""The least first byte, in UTF-8, of a character beyond the basic plane."""
_LONGEST = {"nvarchar": 4000, "varchar": 8000, "varbinary": 8000}
_REST: Final = 2**31 - 1
"""A length that no value has."""


def staged_column(source: SourceType, target: CatalogueColumn) -> StagedColumn[Values] | None:
    """Return how cells of `source` are staged for the column; None where only bound values are exact."""
    staged = _staged(source, target)
    if staged is None:
        return None
    declaration, convert, expression = staged
    return StagedColumn(
        target.name,
        f"{declaration} NULL",
        convert,
        spelled=target.collation is not None,
        expression=expression,
        identity=target.identity is not None,
    )


_Staged = tuple[str, _Convert, Callable[[str], str]]
"""The staging column's type, what fills it, and what its value is in the destination."""


def _staged(source: SourceType, target: CatalogueColumn) -> _Staged | None:
    match target.type_name:
        case "bit" | "tinyint" | "smallint" | "int" | "bigint":
            return _integers(source, target.type_name)
        case "decimal" | "numeric":
            return _decimals(source, f"decimal({target.precision}, {target.scale})", target.scale)
        case "money" | "smallmoney":
            return _decimals(source, target.type_name, target.scale)
        case "float" | "real":
            return _floats(source, target.type_name)
        case "date" | "time" | "datetime2" | "datetime" | "datetimeoffset":
            return _temporal(source.family, target)
        case "uniqueidentifier":
            return _as_ascii(_matching(UUID_FORM), "uniqueidentifier", 36)
        case "char" | "varchar" | "nchar" | "nvarchar":
            return _texts(source, target)
        case "binary" | "varbinary" if source.family is Family.BYTES:
            return _binary(target)
        case _:
            return None


def _itself(name: str) -> str:
    return name


def _matching(pattern: str) -> _Convert:
    def convert(cells: pa.StringArray) -> Values:
        require_matching(cells, pattern)
        return _as_bytes(unescaped(cells))

    return convert


def _listed(column: pa.Array) -> Values:
    values: list[Any] = column.to_pylist()
    return values


def _as_ascii(convert: _Convert, to: str, length: int = 100) -> _Staged:
    return f"varchar({length})", convert, lambda name: f"convert({to}, {name})"


# Numbers


def _integers(source: SourceType, kind: str) -> _Staged | None:
    if source.family is Family.BOOLEAN:
        return "tinyint", _truth_values, _itself
    if source.family in _NO_NUMBER or kind == "bit":
        return None
    least, greatest = _INTEGERS.get(kind, _BIGINT)

    def convert(cells: pa.StringArray) -> Values:
        if source.family not in _WHOLE:
            require_matching(cells, WHOLE_NUMBER)
        try:
            numbers = unescaped(cells).cast(pa.int64())
        except pa.ArrowInvalid:
            raise MismatchError("a value may not fit as it is") from None
        found = pc.min_max(numbers)
        if found["min"].is_valid and not (least <= found["min"].as_py() and found["max"].as_py() <= greatest):
            raise MismatchError("a value may not fit as it is")
        return _listed(numbers)

    return kind, convert, _itself


def _truth_values(cells: pa.StringArray) -> Values:
    require_matching(cells, "[tf01]")
    found = unescaped(cells)
    return _listed(pc.or_(pc.equal(found, "t"), pc.equal(found, "1")).cast(pa.int8()))


def _decimals(source: SourceType, to: str, scale: int) -> _Staged | None:
    if source.family in _NO_NUMBER:
        return None
    fits = _matching(decimal_pattern(source.family, scale))
    if source.family is not Family.MONEY:
        return _as_ascii(fits, to)
    return _as_ascii(lambda cells: fits(pc.replace_substring_regex(cells, "[$,]", "")), to)


def _floats(source: SourceType, kind: str) -> _Staged | None:
    if source.family is Family.REAL:
        # The text names a 4-byte float by the fewest digits.
        return ("float", _floats_of(pa.float32()), _itself) if kind == "real" else ("float", _doubles, _itself)
    return ("float", _doubles, _itself) if source.family in _EXACT_AS_DOUBLE and kind == "float" else None


def _doubles(cells: pa.StringArray) -> Values:
    return _floats_of(pa.float64())(cells)


def _floats_of(kind: pa.DataType) -> _Convert:
    def convert(cells: pa.StringArray) -> Values:
        require_matching(cells, _NUMBER)
        numbers = unescaped(cells).cast(kind).cast(pa.float64())
        if not pc.all(pc.is_finite(numbers), min_count=0).as_py():
            raise MismatchError("a value may not fit as it is")
        return _listed(numbers)

    return convert


# Dates and times


def _temporal(family: Family, target: CatalogueColumn) -> _Staged | None:
    kind = target.type_name
    digits = _HUNDREDTHS if kind == "datetime" else target.scale
    moment = f"{DATE} {TIME}{fraction(digits)}"
    to = "date" if kind == "date" else f"{'datetime2' if kind == 'datetime' else kind}({target.scale})"
    match family, kind:
        case Family.DATE, "date" | "datetime2":
            convert = _moments(DATE)
        case Family.TIME, "time":
            convert = _matching(TIME + fraction(digits))
        case Family.TIMESTAMP, "datetime2" | "datetime":
            convert = _moments(moment)
        case Family.TIMESTAMP_WITH_ZONE, "datetime2" | "datetime":
            convert = _moments(moment + IN_UTC, zone="")
        case Family.TIMESTAMP_WITH_ZONE, "datetimeoffset":
            convert = _moments(moment + IN_UTC, zone="+00:00")
        case _:
            return None
    if kind != "datetime":
        return _as_ascii(convert, to)
    declared, converted, expression = _as_ascii(_from_1753(convert), to)
    return declared, converted, lambda name: f"convert(datetime, {expression(name)})"


def _moments(pattern: str, zone: str | None = None) -> _Convert:
    """Return the conversion to ISO 8601, which every language of a session reads alike. Moments with a zone are in
    UTC, in which the Publisher is read."""

    def convert(cells: pa.StringArray) -> Values:
        require_matching(cells, pattern)
        written = unescaped(cells)
        if zone is not None:
            written = pc.replace_substring(written, "+00", zone)
        return _as_bytes(pc.replace_substring(written, " ", "T"))

    return convert


def _from_1753(convert: _Convert) -> _Convert:
    """Return the conversion for a type without earlier dates: the server would end the transaction."""

    def converted(cells: pa.StringArray) -> Values:
        first = pc.min(unescaped(cells)).as_py()
        if first is not None and first < _FIRST_DATETIME:
            raise MismatchError("a value may not fit as it is")
        return convert(cells)

    return converted


# Texts and binary values


def _length(column: CatalogueColumn) -> int | None:
    """Return the length in bytes, or in code units of UTF-16; None without a bound."""
    if column.max_length < 0:
        return None
    return column.max_length // 2 if column.type_name in ("nchar", "nvarchar") else column.max_length


def _texts(source: SourceType, target: CatalogueColumn) -> _Staged:
    kind, length = target.type_name, _length(target)
    staged = kind if kind.endswith("varchar") else kind.replace("char", "varchar")
    only_ascii, is_fixed = not kind.startswith("n"), not kind.endswith("varchar")

    def convert(cells: pa.StringArray) -> Values:
        texts = unescaped(cells)
        if is_fixed:
            texts = _without_padding(source, texts)
        if only_ascii and not pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
            raise MismatchError("a value may not fit as it is")
        _require_length(texts, length)
        marked = pc.binary_join_element_wise(_MARK, texts, _MARK, "")
        return _as_bytes(marked) if only_ascii else _as_utf_16(marked)

    declared = f"{staged}({_longer(staged, length, 2)}) collate {target.collation}"
    return declared, convert, lambda name: f"substring({name}, 2, len({name}) - 2)"


def _as_utf_16(texts: pa.StringArray) -> Values:
    """Return texts as a Unicode column has them, all encoded at once."""
    units = pc.fill_null(_utf_16_length(texts), 0).to_numpy()
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(2 * units, dtype=np.int32)])
    content = contents(texts).tobytes().decode().encode("utf-16-le")
    utf_16 = pa.BinaryArray.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(content)])
    return _as_bytes(pc.if_else(pc.is_valid(texts), utf_16, pa.scalar(None, pa.binary())))


def _as_bytes(texts: pa.StringArray | pa.BinaryArray) -> Values:
    content = pc.fill_null(texts.cast(pa.binary()), b"").to_pylist()
    values = np.fromiter(map(encoded, content), dtype=np.object_, count=len(content))
    values[pc.is_null(texts).to_numpy(zero_copy_only=False)] = None
    listed: list[Any] = values.tolist()
    return listed


def _utf_16_length(texts: pa.StringArray) -> pa.Int32Array:
    """Return the lengths in code units."""
    if (contents(texts) >= _FOUR_BYTES).any():
        return pc.add(pc.utf8_length(texts), pc.count_substring_regex(texts, "[\U00010000-\U0010ffff]"))
    return pc.utf8_length(texts)


def _without_padding(source: SourceType, texts: pa.StringArray) -> pa.StringArray:
    """Return texts for a type that pads them. Raises MismatchError for those that end in a blank of their own."""
    if source.family is Family.CHARACTER:
        return pc.utf8_rtrim(texts, " ")
    if pc.any(pc.ends_with(texts, " ")).as_py():
        raise MismatchError("a value may not fit as it is")
    return texts


def _require_length(texts: pa.StringArray, length: int | None) -> None:
    """Raise MismatchError where a text is too long in code units of UTF-16: the server cuts off blanks that make it
    so."""
    if length is None or (pc.max(pc.binary_length(texts)).as_py() or 0) <= length:
        return
    if pc.max(_utf_16_length(texts)).as_py() > length:
        raise MismatchError("a value may not fit as it is")


def _longer(kind: str, length: int | None, more: int) -> str:
    return "max" if length is None or length + more > _LONGEST[kind] else str(length + more)


def _binary(target: CatalogueColumn) -> _Staged:
    length = _length(target)

    def convert(cells: pa.StringArray) -> Values:
        require_matching(cells, BYTES)
        digits = pc.replace_substring(without_null(cells), BYTES_PREFIX, "00", max_replacements=1)
        lengths = pc.min_max(pc.binary_length(digits))
        if length is not None and lengths["max"].is_valid:
            shortest = length if target.type_name == "binary" else 0
            if not 2 + 2 * shortest <= lengths["min"].as_py() <= lengths["max"].as_py() <= 2 + 2 * length:
                raise MismatchError("a value may not fit as it is")
        return _listed(_decoded(digits))

    declared = f"varbinary({_longer('varbinary', length, 1)})"
    return declared, convert, lambda name: f"substring({name}, 2, {_REST if length is None else length})"


def _decoded(digits: pa.StringArray) -> pa.BinaryArray:
    """Return the bytes that hexadecimal digits spell."""
    filled = pc.fill_null(digits, "")
    offsets = np.frombuffer(filled.buffers()[1], dtype=np.int32)[filled.offset : filled.offset + len(filled) + 1]
    content = binascii.unhexlify(contents(filled).tobytes())
    places = ((offsets - offsets[0]) // 2).astype(np.int32)
    decoded = pa.BinaryArray.from_buffers(pa.binary(), len(filled), [None, pa.py_buffer(places), pa.py_buffer(content)])
    return pc.if_else(pc.is_valid(digits), decoded, pa.scalar(None, pa.binary()))
