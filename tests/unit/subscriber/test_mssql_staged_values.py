"""What is bulk copied to SQL Server for cells of images, and what is left to serial apply."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tranrepl.model.source_types import source_type
from tranrepl.subscriber.base.staged_bulk import StagedColumn
from tranrepl.subscriber.batching.steps import MismatchError
from tranrepl.subscriber.mssql.catalogue import CatalogueColumn
from tranrepl.subscriber.mssql.staged_values import staged_column


def _staged(source: str, type_name: str, max_length: int = 4, scale: int = 0) -> StagedColumn[Any] | None:
    column = CatalogueColumn("c", type_name, max_length, 10, scale, True, "Latin1_General_BIN2", 1252, None, None, None)
    return staged_column(source_type(source), column)


def _values(staged: StagedColumn[Any] | None, *cells: str) -> list[Any]:
    assert staged is not None
    return list(staged.values(pa.array(cells, pa.string())))


def test_texts_stand_between_two_characters() -> None:
    # An empty one would be NULL, and blanks at the end would be cut off.
    wide, narrow = _staged("text", "nvarchar", 40), _staged("text", "varchar", 20)
    assert _values(wide, "", " ", r"\N", "\U0001f600", r"a\nb") == [
        *("xx".encode("utf-16-le"), "x x".encode("utf-16-le"), None),
        *("x\U0001f600x".encode("utf-16-le"), "xa\nbx".encode("utf-16-le")),
    ]
    assert _values(narrow, "", r"\N", "a ") == [b"xx", None, b"xa x"]
    assert wide is not None
    assert (wide.declaration, wide.expression("s.c")) == (
        "nvarchar(22) collate Latin1_General_BIN2 NULL",
        "substring(s.c, 2, len(s.c) - 2)",
    )


@pytest.mark.parametrize(
    ("source", "target", "cell"),
    [
        ("text", ("nvarchar", 20), "x" * 11),
        ("text", ("nvarchar", 20), "\U0001f600" * 6),
        ("text", ("varchar", 20), "é"),
        ("text", ("nchar", 20), "ends in a blank "),
        ("bytea", ("varbinary", 2), r"\\x010203"),
        ("bytea", ("binary", 2), r"\\x01"),
        ("bigint", ("int", 4), "2147483648"),
        ("integer", ("tinyint", 1), "-1"),
        ("boolean", ("bit", 1), "2"),
        ("numeric", ("decimal", 9, 2), "1.005"),
        ("numeric", ("decimal", 9, 2), "NaN"),
        ("double precision", ("float", 8), "Infinity"),
        ("timestamp without time zone", ("datetime2", 8, 3), "2024-01-01 00:00:00.1234"),
        ("timestamp without time zone", ("datetime", 8, 3), "1752-12-31 00:00:00"),
        ("timestamp without time zone", ("datetime2", 8, 6), "infinity"),
        ("timestamp without time zone", ("datetime2", 8, 6), "0044-03-15 00:00:00 BC"),
        ("timestamp with time zone", ("datetimeoffset", 10, 6), "2024-01-01 00:00:00+02"),
        ("text", ("uniqueidentifier", 16), "no uuid"),
        ("text", ("uniqueidentifier", 16), "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
    ],
)
def test_what_the_server_would_change_is_left_to_serial_apply(source: str, target: Any, cell: str) -> None:
    with pytest.raises(MismatchError):
        _values(_staged(source, *target), cell)


@pytest.mark.parametrize("type_name", ["xml", "sql_variant", "timestamp", "text", "geography", "hierarchyid"])
def test_other_types_have_no_way_in_bulk(type_name: str) -> None:
    assert _staged("text", type_name) is None


def test_numbers_and_moments_are_staged_as_they_are() -> None:
    assert _values(_staged("integer", "int"), "1", r"\N", "-7") == [1, None, -7]
    assert _values(_staged("boolean", "bit"), "t", "f", "1", "0", r"\N") == [1, 0, 1, 0, None]
    assert _values(_staged("double precision", "float", 8), "0.1", r"\N", "-1e-300") == [0.1, None, -1e-300]
    moments = _staged("timestamp with time zone", "datetimeoffset", 10, 6)
    assert _values(moments, "2024-01-01 00:00:00.5+00", r"\N") == [b"2024-01-01T00:00:00.5+00:00", None]
    assert _values(_staged("bytea", "varbinary", -1), r"\\x", r"\N", r"\\x00ff") == [b"\0", None, b"\0\0\xff"]
