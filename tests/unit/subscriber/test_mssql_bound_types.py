"""Values as pymssql writes them into a statement, and as SQL Server reads them there."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
from hypothesis import given, strategies as st
from pymssql._mssql import quote_simple_value

from tranrepl.subscriber.mssql.column_types import FloatingPoint, Moment, Text
from tranrepl.subscriber.mssql.database import SqlServer

_DIALECT = sa.make_url("mssql+pymssql://").get_dialect()()


def _read(constant: str) -> str:
    """Read a constant as the server does: a backslash at the end of a line goes, with the end of the line."""
    return re.sub(r"\\\r?\n", "", constant.removeprefix("N'").removesuffix("'")).replace("''", "'")


@given(st.text(alphabet="\\\r\na'", max_size=12))
def test_a_text_is_read_as_it_is_whatever_its_lines_end_with(text: str) -> None:
    bound = Text().process_bind_param(text, _DIALECT)
    assert _read(quote_simple_value(bound).decode()) == text


@pytest.mark.parametrize(
    ("value", "constant"), [(0.1, b"0.1e0"), (-0.0, b"-0.0e0"), (16777217.0, b"16777217.0e0"), (1e-45, b"1e-45")]
)
def test_a_float_is_no_decimal_to_the_server(value: float, constant: bytes) -> None:
    assert quote_simple_value(FloatingPoint().process_bind_param(value, _DIALECT)) == constant


@pytest.mark.parametrize("bind", [Text(), sa.String(), sa.Unicode()], ids=["Text", "String", "Unicode"])
def test_a_text_of_ddl_is_a_national_constant(bind: sa.types.TypeEngine[str]) -> None:
    made = SqlServer().constant("漢 50% 'x' y", bind)
    assert made is not None
    assert str(made.compile(dialect=SqlServer().dialect())) == "N'漢 50% ''x'' y'"


def test_null_stays_null() -> None:
    assert [it.process_bind_param(None, _DIALECT) for it in (Text(), FloatingPoint(), Moment())] == [None] * 3


def test_a_moment_is_a_constant_without_a_prefix() -> None:
    bound = Moment().process_bind_param("2024-01-01T00:00:00+00:00", _DIALECT)
    assert quote_simple_value(bound) == b"'2024-01-01T00:00:00+00:00'"
