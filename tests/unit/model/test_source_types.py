"""PostgreSQL's spellings of types, taken apart."""

from __future__ import annotations

import pytest

from tranrepl.model.source_types import Family, SourceType, decimal_digits, source_type


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("integer", (Family.INTEGER, None, None, None)),
        ("numeric", (Family.NUMERIC, None, None, None)),
        ("numeric(10,2)", (Family.NUMERIC, None, 10, 2)),
        ("numeric(3,-2)", (Family.NUMERIC, None, 3, -2)),
        ("numeric(10,2)[]", (Family.OTHER, None, None, None)),
        ("character varying(20)", (Family.TEXT, 20, None, None)),
        ("character varying", (Family.TEXT, None, None, None)),
        ("character(5)", (Family.CHARACTER, 5, None, None)),
        ('"char"', (Family.TEXT, None, None, None)),
        ("time(3) without time zone", (Family.TIME, None, None, None)),
        ("time with time zone", (Family.OTHER, None, None, None)),
        ("timestamp(3) with time zone", (Family.TIMESTAMP_WITH_ZONE, None, None, None)),
        ("timestamp without time zone", (Family.TIMESTAMP, None, None, None)),
        ("bit varying(9)", (Family.BITS, None, None, None)),
        ("interval day to second(3)", (Family.OTHER, None, None, None)),
        ("public.integer", (Family.OTHER, None, None, None)),
        ('sales."Odd [type](2)"', (Family.OTHER, None, None, None)),
    ],
)
def test_a_spelling_is_taken_apart(spelling: str, expected: tuple[Family, int | None, int | None, int | None]) -> None:
    found = source_type(spelling)
    assert (found.family, found.length, found.precision, found.scale) == expected


@pytest.mark.parametrize(
    ("precision", "scale", "expected"), [(10, 2, (10, 2)), (3, 5, (5, 5)), (3, -2, (5, 0)), (None, None, None)]
)
def test_decimals_have_room_for_every_value(
    precision: int | None, scale: int | None, expected: tuple[int, int] | None
) -> None:
    declared = SourceType("numeric", Family.NUMERIC, precision=precision, scale=scale)
    assert decimal_digits(declared) == expected
