"""What a session with the safe search path finds: PostgreSQL's own, and what is named with its schema."""

from __future__ import annotations

from conftest import DatabaseFactory
from support.embedded_postgres import PostgresServer
from support.site import execute
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import describe_table
from tranrepl.postgres.session import connect

_TYPES = {
    '"e xt".citext': ('OPERATOR("e xt".=)', "'A'"),
    '"e xt".hstore': ('OPERATOR("e xt".=)', "'a=>1'"),
    '"e xt".ltree': ('OPERATOR("e xt".=)', "'a.b'"),
    '"e xt".isbn': ('OPERATOR("e xt".=)', "'978-0-11-000533-1'"),
    "public.label": ('OPERATOR("e xt".=)', "'A'"),
    "public.mood": ("=", "'glad'"),
    "integer": ("=", "1"),
    "varchar(3)": ("=", "'a'"),
    '"e xt".citext[]': ("=", "'{A}'"),
    "int4range": ("=", "'[1,2)'"),
}
"""By type of a key: its operator, and a value."""


def test_each_types_keys_are_compared_by_the_operator_of_their_index(
    database: DatabaseFactory, debian_postgres: PostgresServer
) -> None:
    publisher = database("publisher", debian_postgres)
    execute(publisher, 'CREATE SCHEMA "e xt"', "CREATE TYPE mood AS ENUM ('glad')")
    execute(publisher, *(f'CREATE EXTENSION {it} SCHEMA "e xt"' for it in ("citext", "hstore", "ltree", "isn")))
    execute(publisher, 'CREATE DOMAIN word AS "e xt".citext', "CREATE DOMAIN label AS word")
    for number, (name, (_, value)) in enumerate(_TYPES.items()):
        execute(
            publisher, f"CREATE TABLE t{number} (key {name} PRIMARY KEY)", f"INSERT INTO t{number} VALUES ({value})"
        )
    with connect(publisher, "test", autocommit=True) as session:
        session.execute("SET enable_seqscan = off")
        for number, (name, (operator, value)) in enumerate(_TYPES.items()):
            described = describe_table(session, TableName("public", f"t{number}"))
            assert described is not None
            assert described.columns[0].equality == operator, name
            condition = f"FROM public.t{number} WHERE key {operator} {value}::{name}"
            assert session.execute(f"SELECT count(*) {condition}".encode()).fetchone() == (1,)
            plan = session.execute(f"EXPLAIN SELECT {condition}".encode()).fetchall()
            assert any("Index Cond" in line for (line,) in plan), (name, plan)
