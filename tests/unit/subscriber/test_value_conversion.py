"""Text forms as values for columns of databases that no test run has at hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mssql as untyped

from tranrepl.connections import from_environment
from tranrepl.errors import ConfigurationError
from tranrepl.model.source_types import source_type
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.mssql.database import SqlServer
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.row_filter_translation import translated_filter
from tranrepl.subscriber.sqlite.database import Sqlite
from tranrepl.subscriber.value_conversion import UnfitValueError, conversion

# SQLAlchemy leaves most of it without types.
mssql: Any = untyped


_SOME_UUID = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"


def _varchar(length: int, code_page: int) -> Any:
    found: Any = sa.VARCHAR(length)
    found.code_page = code_page
    return found


def _sql_server(source: str, reflected: Any, text: str) -> Any:
    database = SqlServer()
    target = database.described_type(reflected, database.dialect())
    return conversion(source_type(source), target, database.binding).convert(text)


@pytest.mark.parametrize(
    ("source", "reflected", "text", "value"),
    [
        ("boolean", mssql.BIT(), "t", 1),
        ("boolean", mssql.NVARCHAR(5), "t", "t"),
        ("numeric(10,2)", sa.DECIMAL(10, 2), "1.10", Decimal("1.10")),
        ("money", sa.DECIMAL(19, 2), "-$1,234.50", Decimal("-1234.50")),
        ("timestamp without time zone", mssql.DATETIME2(), "2024-01-01 00:00:00.123456", "2024-01-01T00:00:00.123456"),
        ("timestamp without time zone", sa.DATETIME(), "2024-01-01 00:00:00.12", "2024-01-01T00:00:00.120"),
        ("timestamp without time zone", sa.DATETIME(), "1753-01-01 00:00:00.997", "1753-01-01T00:00:00.997"),
        ("timestamp without time zone", mssql.SMALLDATETIME(), "2079-06-06 23:59:00", "2079-06-06T23:59:00"),
        ("timestamp with time zone", mssql.DATETIMEOFFSET(6), "2024-01-01 02:00:00+02", "2024-01-01T00:00:00+00:00"),
        ("timestamp with time zone", mssql.DATETIME2(6), "2024-01-01 02:00:00+02", "2024-01-01T00:00:00"),
        ("date", sa.DATE(), "2024-02-29", "2024-02-29"),
        ("time without time zone", mssql.TIME(6), "23:59:59.999999", "23:59:59.999999"),
        (
            "uuid",
            mssql.UNIQUEIDENTIFIER(),
            "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ),
        ("bytea", mssql.VARBINARY("max"), "\\x00ff", b"\x00\xff"),
        ("text", mssql.NVARCHAR(), "é", "é"),
        ("text", sa.VARCHAR(10), "plain", "plain"),
        ("text", _varchar(1, 1252), "é", "é"),
        ("text", _varchar(4, 65001), "😀", "😀"),
        ("text", _varchar(2, 932), "\u65e5", "\u65e5"),
        ("text", mssql.NVARCHAR(2), "😀", "😀"),
        (
            "text",
            mssql.UNIQUEIDENTIFIER(),
            "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ),
        ("numeric", mssql.MONEY(), "1.2345", Decimal("1.2345")),
        ("integer", mssql.TINYINT(), "255", 255),
        ("character(5)", mssql.NCHAR(5), "ab   ", "ab"),
        ("real", sa.REAL(), "16777216", 16777216.0),
    ],
)
def test_a_value_becomes_what_sql_servers_column_takes(source: str, reflected: Any, text: str, value: Any) -> None:
    found = _sql_server(source, reflected, text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("source", "reflected", "text"),
    [
        ("integer", mssql.BIT(), "2"),
        ("numeric", sa.DECIMAL(10, 2), "NaN"),
        ("numeric", sa.DECIMAL(10, 2), "1.001"),
        ("double precision", mssql.FLOAT(53), "-Infinity"),
        ("double precision", sa.REAL(), "0.1"),
        ("timestamp without time zone", sa.DATETIME(), "2024-01-01 00:00:00.124"),
        ("timestamp without time zone", sa.DATETIME(), "2024-01-01 00:00:00.0033"),
        ("timestamp without time zone", sa.DATETIME(), "1752-12-31 23:59:59"),
        ("timestamp without time zone", mssql.SMALLDATETIME(), "2024-01-01 00:00:01"),
        ("timestamp with time zone", mssql.SMALLDATETIME(), "2079-06-06 23:00:00-01"),
        ("numeric", mssql.MONEY(), "1.23456"),
        ("numeric", mssql.SMALLMONEY(), "1000000"),
        ("text", mssql.NVARCHAR(1), "😀"),
        ("text", _varchar(10, 1252), "\u65e5"),
        ("text", _varchar(3, 65001), "😀"),
        ("text", _varchar(1, 932), "\u65e5"),
        ("text", mssql.UNIQUEIDENTIFIER(), "f81d4fae-7dec-11d0-a765-00a0c91e6bf6 and more"),
        ("text", mssql.UNIQUEIDENTIFIER(), "{f81d4fae-7dec-11d0-a765-00a0c91e6bf6}"),
        ("timestamp without time zone", mssql.DATETIME2(0), "2024-01-01 00:00:00.5"),
        ("timestamp without time zone", mssql.DATETIME2(6), "infinity"),
        ("timestamp without time zone", mssql.DATETIME2(6), "0044-03-15 12:00:00 BC"),
        ("date", sa.DATE(), "10000-01-01"),
        ("time without time zone", mssql.TIME(6), "24:00:00"),
        ("text", sa.VARCHAR(10), "é"),
        ("text", mssql.NVARCHAR(3), "abcd"),
        ("bit(3)", sa.INTEGER(), "101"),
        ("bytea", mssql.VARBINARY(1), "\\x0000"),
    ],
)
def test_a_value_that_sql_servers_column_would_change_is_refused(source: str, reflected: Any, text: str) -> None:
    with pytest.raises(UnfitValueError):
        _sql_server(source, reflected, text)


@pytest.mark.parametrize(
    ("uri", "title", "procedures"),
    [
        ("postgres://me@host/db", "PostgreSQL", True),
        ("mariadb://me@host/db", "MariaDB", True),
        ("mysql://me@host/db", "MariaDB", True),
        ("mssql://me@host/db", "SQL Server", True),
        ("sqlite:////data/subscriber.db", "SQLite", False),
        ("oracle://me@host/db", "oracle", False),
    ],
)
def test_a_connections_kind_tells_what_its_database_can(uri: str, title: str, procedures: bool) -> None:
    connection = from_environment("subscriber", {"AIRFLOW_CONN_SUBSCRIBER": uri})
    able = dialect_of(connection).capabilities
    assert (able.title, able.procedures) == (title, procedures)


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////data/subscriber.db",
        '{"conn_type": "sqlite", "host": "/data/subscriber.db"}',
        '{"conn_type": "sqlite", "schema": "/data/subscriber.db"}',
    ],
)
def test_a_sqlite_file_is_found_in_every_form_of_connection(text: str) -> None:
    connection = from_environment("subscriber", {"AIRFLOW_CONN_SUBSCRIBER": text})
    assert Sqlite().url(connection).database == "/data/subscriber.db"


def test_any_other_database_keeps_its_standard_types() -> None:
    database = SqlDatabase("oracle")
    spelled = {
        spelling: database.column_type(source_type(spelling), indexed=False).compile(
            dialect=sa.create_mock_engine("sqlite://", lambda *_: None).dialect
        )
        for spelling in (
            "integer",
            "numeric",
            "numeric(10,2)",
            "character varying(20)",
            "text",
            "bytea",
            "uuid",
            "json",
        )
    }
    assert spelled == {
        "integer": "INTEGER",
        "numeric": "NUMERIC(38, 15)",
        "numeric(10,2)": "NUMERIC(10, 2)",
        "character varying(20)": "VARCHAR(20)",
        "text": "TEXT",
        "bytea": "BLOB",
        "uuid": "VARCHAR(36)",
        "json": "TEXT",
    }


@pytest.mark.parametrize(
    ("text", "sql_name", "expected"),
    [
        ('Rating > 1 AND "Na""me" LIKE \'a:b%\'', "mysql", "`rating` > 1 AND `Na\"me` LIKE 'a\\:b%'"),
        ("a || b = 'ab'", "mysql", "CONCAT(`a`, `b`) = 'ab'"),
        ("active AND NOT closed", "sqlite", '"active" AND NOT "closed"'),
        ("note IS DISTINCT FROM 'x'", "mysql", "NOT `note` <=> 'x'"),
        ("false", "mysql", "FALSE"),
        ("true", "sqlite", "TRUE"),
        ("NOT false AND 1 = 1", "tsql", "NOT (1 = 0) AND 1 = 1"),
    ],
)
def test_a_filter_is_said_in_the_subscribers_sql(text: str, sql_name: str, expected: str) -> None:
    assert translated_filter(text, sql_name, "t") == expected


def test_a_filter_that_would_mean_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a division gives another result there"):
        translated_filter("rating / 2 > 1", "mysql", "t")
    with pytest.raises(ConfigurationError, match="an operator with a schema"):
        translated_filter("kind OPERATOR(ext.=) 'x'", "mysql", "t")
    for constant in ("'t'", "NULL", "(NULL)"):
        with pytest.raises(ConfigurationError, match="a constant is a condition in PostgreSQL only"):
            translated_filter(constant, "mysql", "t")
