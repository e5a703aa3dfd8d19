"""Which server's log it is, and on which timeline, asked in the session at hand or by the replication protocol."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from psycopg import sql

from conftest import DatabaseFactory
from support.embedded_postgres import PostgresServer
from support.site import execute
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.postgres.session import connect
from tranrepl.publisher.continuity import LogIdentity
from tranrepl.publisher.postgres.continuity import read_log_identity

_REVOKED = "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC"


@contextmanager
def _login(owner: Connection, attributes: str) -> Iterator[Connection]:
    name, password = f"reader_{secrets.token_hex(4)}", secrets.token_urlsafe(12)
    role = sql.Identifier(name).as_string(None)
    execute(owner, f"CREATE ROLE {role} LOGIN {attributes} PASSWORD '{password}'")
    yield replace(owner, login=name, password=password)
    execute(owner, f"DROP ROLE {role}")


def _identity(connection: Connection) -> LogIdentity:
    with connect(connection, "test", autocommit=True) as session:
        return read_log_identity(session, connection)


@pytest.mark.parametrize("server", ["postgres", "debian_postgres"])
def test_a_query_tells_what_the_protocol_tells(
    server: str, database: DatabaseFactory, request: pytest.FixtureRequest
) -> None:
    home: PostgresServer = request.getfixturevalue(server)
    publisher = database("publisher", home)
    with _login(publisher, "NOREPLICATION") as queried:
        answer = _identity(queried)
        execute(publisher, _REVOKED)
        with pytest.raises(ConfigurationError, match="no replication connection"):
            _identity(queried)
    with _login(publisher, "REPLICATION") as by_protocol:
        assert _identity(by_protocol) == answer
    assert answer.timeline == 1
