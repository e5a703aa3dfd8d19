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
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import replicate
from support.site import Site, execute
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ReplicationError
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres.slot_messages import FetchError, slot_messages

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
def certificates(debian_postgres: PostgresServer, tmp_path: Path) -> Iterator[Certificates]:
    """Let PostgreSQL 15 take TLS connections only, until the test ends. (The embedded one is built without TLS.)"""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    server = _certificate(tmp_path, "server")
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
            yield Certificates(server, _certificate(tmp_path, "stranger"))
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
