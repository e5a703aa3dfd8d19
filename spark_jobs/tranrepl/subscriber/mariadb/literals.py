"""Cells of images as literals of MariaDB: what they are stored as is what `values.conversion` would have bound.

A column whose types leave that open has no way here. Cells that MariaDB would change to fit, without an error, are
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.model.row_images import NULL, contents
from tranrepl.model.source_types import Family, SourceType
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
)
from tranrepl.subscriber.batching.steps import MismatchError

Literals = Callable[[pa.StringArray], pa.StringArray]

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TEXTS = frozenset({"tinytext", "text", "mediumtext", "longtext", "json"})
_BLOBS = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
_WHOLE = frozenset({Family.SMALLINT, Family.INTEGER, Family.BIGINT})
_EXACT_AS_DOUBLE = frozenset({Family.REAL, Family.DOUBLE, Family.SMALLINT, Family.INTEGER})
_NO_NUMBER = frozenset({Family.BITS, Family.BOOLEAN, Family.BYTES})
_UTC = "+00"


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """A column as `information_schema.columns` has it."""

    name: str
    data_type: str
    """`varchar`"""
    column_type: str
    """`varchar(20)`"""
    charset: str | None
    collation: str | None
    length: int | None
    """Characters; of a binary column, bytes."""
    scale: int | None
    fraction_digits: int | None
    default: str | None
    extra: str


def literals(source: SourceType, target: ColumnDeclaration) -> Literals | None:
    """Return the function that makes literals for the column of cells of `source`; None where only bound values are
    exact.

    The function raises MismatchError for cells of which MariaDB would not keep each as it is, or refuse it.
    """
    kind = target.data_type
    if kind in _INTEGERS:
        return _integers(source)
    if kind in _TEXTS or kind == "varchar":
        return _texts(source, None if kind in _TEXTS else target.length)
    if kind == "char":
        return _fixed_texts(source, target.length)
    if kind in _BLOBS or kind == "varbinary":
        return _bytes(None if kind in _BLOBS else target.length) if source.family is Family.BYTES else None
    if kind == "decimal":
        return _decimals(source, target.scale or 0)
    if kind == "double":
        return _doubles(source) if target.scale is None else None
    if kind in ("date", "time", "datetime", "timestamp"):
        return _temporal(source.family, kind, target.fraction_digits or 0)
    return None


def quoted(cells: pa.StringArray) -> pa.StringArray:
    """Return a quoted string for each cell. An image's escapes are those of MariaDB's strings."""
    if (contents(cells) == ord("'")).any():
        cells = pc.replace_substring(cells, "'", "''")
    return _or_null(cells, pc.binary_join_element_wise("'", cells, "'", ""))


def hexadecimal(digits: pa.StringArray) -> pa.StringArray:
    """Return a string of bytes for each cell."""
    return pc.binary_join_element_wise("x'", digits, "'", "")


def _or_null(cells: pa.StringArray, given: pa.StringArray) -> pa.StringArray:
    null = pc.equal(cells, NULL)
    return pc.if_else(null, "NULL", given) if pc.any(null).as_py() else given


def _matching(pattern: str) -> Literals:
    def convert(cells: pa.StringArray) -> pa.StringArray:
        require_matching(cells, pattern)
        return quoted(cells)

    return convert


def _integers(source: SourceType) -> Literals | None:
    if source.family is Family.BOOLEAN:
        return _truth_values
    if source.family in _WHOLE:
        return quoted
    return None if source.family in _NO_NUMBER else _matching(WHOLE_NUMBER)


def _truth_values(cells: pa.StringArray) -> pa.StringArray:
    require_matching(cells, f"t|f|{WHOLE_NUMBER}")
    return quoted(pc.if_else(pc.equal(cells, "t"), "1", pc.if_else(pc.equal(cells, "f"), "0", cells)))


def _decimals(source: SourceType, scale: int) -> Literals | None:
    if source.family in _NO_NUMBER:
        return None
    fits = _matching(decimal_pattern(source.family, scale))
    if source.family is Family.MONEY:
        return lambda cells: fits(pc.replace_substring_regex(cells, "[$,]", ""))
    return fits


def _doubles(source: SourceType) -> Literals | None:
    return _matching("-?[0-9.]+(e[+-]?[0-9]+)?") if source.family in _EXACT_AS_DOUBLE else None


def _temporal(family: Family, kind: str, digits: int) -> Literals | None:
    second = fraction(digits)
    match family, kind:
        case Family.DATE, "date" | "datetime" | "timestamp":
            return _matching(DATE)
        case Family.TIME, "time":
            return _matching(TIME + second)
        case Family.TIMESTAMP, "datetime" | "timestamp":
            return _matching(f"{DATE} {TIME}{second}")
        case Family.TIMESTAMP_WITH_ZONE, "datetime" | "timestamp":
            return _in_utc(f"{DATE} {TIME}{second}")
        case _:
            return None


def _in_utc(pattern: str) -> Literals:
    """Return the conversion of moments in UTC, in which the Publisher is read."""

    def convert(cells: pa.StringArray) -> pa.StringArray:
        require_matching(cells, pattern + IN_UTC)
        return quoted(pc.replace_substring(cells, _UTC, ""))

    return convert


def _texts(source: SourceType, length: int | None) -> Literals:
    declared = 36 if source.family is Family.UUID else source.length
    if length is None or (declared is not None and declared <= length and _has_length(source)):
        return quoted

    def convert(cells: pa.StringArray) -> pa.StringArray:
        _require_length(cells, length)
        return quoted(cells)

    return convert


def _has_length(source: SourceType) -> bool:
    return source.family in (Family.TEXT, Family.CHARACTER, Family.UUID)


def _fixed_texts(source: SourceType, length: int | None) -> Literals:
    """Return the conversion of texts of fixed length: what is padded loses its blanks at the end."""

    def convert(cells: pa.StringArray) -> pa.StringArray:
        if source.family is Family.CHARACTER:
            cells = pc.utf8_rtrim(cells, " ")
        elif pc.any(pc.ends_with(cells, " ")).as_py():
            raise MismatchError("a value may not fit as it is")
        _require_length(cells, length or 0)
        return quoted(cells)

    return convert


def _require_length(cells: pa.StringArray, length: int) -> None:
    """Raise MismatchError where a text is too long: MariaDB cuts off blanks that make it so."""
    longest = pc.max(pc.utf8_length(cells)).as_py()
    if longest is not None and longest > length:
        plain = pc.replace_substring_regex(cells, r"\\.", " ")
        if pc.max(pc.utf8_length(plain)).as_py() > length:
            raise MismatchError("a value may not fit as it is")


def _bytes(length: int | None) -> Literals:
    def convert(cells: pa.StringArray) -> pa.StringArray:
        require_matching(cells, BYTES)
        digits = pc.replace_substring(cells, BYTES_PREFIX, "", max_replacements=1)
        if length is not None and (pc.max(pc.binary_length(digits)).as_py() or 0) > 2 * max(length, 1):
            raise MismatchError("a value may not fit as it is")
        return _or_null(cells, hexadecimal(digits))

    return convert
