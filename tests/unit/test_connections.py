"""Connections as Airflow writes them, and the secrets that no message shows."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from tranrepl.connections import Connection, all_from_environment, from_environment, require_postgres
from tranrepl.errors import ConfigurationError

PASSWORD = "p@ss/w:rd%?# é"  # noqa: S105
COMPLETE = Connection("Sales-DB", "postgres", "db.example", 6432, "m e", PASSWORD, "sal/es", {"sslmode": "require"})
URI = "postgres://m%20e:p%40ss%2Fw%3Ard%25%3F%23%20%C3%A9@db.example:6432/sal%2Fes?sslmode=require"


def _read(value: str, connection_id: str = "Sales-DB") -> Connection:
    return from_environment(connection_id, {f"AIRFLOW_CONN_{connection_id.upper()}": value})


def _json(**changes: object) -> str:
    fields = {
        "conn_type": "postgres",
        "host": "db.example",
        "port": 6432,
        "login": "m e",
        "password": PASSWORD,
        "schema": "sal/es",
        "extra": {"sslmode": "require"},
    }
    return json.dumps({**fields, **changes})


@pytest.mark.parametrize(
    "value",
    [
        _json(),
        _json(port="6432"),
        _json(extra='{"sslmode": "require"}'),
        _json(conn_type="Postgres"),
        "  " + _json(),
        URI,
    ],
)
def test_json_and_uri_say_the_same(value: str) -> None:
    assert _read(value) == COMPLETE


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_password_survives_a_uri(password: str) -> None:
    from urllib.parse import quote

    assert _read(f"postgres://me:{quote(password, safe='')}@h/d").password == password


_NOTICING_DEAD_PEERS = {
    "connect_timeout": "15",
    "keepalives_idle": "60",
    "keepalives_interval": "10",
    "keepalives_count": "6",
    "tcp_user_timeout": "120000",
}


def test_parts_left_out_are_left_to_libpq() -> None:
    for value in ("postgres://", '{"conn_type": "postgres"}', '{"conn_type": "postgres", "extra": "", "port": ""}'):
        connection = _read(value)
        assert connection == Connection("Sales-DB", "postgres")
        assert connection.libpq_parameters("test") == {**_NOTICING_DEAD_PEERS, "application_name": "test"}


def test_libpq_gets_every_part_and_the_options() -> None:
    assert COMPLETE.libpq_parameters("tranrepl test") == {
        **_NOTICING_DEAD_PEERS,
        "sslmode": "require",
        "host": "db.example",
        "port": "6432",
        "user": "m e",
        "password": PASSWORD,
        "dbname": "sal/es",
        "application_name": "tranrepl test",
    }


def test_libpq_gets_what_the_hook_takes_and_not_what_the_hook_has_for_itself() -> None:
    extra = {
        "cursor": "dictcursor",
        "iam": True,
        "aws_conn_id": "aws",
        "redshift": False,
        "sqlalchemy_scheme": "",
        "keepalives": True,
        "keepalives_idle": 30,
        "sslmode": "",
        "application_name": "me",
        "gssencmode": None,
        "options": "-c work_mem=1MB",
        "target_session_attrs": "read-write",
        "autocommit": True,
    }
    connection = _read(json.dumps({"conn_type": "postgres", "extra": extra}))
    assert connection.libpq_parameters("test") == {
        **_NOTICING_DEAD_PEERS,
        "keepalives": "1",
        "keepalives_idle": "30",
        "options": "-c work_mem=1MB",
        "target_session_attrs": "read-write",
        "application_name": "test",
    }
    assert list(connection.unused_by_libpq()) == ["cursor", "iam", "aws_conn_id", "application_name", "autocommit"]


def test_the_extras_host_login_and_database_win_as_in_the_hook() -> None:
    extra = {"host": "db1,db2", "port": "5432,5433", "user": "me", "password": PASSWORD, "dbname": "sales"}
    fields = {"conn_type": "postgres", "host": "db", "port": 1, "login": "x", "password": "x", "schema": "x"}
    read = _read(json.dumps({**fields, "extra": extra}))
    assert read == Connection("Sales-DB", "postgres", "db1,db2", None, "me", PASSWORD, "sales", {"port": "5432,5433"})
    assert read.libpq_parameters("test")["port"] == "5432,5433"
    assert _read(json.dumps({**fields, "extra": {"port": "2"}})).port == 2


def test_a_connections_texts_never_show_the_password() -> None:
    assert PASSWORD not in repr(COMPLETE)
    assert str(COMPLETE) == "Sales-DB (m e@db.example:6432/sal/es)"


@pytest.mark.parametrize("environment", [{}, {"AIRFLOW_CONN_SALES": ""}])
def test_a_connection_that_is_not_defined_is_told_with_the_variable_to_set(environment: Mapping[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="connection 'sales' is not defined") as refused:
        from_environment("sales", environment)
    assert "set AIRFLOW_CONN_SALES" in (refused.value.report.remedy or "")


@pytest.mark.parametrize(
    "value",
    [
        '{"conn_type": "postgres", "password": "s3cret"',
        '{"conn_type": "postgres", "password": "s3cret", "port": "fivefour"}',
        '{"conn_type": "postgres", "password": "s3cret", "extra": "{"}',
        '{"conn_type": "postgres", "password": "s3cret", "extra": "[1]"}',
        '{"conn_type": 5, "password": "s3cret"}',
        "postgres://me:s3cret@db:port/sales",
        "postgres://me:s3cret@db:99999/sales",
        "postgres://me:s3cret@[::1/sales",
        "postgres:/me:s3cret@db:5432/sales",
        "host=db password=s3cret",
        "s3cret",
    ],
)
def test_a_connection_that_cannot_be_read_is_refused_without_repeating_it(value: str) -> None:
    with pytest.raises(
        ConfigurationError, match="AIRFLOW_CONN_SALES is neither a connection in JSON nor a URI"
    ) as refused:
        _read(value, "sales")
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize("value", ["mysql://me:s3cret@db/sales", '{"password": "s3cret"}'])
def test_another_kind_of_database_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"connection 'sales' is of type '(mysql|)'") as refused:
        require_postgres(_read(value, "sales"))
    assert refused.value.report.remedy == "allowed: postgres, postgresql"
    assert "s3cret" not in str(refused.value)


def test_all_connections_that_are_missing_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "postgres://me@host/shop")
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSES", "postgres://me@host/warehouse")
    with pytest.raises(ConfigurationError) as refused:
        all_from_environment(["shop", "warehouse", "distribution"])
    first, second = refused.value.message.splitlines()
    assert first.startswith(
        "connection 'warehouse' is not defined → did you mean AIRFLOW_CONN_WAREHOUSES, which is set? Else: define it"
    )
    assert second == "connection 'distribution' is not defined"
    assert (refused.value.report.remedy or "").startswith("define it in Airflow, or set AIRFLOW_CONN_DISTRIBUTION")
