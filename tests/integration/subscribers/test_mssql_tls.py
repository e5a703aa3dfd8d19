"""A SQL Server's certificate is checked where the connection names whom to trust."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from support.subscribers import KEY
from tranrepl.connections import Connection
from tranrepl.errors import ReplicationError
from tranrepl.subscriber.registry import dialect_of

_CA_VARIABLE = "TRANREPL_TEST_MSSQL_CA"


@pytest.fixture
def encrypted(mssql_database: Connection) -> Connection:
    """Return the server by TLS, whose certificate that of TRANREPL_TEST_MSSQL_CA has signed."""
    if not os.environ.get(_CA_VARIABLE):
        pytest.skip(f"{_CA_VARIABLE} names no file of certificates")
    return replace(mssql_database, options={"cafile": os.environ[_CA_VARIABLE]})


def _connect(connection: Connection) -> None:
    with dialect_of(connection).subscriber(connection, KEY, "test") as subscriber:
        assert subscriber.tables_version() is None


def test_a_session_begins_where_the_certificate_is_trusted(encrypted: Connection) -> None:
    _connect(encrypted)


def test_a_certificate_that_nobody_trusted_has_signed_is_refused(encrypted: Connection, tmp_path: Path) -> None:
    nobody = tmp_path / "ca.pem"
    nobody.write_text("")
    with pytest.raises(ReplicationError, match=f"connection {encrypted.connection_id}") as caught:
        _connect(replace(encrypted, options={"cafile": str(nobody)}))
    assert "cafile" in (caught.value.report.remedy or "")
