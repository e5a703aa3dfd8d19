"""Connections as Airflow writes them, at a real server: each of the three drivers takes the same."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest

from support.embedded_postgres import PostgresServer, ServerSettings
from support.site import execute
from tranrepl.connections import Connection, from_environment
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.errors import TransientError
from tranrepl.postgres.session import connect, translated_errors
from tranrepl.publisher.postgres.oversized_messages import find_long_message
from tranrepl.publisher.postgres.replication_session import replication_problems
from tranrepl.publisher.postgres.slot_messages import slot_messages

pytestmark = pytest.mark.new_sessions

_LOGIN, _PASSWORD, _DATABASE, _SLOT = "m e@:/%", "p@ss/w:rd%?# é", "sal/es é", "slot"


@pytest.fixture(scope="module")
def server(server_folder: Path) -> Iterator[PostgresServer]:
    """Yield a server that listens on both loopbacks and at a socket whose path has capital letters."""
    # A socket's path has at most 107 bytes, and anybody may go through the folder.
    with TemporaryDirectory(prefix="Sockets ", dir="/tmp") as sockets:
        Path(sockets).chmod(0o777)
        options = {"listen_addresses": "127.0.0.1,::1", "unix_socket_directories": f'"{sockets}"'}
        with PostgresServer(ServerSettings(server_folder / "connections", fsync=False, options=options)) as server:
            server.create_database(_DATABASE)
            execute(
                server.connection(_DATABASE),
                f"CREATE ROLE \"{_LOGIN}\" LOGIN SUPERUSER PASSWORD '{_PASSWORD}'",
                f"CREATE PUBLICATION {_SLOT}",
                f"SELECT pg_create_logical_replication_slot('{_SLOT}', 'pgoutput')",
            )
            yield server


def _uri(host: str, port: int | str, extra: str = "") -> str:
    login, password, database = (quote(it, safe="") for it in (_LOGIN, _PASSWORD, _DATABASE))
    return f"postgresql://{login}:{password}@{host}:{port}/{database}{extra}"


def _socket(server: PostgresServer) -> str:
    return str(execute(server.connection("postgres"), "SHOW unix_socket_directories")[0][0]).strip('"')


_HOOKS_OWN = {
    "cursor": "dictcursor",
    "iam": False,
    "sqlalchemy_scheme": "postgresql+psycopg2",
    "autocommit": True,
    "application_name": "mine",
    "client_encoding": "LATIN1",
    "replication": "database",
    "sslmode": "prefer",
    "sslcert": "/no/such.crt",
    "keepalives": True,
    "keepalives_idle": 30,
    "sslrootcert": "",
    "options": "-c work_mem=1MB",
}
_WAYS: dict[str, Callable[[PostgresServer], str]] = {
    "percent-encoded": lambda it: _uri("127.0.0.1", it.port),
    "IPv6": lambda it: _uri("[::1]", it.port),
    "IPv6 as Airflow writes it": lambda it: _uri("%3A%3A1", it.port),
    "socket": lambda it: _uri(quote(_socket(it), safe=""), it.port),
    "several hosts": lambda it: _uri("127.0.0.2,127.0.0.1", it.port, "?target_session_attrs=read-write"),
    "several ports": lambda it: _uri("127.0.0.1%2C%3A%3A1", 1, f"?port=1,{it.port}&target_session_attrs=primary"),
    "hook's extra": lambda it: _uri("127.0.0.1", it.port, f"?__extra__={quote(json.dumps(_HOOKS_OWN))}"),
    "JSON": lambda it: json.dumps(
        {
            "conn_type": "postgres",
            "host": "127.0.0.1,::1",
            "port": it.port,
            "extra": {"load_balance_hosts": "random"},
            "login": _LOGIN,
            "password": _PASSWORD,
            "schema": _DATABASE,
        }
    ),
}


@pytest.mark.parametrize("way", _WAYS)
def test_each_driver_connects(server: PostgresServer, way: str) -> None:
    connection = from_environment("sales", {"AIRFLOW_CONN_SALES": _WAYS[way](server)})
    _seen_by_psycopg(connection)
    with DistributionDatabase(connection) as distribution:
        distribution.ping()
    assert list(replication_problems(connection)) == []
    ((start,),) = execute(server.connection(_DATABASE), "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots")
    execute(server.connection(_DATABASE), "SELECT pg_logical_emit_message(true, 'é', 'é', true)")
    ((end,),) = execute(server.connection(_DATABASE), "SELECT pg_current_wal_lsn() - '0/0'")
    assert (
        b"".join(
            it for part in slot_messages(connection, _SLOT, int(start), [int(end)]) if part for it in part.to_pylist()
        ).count("é".encode())
        >= 2
    )
    assert find_long_message(connection, _SLOT, int(start), int(end)) is None


def _seen_by_psycopg(connection: Connection) -> None:
    with connect(connection, "tranrepl test", autocommit=True) as session:
        seen = session.execute(
            "SELECT session_user::text, current_database()::text, current_setting('client_encoding'), "
            "current_setting('application_name')"
        ).fetchone()
    assert seen == (_LOGIN, _DATABASE, "UTF8", "tranrepl test")


@pytest.mark.parametrize("end", ["distribution database", "Subscriber"])
def test_a_driver_says_nothing_of_a_session_that_the_server_has_ended(
    server: PostgresServer,
    end: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    connection = from_environment("sales", {"AIRFLOW_CONN_SALES": _WAYS["percent-encoded"](server)})
    warnings.simplefilter("always")
    with pytest.raises(TransientError, match=r"the first error|terminating connection"):
        _fail_after_the_end(server, connection, end)
    assert [it.getMessage() for it in caplog.records] == []
    assert (list(recwarn), capfd.readouterr().err) == ([], "")


def _fail_after_the_end(server: PostgresServer, connection: Connection, end: str) -> None:
    """Let the server end a session in a transaction, in which something else fails before it is noticed."""
    with ExitStack() as opened:
        if end == "Subscriber":
            session = opened.enter_context(connect(connection, "tranrepl test"))
            opened.enter_context(session.transaction())
        else:
            session = opened.enter_context(opened.enter_context(DistributionDatabase(connection)).session())
        ((pid,),) = session.execute("SELECT pg_backend_pid()").fetchall()
        execute(server.connection("postgres"), f"SELECT pg_terminate_backend({pid}, 5000)")
        raise TransientError("the first error")


def test_a_server_that_takes_no_writes_yet_is_transient_at_each_end(server: PostgresServer) -> None:
    connection = from_environment("sales", {"AIRFLOW_CONN_SALES": _WAYS["several hosts"](server)})
    write = "SET TRANSACTION READ ONLY; CREATE TABLE refused (id int)"
    with (
        connect(connection, "tranrepl test") as session,
        pytest.raises(TransientError) as at_an_end,
        translated_errors("Subscriber"),
    ):
        session.execute(write)
    database = DatabaseConnection(connection)
    with pytest.raises(TransientError) as at_the_distributor, database, database.transaction() as transaction:
        transaction.exec_driver_sql(write)
    assert {it.value.report.code for it in (at_an_end, at_the_distributor)} == {"25006"}
