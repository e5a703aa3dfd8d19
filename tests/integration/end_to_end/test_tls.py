"""What a connection's extra says of TLS reaches every driver, and is obeyed by each."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.continuous_reader import DUMPS, continuous_reader, registered_commands, wait_for
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import replicate
from support.observed import item_article
from support.publishers import SERVERS, new_mariadb_database, publishing_mariadb
from support.site import Site, execute
from support.snapshot_site import automatic_site
from support.spark_here import SparkHere
from support.subscribers import KEY
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.mysql.session import connect as session_of_mariadb
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres.slot_messages import FetchError, slot_messages
from tranrepl.subscriber.registry import dialect_of

_ROWS = 3000
_MANY = ", ".join(f"({number}, '{'x' * 90}')" for number in range(3, 3 + _ROWS))
"""More than a record of TLS holds, of which a socket says that there is something to read."""
_ONLY_TLS = "hostssl all all all scram-sha-256\n"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where they are: the server's own, which is its own authority, and one of nobody."""

    server: Path
    stranger: Path


def _certificate(folder: Path, name: str) -> Path:
    certificate = folder / f"{name}.crt"
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / f"{name}.key"), "-out", str(certificate)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    (folder / f"{name}.key").chmod(0o600)
    return certificate


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return Certificates(_certificate(tmp_path, "server"), _certificate(tmp_path, "stranger"))


@pytest.fixture
def certificates(debian_postgres: PostgresServer, made: Certificates) -> Iterator[Certificates]:
    """Let PostgreSQL 15 take TLS connections only, until the test ends. (The embedded one is built without TLS.)"""
    server = made.server
    access = debian_postgres.settings.data / "pg_hba.conf"
    before = access.read_text(encoding="utf-8")
    # One session does it all: while it is not TLS's, none but it gets in.
    with debian_postgres.connect() as session:
        session.execute(f"ALTER SYSTEM SET ssl_cert_file = '{server}'".encode())
        session.execute(f"ALTER SYSTEM SET ssl_key_file = '{server.with_suffix('.key')}'".encode())
        session.execute("ALTER SYSTEM SET ssl = on")
        access.write_text(_ONLY_TLS, encoding="utf-8")
        session.execute("SELECT pg_reload_conf()")
        try:
            _wait_for_tls(debian_postgres.connection("postgres"))
            yield made
        finally:
            access.write_text(before, encoding="utf-8")
            session.execute("ALTER SYSTEM RESET ALL")
            session.execute("SELECT pg_reload_conf()")


def _wait_for_tls(connection: Connection) -> None:
    for _ in range(100):
        try:
            psycopg.connect(**_with(connection, sslmode="require").libpq_parameters("test")).close()  # type: ignore[arg-type]
        except psycopg.OperationalError:
            continue
        return
    raise AssertionError("the server takes no TLS connections")


def _with(connection: Connection, **options: str) -> Connection:
    return replace(connection, options=options)


def test_tls_parameters_reach_every_driver(
    databases: DatabasesFactory, debian_postgres: PostgresServer, certificates: Certificates, tmp_path: Path
) -> None:
    plain = databases(publisher=debian_postgres, subscriber=debian_postgres, distribution=debian_postgres)
    trusting, deceived, bare = (
        Databases(*(_with(it, **options) for it in (plain.publisher, plain.subscriber, plain.distribution)))
        for options in (
            {"sslmode": "verify-full", "sslrootcert": str(certificates.server)},
            {"sslmode": "verify-full", "sslrootcert": str(certificates.stranger)},
            {"sslmode": "disable"},
        )
    )
    site = Site(trusting, tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY)")
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (1)")
    replicate(site)
    assert execute(trusting.subscriber, "SELECT * FROM t") == [(1,)]

    slot = str(
        site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")[0][0]
    )
    for ends, refusal in ((deceived, "certificate verify failed"), (bare, "no encryption")):
        with pytest.raises(ReplicationError, match=refusal), connect(ends.subscriber, "test"):
            pass
        with pytest.raises(FetchError, match=refusal):
            list(slot_messages(ends.publisher, slot, 0, [1]))
        with DistributionDatabase(ends.distribution) as distribution, pytest.raises(ReplicationError, match=refusal):
            distribution.ping()


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_a_binary_log_is_read_and_followed_over_tls(
    name: str, databases: DatabasesFactory, made: Certificates, tmp_path: Path
) -> None:
    files = [f"--ssl-cert={made.server}", f"--ssl-key={made.server.with_suffix('.key')}"]
    with publishing_mariadb(tmp_path / "server", name, files) as server:
        plain = server.connection(new_mariadb_database(server), "publisher")
        server.execute("SET GLOBAL require_secure_transport = ON")
        ends = replace(databases(), publisher=_with(plain, ssl_ca=str(made.server)))
        _require_refusals(plain, made)
        site = automatic_site(ends, tmp_path, [item_article(ends.publisher)])
        site.spark = SparkHere()
        site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note text)", "INSERT INTO item VALUES (1, 'copied')")
        site.set_up()
        site.take_snapshot().raise_error()
        site.at_publisher("INSERT INTO item VALUES (2, 'read')")
        site.run()
        with continuous_reader(site):
            session = site.at_publisher(f"SELECT id {DUMPS}")
            site.at_publisher(f"INSERT INTO item VALUES {_MANY}", "UPDATE item SET note = 'followed' WHERE id < 4")
            wait_for(lambda: registered_commands(site) == 1 + _ROWS + 3)
            # A reader that has lost its session drains the log, and follows it by another one.
            assert site.at_publisher(f"SELECT id {DUMPS}") == session
        site.deliver().raise_error()
        assert site.differences() == []
        assert site.at_subscriber("SELECT count(*) FROM item") == [(2 + _ROWS,)]


def _require_refusals(plain: Connection, made: Certificates) -> None:
    """See that each way to open the server, as a Publisher and as a Subscriber, says why it is refused, and what is to
    be done."""
    for options, said, way_on in (
        ({"ssl_ca": str(made.stranger)}, "the server's certificate is not trusted", "ssl_ca in its extra"),
        ({"ssl_mode": "DISABLED"}, "insecure transport|Access denied", '"ssl_mode": "REQUIRED"'),
        ({"ssl_ca": "/no/such/file"}, "FileNotFoundError|cannot be read: No such file", "ssl_ca"),
    ):
        connection = _with(plain, **options)
        for opened in (session_of_mariadb(connection), dialect_of(connection).subscriber(connection, KEY, "test")):
            with pytest.raises(ConfigurationError, match=said) as refused, opened:
                pass
            assert way_on in (refused.value.report.remedy or "")
