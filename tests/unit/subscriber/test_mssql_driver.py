"""Statements that are complete before pymssql sees them: names may hold what it takes for parameters."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.mssql.database import require_own_schema
from tranrepl.subscriber.mssql.driver import PymssqlDialect


class _Cursor:
    """Keeps what the driver would be given."""

    def __init__(self) -> None:
        self.executed: list[tuple[object, ...]] = []

    def execute(self, *given: object) -> None:
        self.executed.append(given)


def _executed(statement: sa.Executable, *parameters: dict[str, object]) -> list[tuple[object, ...]]:
    cursor: Any = _Cursor()
    dialect: sa.Dialect = PymssqlDialect(paramstyle="pyformat")
    compiled = str(statement.compile(dialect=dialect))  # type: ignore[attr-defined]
    if len(parameters) == 1:
        dialect.do_execute(cursor, compiled, parameters[0])
    else:
        dialect.do_executemany(cursor, compiled, parameters)
    executed: list[tuple[object, ...]] = cursor.executed
    return executed


def _table(name: str, column: str) -> sa.TableClause:
    return sa.table(quoted_name(name, quote=True), sa.column(quoted_name(column, quote=True)))


@pytest.mark.parametrize("name", ["%(value)s", "100%s", "a]%%b", "%(value)d%"])
def test_a_name_with_a_percent_sign_is_no_parameter(name: str) -> None:
    insert = sa.insert(_table(name, name)).values({name: sa.bindparam("value")})
    quoted = "[" + name.replace("]", "]]") + "]"
    expected = [(f"INSERT INTO {quoted} ({quoted}) VALUES (N'it''s %(value)s')",)]
    assert _executed(insert, {"value": "it's %(value)s"}) == expected
    assert _executed(insert, {"value": 1}, {"value": None}) == [
        (f"INSERT INTO {quoted} ({quoted}) VALUES (1)",),
        (f"INSERT INTO {quoted} ({quoted}) VALUES (NULL)",),
    ]


def test_statements_without_percent_signs_are_left_to_the_driver() -> None:
    insert = sa.insert(_table("t", "c")).values(c=sa.bindparam("value"))
    assert _executed(insert, {"value": "%%"}) == [("INSERT INTO [t] ([c]) VALUES (%(value)s)", {"value": "%%"})]


def test_a_percent_sign_of_a_text_stays_one() -> None:
    query = sa.select(_table("t", "c").c.c).where(sa.text("c like 'a%' and c > :value"))
    assert _executed(query, {"value": 1}) == [("SELECT [t].[c] \nFROM [t] \nWHERE c like 'a%' and c > 1",)]


def test_a_login_whose_default_schema_is_another_one_than_dbo_is_refused() -> None:
    dialect = PymssqlDialect()
    dialect.default_schema_name = "dbo"
    require_own_schema(dialect)
    dialect.default_schema_name = "staging"
    with pytest.raises(ConfigurationError, match="default schema is staging") as refused:
        require_own_schema(dialect)
    assert "WITH DEFAULT_SCHEMA = dbo" in (refused.value.report.remedy or "")
