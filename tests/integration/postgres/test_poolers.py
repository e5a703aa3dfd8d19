"""PgBouncer between us and the servers: sessions that are kept work, sessions that are shared are refused."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.continuous_reader import wait_for
from support.equality import differing_rows
from support.processes import dying_with_owner, free_port, unprivileged
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.postgres.session import connect

_PROGRAM = Path("/usr/sbin/pgbouncer")
_SETTINGS = """
[databases]
* = host={host} port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = plain
auth_file = {folder}/users
pool_mode = {mode}
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def _pooler(folder: Path, server: Connection, mode: str) -> Iterator[int]:
    """Start PgBouncer; yield its port."""
    if not _PROGRAM.exists():
        pytest.skip("pgbouncer is not there: `make servers` installs it")
    port = free_port()
    (folder / "users").write_text(f'"{server.login}" "{server.password}"\n', encoding="utf-8")
    settings = _SETTINGS.format(host=server.host, server_port=server.port, port=port, folder=folder, mode=mode)
    (folder / "settings").write_text(settings, encoding="utf-8")
    command = unprivileged(dying_with_owner([str(_PROGRAM), "-q", str(folder / "settings")], signal.SIGTERM))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: _answers(replace(server, port=port)))
        yield port
    finally:
        process.terminate()
        process.wait(60)


def _answers(connection: Connection) -> bool:
    try:
        connect(connection, "test").close()
    except TransientError:
        return False
    except ConfigurationError:
        pass
    return True


def test_a_subscriber_and_a_distribution_database_behind_sessions_of_a_pooler(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere())
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note date)")
    with _pooler(tmp_path, site.connections["subscriber"], "session") as port:
        for end in ("subscriber", "distribution"):
            site.connections[end] = replace(site.connections[end], port=port)
        site.set_up()
        filled = "INSERT INTO item SELECT n, '2026-01-31' FROM generate_series(1, 5) n"
        site.at_publisher(filled, "DELETE FROM item WHERE id = 2")
        site.run()
    assert differing_rows(site) == {}


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_shares_sessions_is_refused(mode: str, databases: DatabasesFactory, tmp_path: Path) -> None:
    server = databases().subscriber
    with (
        _pooler(tmp_path, server, mode) as port,
        pytest.raises(ConfigurationError, match="gives the server's sessions to others") as refused,
    ):
        connect(replace(server, port=port), "test")
    assert "pool_mode = session" in (refused.value.report.remedy or "")
