"""A MariaDB server of Debian's package that belongs to one process: started on loopback, gone with its owner."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import pymysql
import pytest

from support.processes import dying_with_owner, free_port
from tranrepl.connections import Connection

_LOGIN = "tranrepl"
_START_SECONDS = 300.0
_STOP_SECONDS = 300.0
_POLL_SECONDS = 0.1
_PROGRAM_FOLDERS = ":/usr/sbin:/usr/local/sbin"


class MariaDbError(Exception):
    """A server that did not start, with the end of its log."""


def installed() -> bool:
    return _program("mariadbd") is not None and _program("mariadb-install-db") is not None


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_PROGRAM_FOLDERS)


class MariaDbServer:
    """One data directory in `home`, made for this server; its superuser has a password that nobody else knows.

    `options` are the server's own, and win over ours.
    """

    kind = "mariadb"
    """The kind of its connections."""
    small: Sequence[str] = (
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=64M",
        "--performance-schema=OFF",
    )
    """What lets a server take little, and be fast."""
    replace_user = "CREATE OR REPLACE USER"
    reset_log = "RESET MASTER"
    end_of_log = "SHOW MASTER STATUS"
    reading = "REPLICATION SLAVE, BINLOG MONITOR, PROCESS"
    """Rights on all that a Publisher asks for."""

    def __init__(self, home: Path, options: Sequence[str] = ()) -> None:
        self._home = home
        self._options = options
        self._data = home / "data"
        self._log = home / "mariadb.log"
        self._temporary = home / "temporary"
        # A server that starts removes the temporary tables that it finds in its folder: those of any other there.
        self._environment = {**os.environ, "TMPDIR": str(self._temporary)}
        self._password = secrets.token_urlsafe(18)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def require(cls) -> None:
        """Skip the test where there is no such server."""
        if not installed():
            pytest.skip("MariaDB's server is not installed (Debian: mariadb-server-core)")

    def __enter__(self) -> Self:
        self._install()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(_STOP_SECONDS)

    def connection(self, database: str, connection_id: str = "subscriber") -> Connection:
        return Connection(
            connection_id,
            kind=self.kind,
            host="127.0.0.1",
            port=self._port,
            login=_LOGIN,
            password=self._password,
            database=database,
            # Reading all the world's certificates takes longer than most tests' statements.
            options={"ssl_disabled": "true"},
        )

    def back_up(self, folder: Path) -> Path:
        """Take a file-level backup while it is stopped."""
        self.stop()
        shutil.copytree(self._data, folder)
        self.start()
        return folder

    def restore(self, backup: Path) -> None:
        self.stop()
        shutil.rmtree(self._data)
        shutil.copytree(backup, self._data)
        self.start()

    def log_file(self, name: str) -> Path:
        """Return a file of its binary log."""
        return self._data / name

    def least_rights(self, account: str, database: str) -> list[str]:
        """Return the statements that grant what a Publisher's page says, messages included."""
        return [
            f"GRANT {self.reading} ON *.* TO {account}",
            f"GRANT SELECT ON {database}.* TO {account}",
            f"GRANT SELECT, INSERT, DELETE, CREATE, DROP ON tranrepl.* TO {account}",
        ]

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Execute each statement by itself; return the last one's rows."""
        rows: list[tuple[Any, ...]] = []
        with self.connect(database) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    @contextmanager
    def new_database(self) -> Iterator[str]:
        """Yield a fresh database's name; it is dropped afterwards."""
        name = f"subscriber_{uuid4().hex[:8]}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE {name}")

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """Open a session in autocommit mode."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self._port,
            user=_LOGIN,
            password=self._password,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            init_command="SET time_zone = '+00:00'",
            ssl_disabled=True,
        )

    def _install(self) -> None:
        self._temporary.mkdir(parents=True, exist_ok=True)
        self._make_data()
        # Executed by the server itself when it starts, so that it never runs without a password.
        init = self._home / "init.sql"
        init.touch(mode=0o600)
        init.write_text(
            f"{self.replace_user} {_LOGIN}@'127.0.0.1' IDENTIFIED BY '{self._password}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO {_LOGIN}@'127.0.0.1' WITH GRANT OPTION;\n"
            "DROP USER IF EXISTS root@localhost, root@'127.0.0.1', root@'::1';\n",
            encoding="utf-8",
        )

    def _make_data(self) -> None:
        installer = _program("mariadb-install-db")
        if installer is None:
            raise MariaDbError("mariadb-install-db is not installed")
        arguments = ["--no-defaults", f"--datadir={self._data}", "--auth-root-authentication-method=normal"]
        created = subprocess.run(
            [installer, *arguments, "--skip-test-db", *as_user()],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if created.returncode != 0:
            raise MariaDbError(f"mariadb-install-db failed: {created.stdout}{created.stderr}")

    def _server_command(self) -> list[str]:
        server = _program("mariadbd")
        if server is None:
            raise MariaDbError("mariadbd is not installed")
        return [server, "--no-defaults", f"--datadir={self._data}", *as_user()]

    def start(self) -> None:
        """Start it, at the port that it had before."""
        self._port = self._port or free_port()
        command = [
            *self._server_command(),
            # Its folder's path may be longer than a socket's can be: this one is in the data directory.
            *("--socket=mariadb.sock", f"--port={self._port}"),
            *("--bind-address=127.0.0.1", f"--init-file={self._home / 'init.sql'}", "--skip-name-resolve"),
            *self.small,
            # What a DBA may have set, and must not matter.
            *("--sql-mode=", "--character-set-server=latin1", "--default-time-zone=+05:00"),
            *self._options,
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_owner(command, signal.SIGTERM),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_ready(self._process)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(pymysql.err.OperationalError), self.connect():
                return
            time.sleep(_POLL_SECONDS)
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        raise MariaDbError("\n".join([f"{self.kind} did not start:", *lines[-15:]]))


def as_user() -> list[str]:
    """Return the options to run as root where we are: as anybody else its Aria tables break below a folder that is
    root's alone.
    """
    return ["--user=root"] if os.geteuid() == 0 else []
