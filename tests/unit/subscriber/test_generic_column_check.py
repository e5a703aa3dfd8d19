"""Columns of a Subscriber's table that cannot take what is published."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.mssql.base import ischema_names

from support.command_history import Column, table_description
from support.subscribers import KEY
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.catalogue import Destination
from tranrepl.subscriber.base.column_check import column_problems
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.capabilities import NameCase
from tranrepl.subscriber.mssql.database import SqlServer

_ANY = SqlDatabase("oracle")
_NAME = TableName("dbo", "item")


def _problems(reflected: dict[str, Any], database: SqlDatabase = _ANY, **settings: Any) -> list[str]:
    n: Any = {"name": "n", "type": sa.INTEGER(), "nullable": True, "default": None, **reflected}
    found = Destination({"n": n}, ())
    article = Article.model_validate({"source": _NAME, **settings})
    (column,) = table_description(_NAME, [Column("n", "integer", key=1)]).columns
    return [it.message for it in column_problems(KEY, article, None, database, found, column)]


_IDENTITY = {"identity": {"start": 1, "increment": 1}}
_CUSTOM = {"ins_cmd": "CALL my_insert", "upd_cmd": "CALL my_update"}


@pytest.mark.parametrize("settings", [{}, {"ins_cmd": "SQL", "upd_cmd": "NONE"}, {"ins_cmd": "CALL my_insert"}])
def test_an_identity_that_takes_no_value_is_refused(settings: dict[str, Any]) -> None:
    (message,) = _problems(_IDENTITY, **settings)
    assert message.startswith("article dbo.item: Subscriber reporting: column 'n' of dbo.item is an identity")


@pytest.mark.parametrize("settings", [_CUSTOM, {"ins_cmd": "NONE", "upd_cmd": "NONE"}])
def test_an_identity_that_is_not_set_is_no_problem(settings: dict[str, Any]) -> None:
    assert _problems(_IDENTITY, **settings) == []


def test_an_identity_that_takes_values_is_a_plain_column() -> None:
    assert _problems({"identity": {"always": False, "start": 1, "increment": 1}}) == []
    assert _problems({"autoincrement": True}) == []


def test_an_identity_is_no_problem_where_inserts_may_set_it() -> None:
    assert _problems(_IDENTITY, SqlServer()) == []


@pytest.mark.parametrize(
    ("reflected", "reason"),
    [
        (ischema_names["timestamp"](), "is a rowversion, to which the server itself gives values"),
        (ischema_names["sql_variant"](), "is a sql_variant, whose values each have a type of their own"),
        (sa.types.NullType(), "is of a type without a text form"),
    ],
)
def test_a_column_that_takes_no_value_of_the_publishers_is_refused(reflected: Any, reason: str) -> None:
    (message,) = _problems({"type": reflected}, SqlServer())
    assert message.startswith(f"article dbo.item: Subscriber reporting: column 'n' of dbo.item {reason}")
    assert _problems({"type": reflected}, SqlServer(), **_CUSTOM) == []


@pytest.mark.parametrize(
    ("published", "spelled"),
    [
        (["VendorID", "name"], ["VendorID", "name", "own"]),
        (["NAME", "Name"], ["vendorid", "name", "own"]),
        (["name", "NAME"], ["vendorid", "name", "own"]),
        (["STRASSE"], ["vendorid", "name", "own"]),
    ],
)
def test_a_name_is_another_ones_spelling_where_case_is_ignored(published: list[str], spelled: list[str]) -> None:
    columns: Any = {name: {"name": name} for name in ("vendorid", "name", "own")}
    found = Destination(columns, (frozenset({"vendorid"}),), NameCase.INSENSITIVE).spelled_as(published)
    assert list(found.columns) == spelled
    assert found.unique_keys == (frozenset(spelled[:1]),)
    assert [it["name"] for it in found.columns.values()] == ["vendorid", "name", "own"]
    assert list(Destination(columns, ()).spelled_as(published).columns) == list(columns)
