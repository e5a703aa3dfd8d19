"""A connection as Airflow reads it for a task, and as we read the same text: equal in every part."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any

import pytest
from airflow.sdk import Connection as AirflowConnection
from hypothesis import given, settings, strategies as st

from support.example_counts import examples
from tranrepl.connections import Connection, from_environment
from tranrepl.errors import ConfigurationError

_VARIABLE = "AIRFLOW_CONN_SALES"
_FIELDS_IN_EXTRA = {"host", "user", "password", "dbname", "port"}
"""In an extra of PostgreSQL, they are the connection's."""

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
_NAME = st.text(st.sampled_from("abcxyzÄß09_-"), min_size=1, max_size=8)
_KIND = st.sampled_from(
    ["postgres", "postgresql", "mysql", "mariadb", "mssql", "sqlite", "google_cloud_x", "a-b", "a_b"]
)
_HOST = st.one_of(
    st.none(),
    st.sampled_from(
        [
            *("db.example", "127.0.0.1", "::1", "fe80::1%eth0", "db1,db2", "db1.example,10.0.0.2,::1"),
            *("/var/run/postgresql", "/Var/Run/My Sockets", "https://db.example", "@abstract"),
        ]
    ),
    _NAME,
)
_VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAME, inner, max_size=3)),
    max_leaves=5,
)
_OPTION = st.one_of(
    st.sampled_from(["cursor", "sslmode", "keepalives_idle", "iam", "charset", "ssl", "unix_socket", "init_command"]),
    _NAME,
).filter(lambda name: name not in _FIELDS_IN_EXTRA)
_CONNECTION = st.builds(
    AirflowConnection,
    conn_id=st.just("sales"),
    conn_type=_KIND,
    host=_HOST,
    schema=st.one_of(st.none(), _TEXT),
    login=st.one_of(st.none(), _TEXT),
    password=st.one_of(st.none(), _TEXT),
    port=st.one_of(st.none(), st.integers(1, 65535)),
    extra=st.one_of(
        st.none(),
        st.dictionaries(_OPTION, _VALUE, max_size=4).map(json.dumps),
        st.dictionaries(_OPTION, _TEXT, max_size=4).map(json.dumps),
    ),
)


def _ours(text: str) -> Connection:
    return from_environment("sales", {_VARIABLE: text})


def _as_ours(read: AirflowConnection) -> Connection:
    """Airflow's own reading, in our words: nothing and an empty text are one thing, and an option is text."""
    options = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in read.extra_dejson.items()
        if value is not None
    }
    return Connection(
        "sales",
        read.conn_type or "",
        read.host or None,
        read.port or None,
        read.login or None,
        read.password or None,
        read.schema or None,
        options,
    )


@settings(max_examples=examples(500), deadline=None)
@given(_CONNECTION)
def test_what_airflow_writes_we_read_as_airflow_does(written: AirflowConnection) -> None:
    for text in (written.get_uri(), written.as_json()):
        read = (
            AirflowConnection.from_json(text, "sales") if text[0] == "{" else AirflowConnection.from_uri(text, "sales")
        )
        assert astuple(_ours(text)) == astuple(_as_ours(read)), text


@pytest.mark.parametrize(
    "uri",
    [
        "postgres://",
        "postgresql://me:s%40cret@db.example:6432/sales",
        "POSTGRES://me@DB.Example/Sales",
        "postgres://me@%2FVar%2FRun%2FPostgreSQL:5433/sales?sslmode=",
        "postgres://me:p%3A%2F%3F%23%5B%5D%40@[::1]:5432/sales",
        "postgres://me@[fe80::1%25eth0]/sales",
        "postgres://me@db1,db2/sales?target_session_attrs=read-write",
        "postgres://db/sales?options=-c%20search_path%3Dapp&keepalives_idle=30&keepalives=true",
        "postgres://db/?__extra__=%7B%22iam%22%3A+true%2C+%22nested%22%3A+%7B%22a%22%3A+%5B1%2C+null%5D%7D%7D",
        "my-sql-x://https://me@db.example:3306/sales?charset=utf8&ssl=%7B%22ca%22%3A+%22%2Fca.pem%22%7D",
        "mysql://@:3306/sales?unix_socket=%2Frun%2Fmysqld%2Fmysqld.sock&local_infile=true",
        "  mysql://me@db/sales\n",
    ],
)
def test_a_uri_as_people_write_it(uri: str) -> None:
    assert astuple(_ours(uri)) == astuple(_as_ours(AirflowConnection.from_uri(uri.strip(), "sales")))


@pytest.mark.parametrize(
    "fields",
    [
        {"conn_type": "postgresql", "port": "5432", "extra": {"keepalives": True, "keepalives_idle": 30}},
        {"conn_type": "my-sql", "login": "", "extra": '{"ssl": {"ca": "/ca.pem"}, "timeout": 1.5, "nothing": null}'},
        {"conn_type": "mysql", "schema": "s", "host": "h", "extra": ""},
    ],
)
def test_an_object_as_people_write_it(fields: dict[str, Any]) -> None:
    text = json.dumps(fields)
    assert astuple(_ours(text)) == astuple(_as_ours(AirflowConnection.from_json(text, "sales")))


@pytest.mark.parametrize("uri", ["a://b://c://d", "postgres://me@x:1://h", "postgres://h/?__extra__=[1]"])
def test_what_airflow_refuses_we_refuse(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a connection in JSON nor a URI"):
        _ours(uri)
