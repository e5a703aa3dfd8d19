"""What is read from SQL Server's catalogue: one query for each kind of object, for all tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from support.requirements import Requirement, allowing, require
from support.subscribers import mssql_execute
from tranrepl.connections import Connection
from tranrepl.subscriber.mssql.catalogue import (
    ForeignKeyConstraint,
    ReferentialAction,
    Trigger,
    UniqueIndex,
    find_foreign_keys,
    find_tables,
    find_triggers,
)
from tranrepl.subscriber.mssql.database import SqlServer
from tranrepl.subscriber.mssql.destinations import SqlServerCatalogue

_HOSTILE = "a.b 'c' \"d\" %(x)s"


@contextmanager
def _session(connection: Connection) -> Iterator[sa.Connection]:
    engine = SqlServer().engine(connection)
    with engine.connect() as session:
        yield session
    engine.dispose()


@pytest.mark.parametrize("hostile", [_HOSTILE, f"{_HOSTILE} ]"])
def test_tables_are_found_as_the_server_compares_names(mssql_database: Connection, hostile: str) -> None:
    if "]" in hostile:
        require(mssql_database, Requirement.BRACKETS_IN_NAMES)
    quoted = "[" + hostile.replace("]", "]]") + "]"
    mssql_execute(
        mssql_database,
        f"create schema {quoted}",
        "create table Vendor (id int primary key)",
        f"create table {quoted}.{quoted} ({quoted} int primary key)",
        "create view seen as select id from Vendor",
    )
    asked = [("dbo", "vendor"), (None, "Vendor"), (hostile, hostile), ("dbo", "seen"), ("dbo", "none")]
    with _session(mssql_database) as session:
        found = find_tables(session, asked)
        assert find_tables(session, []) == {}
    assert {place: it.columns[0].name for place, it in found.items()} == {
        ("dbo", "vendor"): "id",
        (None, "Vendor"): "id",
        (hostile, hostile): hostile,
        ("dbo", "seen"): "id",
    }
    assert found["dbo", "vendor"].object_id == found[None, "Vendor"].object_id


def test_columns_are_described_with_what_fills_them(mssql_database: Connection) -> None:
    mssql_execute(
        mssql_database,
        "create table t (id int primary key, name nvarchar(40) collate Latin1_General_BIN2 not null default N'x', "
        "code varchar(7), twice as id * 2, number int identity(5, 3), seen datetime2(3), "
        "price decimal(10, 2), note nvarchar(max), logo varbinary(9), other sql_variant)",
    )
    with _session(mssql_database) as session:
        ((_, table),) = find_tables(session, [("dbo", "t")]).items()
        ((_, destination),) = SqlServerCatalogue(session).destinations([("dbo", "t")]).items()
        spelled = {
            name: SqlServer().described_type(it["type"], session.dialect).spelling
            for name, it in destination.columns.items()
        }
    columns = {it.name: it for it in table.columns}
    assert [it.name for it in table.columns if it.is_filled_by_the_server] == ["twice"]
    assert [it.name for it in table.columns if it.identity is not None] == ["number"]
    assert [it.name for it in table.columns if not it.nullable] == ["id", "name", "number"]
    assert "bin2" in (columns["name"].collation or "").lower()
    assert "x" in (columns["name"].default or "")
    assert columns["other"].type_name == "sql_variant"
    assert spelled == {
        "id": "int",
        "name": "nvarchar(40)",
        "code": "varchar(7)",
        "twice": "int",
        "number": "int",
        "seen": "datetime2(3)",
        "price": "decimal(10, 2)",
        "note": "nvarchar(max)",
        "logo": "varbinary(9)",
        "other": "sql_variant",
    }
    assert [it for it in destination.columns if not destination.settable(it)] == ["twice"]
    assert [it for it in destination.columns if destination.is_identity(it)] == ["number"]


def test_a_rowversion_is_filled_by_the_server(mssql_database: Connection) -> None:
    mssql_execute(mssql_database, *allowing(mssql_database), "create table t (id int primary key, stamp rowversion)")
    with _session(mssql_database) as session:
        ((_, table),) = find_tables(session, [("dbo", "t")]).items()
    assert [(it.name, it.is_filled_by_the_server) for it in table.columns] == [("id", False), ("stamp", True)]


def test_primary_key_unique_constraints_and_unique_indexes_are_found(mssql_database: Connection) -> None:
    mssql_execute(
        mssql_database,
        "create table t (a int not null, b int not null, c int, d int, e int, constraint t_key primary key (b, a), "
        "constraint t_c unique (c))",
        "create unique index t_d on t (d, a)",
        "create index t_e on t (e)",
    )
    with _session(mssql_database) as session:
        ((_, table),) = find_tables(session, [("dbo", "t")]).items()
        ((_, destination),) = SqlServerCatalogue(session).destinations([("dbo", "t")]).items()
    assert table.unique_indexes[:2] == (
        UniqueIndex("t_key", ("b", "a"), primary_key=True, filtered=False),
        UniqueIndex("t_c", ("c",), primary_key=False, filtered=False),
    )
    assert [it.columns for it in table.unique_indexes] == [("b", "a"), ("c",), ("d", "a")]
    assert destination.unique_keys == (frozenset("ab"), frozenset("c"), frozenset("ad"))


def test_an_index_of_some_rows_is_no_unique_key(mssql_database: Connection) -> None:
    require(mssql_database, Requirement.FILTERED_INDEXES)
    mssql_execute(
        mssql_database,
        "create table t (id int primary key, d int)",
        "create unique index t_d on t (d) where d is not null",
    )
    with _session(mssql_database) as session:
        ((_, destination),) = SqlServerCatalogue(session).destinations([("dbo", "t")]).items()
        ((_, unique_keys),) = SqlServerCatalogue(session).unique_keys([("dbo", "t")]).items()
    assert destination.unique_keys == (frozenset({"id"}),)
    assert list(unique_keys) == [("id",), ("d",)]


def test_foreign_keys_are_found_at_both_of_their_ends(mssql_database: Connection) -> None:
    mssql_execute(
        mssql_database,
        "create table parent (a int not null, b int not null, primary key (a, b))",
        "create table child (id int primary key, x int, y int)",
        "alter table child add constraint child_parent foreign key (y, x) references parent (a, b) "
        "on delete cascade on update cascade",
    )
    key = ForeignKeyConstraint(
        "child_parent",
        ("dbo", "child"),
        ("y", "x"),
        ("dbo", "parent"),
        ("a", "b"),
        on_delete=ReferentialAction.CASCADE,
        on_update=ReferentialAction.CASCADE,
        enabled=True,
        not_for_replication=False,
    )
    with _session(mssql_database) as session:
        for name in ("parent", "child"):
            assert find_foreign_keys(session, find_tables(session, [("dbo", name)]).values()) == (key,)
    assert key.acts


def test_triggers_say_when_they_act(mssql_database: Connection) -> None:
    mssql_execute(
        mssql_database,
        "create table t (id int primary key, n int)",
        "create table plain (id int primary key)",
        "create trigger t_seen on t after insert, update as select 1",
    )
    with _session(mssql_database) as session:
        tables = find_tables(session, [("dbo", "t"), ("dbo", "plain")])
        triggers = find_triggers(session, tables.values())
    number = tables["dbo", "t"].object_id
    assert triggers == {
        number: (
            Trigger(
                "t_seen",
                frozenset({"INSERT", "UPDATE"}),
                enabled=True,
                not_for_replication=False,
            ),
        )
    }


@pytest.mark.parametrize("kind", ["foreign key", "trigger", "identity"])
def test_what_is_not_for_replication_is_told(mssql_database: Connection, kind: str) -> None:
    require(mssql_database, Requirement.NOT_FOR_REPLICATION)
    mssql_execute(
        mssql_database,
        "create table parent (id int primary key)",
        "create table t (id int primary key, number int identity(1, 1) not for replication, p int)",
        "alter table t add constraint t_p foreign key (p) references parent (id) not for replication",
        "create trigger t_seen on t after insert not for replication as select 1",
    )
    with _session(mssql_database) as session:
        tables = find_tables(session, [("dbo", "t")])
        (table,) = tables.values()
        found = {
            "foreign key": [it.not_for_replication for it in find_foreign_keys(session, [table])],
            "trigger": [it.not_for_replication for it in find_triggers(session, [table])[table.object_id]],
            "identity": [it.identity.not_for_replication for it in table.columns if it.identity],
        }
    assert found[kind] == [True]
