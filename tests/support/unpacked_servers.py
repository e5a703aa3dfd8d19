"""MySQL 9.7 and MariaDB 11.8, unpacked from packages of other releases of Debian and started by their own loader."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.checkout import CHECKOUT
from support.mariadb import MariaDbError, MariaDbServer, as_user

_SERVERS = CHECKOUT / ".venv" / "servers"
_SYSTEM_TABLES = ("mariadb_system_tables", "mariadb_performance_tables", "mariadb_system_tables_data")


class _UnpackedServer(MariaDbServer):
    name: str

    @classmethod
    def require(cls) -> None:
        """Skip the test where the server could not be had."""
        if not (_SERVERS / cls.name / "ready").exists():
            pytest.skip(f"{cls.name} is not there: `make servers` says why")

    @property
    def _root(self) -> Path:
        return _SERVERS / self.name / "tree"

    def program(self, path: str) -> list[str]:
        """Return the command that starts one of its programs."""
        usr = self._root / "usr"
        loader, libraries = usr / "lib64" / "ld-linux-x86-64.so.2", usr / "lib" / "x86_64-linux-gnu"
        return [str(loader), "--library-path", str(libraries), str(usr / path), "--no-defaults"]

    def _loaded(self, program: str, *arguments: str) -> list[str]:
        return [*self.program(f"sbin/{program}"), f"--datadir={self._data}", *as_user(), *arguments]

    def _made(self, command: list[str], statements: str = "") -> None:
        made = subprocess.run(
            command, env=self._environment, input=statements, capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            raise MariaDbError(f"{self.name}: no data directory was made: {made.stdout}{made.stderr}"[-2000:])


class UnpackedMariaDbServer(_UnpackedServer):
    name = "mariadb-11.8"

    def _make_data(self) -> None:
        self._data.mkdir(parents=True)
        share = self._root / "usr" / "share" / "mariadb"
        tables = [(share / f"{it}.sql").read_text(encoding="utf-8") for it in _SYSTEM_TABLES]
        statements = "".join(("create database mysql;\nuse mysql;\n", *tables))
        self._made(self._loaded("mariadbd", "--bootstrap", *self._places()), statements)

    def _server_command(self) -> list[str]:
        return self._loaded("mariadbd", *self._places())

    def _places(self) -> tuple[str, ...]:
        usr = self._root / "usr"
        return f"--basedir={usr}", f"--lc-messages-dir={usr / 'share' / 'mariadb'}"


class UnpackedMySqlServer(_UnpackedServer):
    name = "mysql-9.7"
    kind = "mysql"
    small = ("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M", "--mysqlx=OFF")
    replace_user = "CREATE USER IF NOT EXISTS"
    reset_log = "RESET BINARY LOGS AND GTIDS"
    end_of_log = "SHOW BINARY LOG STATUS"
    reading = "REPLICATION SLAVE, REPLICATION CLIENT, BACKUP_ADMIN"

    def least_rights(self, account: str, database: str) -> list[str]:
        return [
            *super().least_rights(account, database),
            f"GRANT SELECT ON performance_schema.log_status TO {account}",
        ]

    def _make_data(self) -> None:
        self._data.parent.mkdir(parents=True, exist_ok=True)
        self._made(self._loaded("mysqld", "--initialize-insecure", *self._places()))

    def _server_command(self) -> list[str]:
        return self._loaded("mysqld", *self._places())

    def _places(self) -> tuple[str, ...]:
        usr = self._root / "usr"
        return (
            f"--basedir={usr}",
            f"--lc-messages-dir={usr / 'share' / 'mysql'}",
            f"--plugin-dir={usr / 'lib' / 'mysql' / 'plugin'}",
            "--secure-file-priv=",
        )
