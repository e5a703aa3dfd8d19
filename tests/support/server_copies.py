"""What a DBA does to a whole server: file-level backups, restores, physical standbys."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from support.embedded_postgres import PostgresServer
from support.processes import free_port

STANDBY_SLOT = "standby"
_PATIENCE_SECONDS = 300.0


def copy_files(source: Path, target: Path) -> None:
    """Copy with owners and rights: the server's user is not ours."""
    subprocess.run(["/bin/cp", "-a", str(source), str(target)], check=True)


def back_up(server: PostgresServer, folder: Path) -> Path:
    """Take a file-level backup while the server is stopped."""
    server.stop()
    copy_files(server.settings.data, folder)
    server.start()
    return folder


def restore(server: PostgresServer, backup: Path) -> None:
    """Restore the server from it: on the same timeline, since no log is recovered from an archive."""
    server.stop()
    shutil.rmtree(server.settings.data)
    copy_files(backup, server.settings.data)
    server.start()


@contextmanager
def clone(server: PostgresServer, home: Path, options: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """Start another server from the same files, on a port of its own."""
    server.stop()
    home.mkdir()
    copy_files(server.settings.data, home / "data")
    access = json.loads(server.settings.access.read_text(encoding="utf-8"))
    server.start()
    settings = replace(server.settings, home=home, options={**server.settings.options, **(options or {})})
    settings.access.write_text(json.dumps({**access, "port": free_port()}), encoding="utf-8")
    if options and "primary_conninfo" in options:
        _make_standby(home / "data")
    with PostgresServer(settings) as copy:
        yield copy


@contextmanager
def standby_of(server: PostgresServer, home: Path, database: str) -> Iterator[PostgresServer]:
    """Yield a physical standby that streams through `STANDBY_SLOT`; slots of `database` can be copied to it."""
    with server.connect() as session:
        session.execute("SELECT pg_create_physical_replication_slot(%s, true)", [STANDBY_SLOT])
    connection = server.connection(database)
    conninfo = (
        f"host=127.0.0.1 port={connection.port} user={connection.login} password={connection.password} "
        f"dbname={database}"
    )
    options = {"primary_conninfo": conninfo, "primary_slot_name": STANDBY_SLOT, "hot_standby_feedback": "on"}
    with clone(server, home, options) as standby:
        yield standby


def synchronize_slots(
    primary: PostgresServer, standby: PostgresServer, database: str, advance: Callable[[], object]
) -> None:
    """Copy failover slots to the standby, until they can be read after a promotion: that takes slots that advance."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    # A slot that is not fit yet is gone with the session. PostgreSQL 19 waits until it is fit.
    with ThreadPoolExecutor(1) as thread, standby.connect(database) as copying, standby.connect() as looking:
        copied = None
        while True:
            with primary.connect(database) as session:
                session.execute("SELECT pg_log_standby_snapshot()")
            advance()
            catch_up(primary, standby)
            if copied is None or copied.done():
                copied = thread.submit(copying.execute, "SELECT pg_sync_replication_slots()")
            wait([copied], timeout=1)
            if looking.execute("SELECT FROM pg_replication_slots WHERE synced AND NOT temporary").fetchall():
                return
            assert time.monotonic() < deadline, "the slot is not synchronised"


def catch_up(primary: PostgresServer, standby: PostgresServer) -> None:
    """Wait until the standby has replayed all that the primary has now."""
    with primary.connect() as session:
        row = session.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with standby.connect() as session:
        while session.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", row).fetchone() != (True,):
            assert time.monotonic() < deadline, "the standby does not follow"
            time.sleep(0.05)


def promote(standby: PostgresServer) -> None:
    with standby.connect() as session:
        session.execute("SELECT pg_promote()")


def _make_standby(data: Path) -> None:
    """Make it a standby as pg_basebackup does, without the slots."""
    for slot in (data / "pg_replslot").iterdir():
        shutil.rmtree(slot)
    (data / "standby.signal").touch()
    shutil.chown(data / "standby.signal", data.stat().st_uid, data.stat().st_gid)
