"""What PyMySQL is given of what Airflow's MySQL hook takes in an extra."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tranrepl.connections import Connection, from_environment
from tranrepl.errors import ConfigurationError
from tranrepl.mysql.connection_options import driver_arguments, unused_options

_ALWAYS = {"connect_timeout": 15, "client_flag": 2}
_CA = {"ca": "/ca.pem"}


def _connection(extra: object) -> Connection:
    text = json.dumps({"conn_type": "mysql", "schema": "reporting", "extra": extra})
    return from_environment("reporting", {"AIRFLOW_CONN_REPORTING": text})


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, {}),
        ({"unix_socket": "/run/mysqld.sock", "init_command": "SET @a = 1"}, None),
        (
            {"connect_timeout": 3, "read_timeout": "60", "client_flag": 1},
            {"connect_timeout": 3, "read_timeout": 60, "client_flag": 3},
        ),
        ({"ssl": _CA}, {"ssl": _CA}),
        ({"ssl": json.dumps(_CA)}, {"ssl": _CA}),
        ({"ssl": {"ssl-ca": "/ca.pem", "key": "/k", "cert": "/c"}}, {"ssl": {**_CA, "key": "/k", "cert": "/c"}}),
        ({"ssl_ca": "/ca.pem", "ssl_cipher": "AES"}, {"ssl": {**_CA, "cipher": "AES"}}),
        ({"ssl": True}, {"ssl": {"check_hostname": False}}),
        ({"ssl": False}, {}),
        ({"ssl_mode": "disabled", "ssl": _CA}, {"ssl_disabled": True}),
        ({"ssl_disabled": True}, {"ssl_disabled": True}),
        ({"ssl_disabled": "false"}, {}),
        ({"ssl_mode": "PREFERRED"}, {}),
        ({"ssl_mode": "REQUIRED"}, {"ssl": {"check_hostname": False}}),
        ({"ssl_mode": "VERIFY_CA", "ssl": _CA}, {"ssl": {**_CA, "check_hostname": False, "verify_mode": True}}),
        (
            {"ssl_mode": "VERIFY_IDENTITY", "ssl_ca": "/ca.pem"},
            {"ssl": {**_CA, "check_hostname": True, "verify_mode": True}},
        ),
        (
            {"ssl_ca": "/ca.pem", "ssl_verify_cert": False},
            {"ssl": {**_CA, "check_hostname": False, "verify_mode": False}},
        ),
        ({"ssl_ca": "/ca.pem", "ssl_verify_identity": "true"}, {"ssl": {**_CA, "check_hostname": True}}),
        # Not used, and said so.
        ({"cursor": "sscursor", "charset": "latin1", "local_infile": True, "client": "mysqlclient", "x": 1}, {}),
    ],
)
def test_the_driver_gets_what_the_hook_takes(extra: dict[str, Any], expected: dict[str, Any] | None) -> None:
    given = driver_arguments(_connection(extra))
    assert given == {**_ALWAYS, **(extra if expected is None else expected)}


def test_what_is_not_used_is_named() -> None:
    extra = {"cursor": "sscursor", "iam": True, "local_infile": False, "charset": "utf8", "autocommit": True, "x": 1}
    assert list(unused_options(_connection(extra))) == ["cursor", "iam", "charset", "autocommit", "x"]
    assert unused_options(_connection({"charset": "utf8mb4", "ssl_ca": "/ca.pem", "unix_socket": "/s"})) == {}


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"sslca": "/ca.pem"}, "did you mean ssl_ca"),
        ({"ssl": {"caa": "/ca.pem"}}, "did you mean ssl_ca"),
        ({"ssl": "no object"}, "allowed: ssl"),
        ({"ssl_mode": "STRICT"}, "VERIFY_IDENTITY"),
        ({"ssl_mode": "VERIFY_CA"}, "names none to trust"),
        ({"ssl_verify_identity": True}, "names none to trust"),
        ({"ssl_disabled": "perhaps"}, "allowed: true, false"),
        ({"read_timeout": "long"}, "allowed: a number"),
    ],
)
def test_what_would_leave_a_connection_in_clear_text_is_refused(extra: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        driver_arguments(_connection(extra))
    assert said in str(refused.value)
