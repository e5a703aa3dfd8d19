"""Sessions of tests that are used again are as new ones are."""

from __future__ import annotations

import psycopg
import pytest

from conftest import DatabaseFactory
from support.kept_sessions import NEW_SESSIONS
from support.site import Rows, execute
from tranrepl.connections import Connection

_LEAVE_SOMETHING = (
    "SET TimeZone = 'Asia/Tokyo'",
    "SET SESSION AUTHORIZATION pg_monitor",
    "RESET SESSION AUTHORIZATION",
    "CREATE TEMPORARY TABLE left_behind (id int)",
    "PREPARE left_behind AS SELECT 1",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput', true)",
    "LISTEN left_behind",
)
_LEFT = (
    "SELECT current_setting('TimeZone'), to_regclass('pg_temp.left_behind'), "
    "(SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), "
    "(SELECT count(*) FROM pg_replication_slots WHERE temporary AND database = current_database()), "
    "(SELECT count(*) FROM pg_listening_channels()), pg_backend_pid() <> {pid}"
)


pytestmark = pytest.mark.skipif(NEW_SESSIONS, reason="no session is used again")


@pytest.fixture
def publisher(database: DatabaseFactory) -> Connection:
    connection = database("publisher")
    execute(connection, "CREATE TABLE item (id int)")
    return connection


def _leave_all_and_a_transaction(publisher: Connection) -> int:
    session = psycopg.connect(**publisher.libpq_parameters("test"), autocommit=True)  # type: ignore[arg-type]
    for statement in _LEAVE_SOMETHING:
        session.execute(statement.encode())
    session.autocommit = False
    session.execute("INSERT INTO item VALUES (1)")
    pid = session.info.backend_pid
    session.close()
    return pid


def _found_by_the_next(publisher: Connection, pid: int) -> tuple[Rows, Rows]:
    left = execute(publisher, _LEFT.format(pid=pid))
    return left, execute(publisher, "SELECT * FROM item")


def test_what_a_session_had_is_gone_when_it_is_used_again(publisher: Connection) -> None:
    pid = _leave_all_and_a_transaction(publisher)
    assert _found_by_the_next(publisher, pid) == ([("UTC", None, 0, 0, 0, 0, False)], [])


@pytest.mark.new_sessions
def test_a_test_of_sessions_has_new_ones(publisher: Connection) -> None:
    with psycopg.connect(**publisher.libpq_parameters("test")) as session:  # type: ignore[arg-type]
        pid = session.info.backend_pid
    assert execute(publisher, f"SELECT pg_backend_pid() <> {pid}") == [(True,)]


def test_a_session_that_its_server_ended_is_not_used_again(publisher: Connection) -> None:
    with psycopg.connect(**publisher.libpq_parameters("test")) as session:  # type: ignore[arg-type]
        with psycopg.connect(**publisher.libpq_parameters("test"), autocommit=True) as kept:  # type: ignore[arg-type]
            ended = kept.info.backend_pid
        session.execute("SELECT pg_terminate_backend(%s, 10000)", [ended])
        assert execute(publisher, f"SELECT pg_backend_pid() <> {ended}") == [(True,)]
