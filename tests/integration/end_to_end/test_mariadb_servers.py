"""What may happen to a MariaDB or MySQL Publisher's server: a replica is promoted, an older backup restored. It is
refused where its log is another one, and what the refusal says leads on with nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.item_site import (
    DATABASE,
    assert_refused_everywhere,
    assert_reinitializes,
    command,
    end_of_log,
    go_to,
    grow,
    insert,
    item_site,
    run,
)
from support.mariadb import MariaDbServer
from support.observed import watermark
from support.publishers import publishing_mariadb
from support.spark_here import SparkHere

pytestmark = pytest.mark.slow
_SECONDS = 60
_CREATE = f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class _Replication:
    """The statements of a server's own replication; `{}` is where it begins, or a port."""

    written: str
    begin: tuple[str, ...]
    follow: tuple[str, ...]
    wait: str
    end: tuple[str, ...]


_OF = {
    "mariadb": _Replication(
        "SELECT @@gtid_binlog_pos",
        ("RESET MASTER", "SET GLOBAL gtid_slave_pos = '{}'"),
        (
            (
                "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'copying', "
                "MASTER_PASSWORD = 'copying', MASTER_USE_GTID = slave_pos"
            ),
            "START SLAVE",
        ),
        f"SELECT MASTER_GTID_WAIT('{{}}', {_SECONDS})",
        ("STOP SLAVE", "RESET SLAVE ALL"),
    ),
    "mysql-9.7": _Replication(
        "SELECT @@gtid_executed",
        ("RESET BINARY LOGS AND GTIDS", "SET GLOBAL gtid_purged = '{}'"),
        (
            (
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {}, SOURCE_USER = 'copying', "
                "SOURCE_PASSWORD = 'copying', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
            ),
            "START REPLICA",
        ),
        f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{{}}', {_SECONDS})",
        ("STOP REPLICA", "RESET REPLICA ALL"),
    ),
}


@dataclass(frozen=True, slots=True)
class _Pair:
    """A server and its replica."""

    of: _Replication
    primary: MariaDbServer
    replica: MariaDbServer

    def written(self) -> str:
        ((gtids,),) = self.primary.execute(self.of.written)
        return str(gtids).replace("\n", "")

    def follow(self, begin: str) -> None:
        port = self.primary.connection(DATABASE).port
        statements = (*(it.format(begin) for it in self.of.begin), *(it.format(port) for it in self.of.follow))
        self.replica.execute(*statements)

    def promote(self) -> MariaDbServer:
        """Return the replica, once it has all that its primary has, as a server of its own."""
        assert self.replica.execute(self.of.wait.format(self.written())) == [(0,)]
        self.replica.execute(*self.of.end)
        return self.replica


@pytest.fixture(params=_OF)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Pair]:
    with ExitStack() as stack:
        primary = stack.enter_context(publishing_mariadb(tmp_path / "primary", request.param))
        options = ("--server-id=2", "--log-slave-updates=ON")
        replica = stack.enter_context(publishing_mariadb(tmp_path / "replica", request.param, options))
        pair = _Pair(_OF[request.param], primary, replica)
        begin = pair.written()
        primary.execute(
            "CREATE USER copying@'127.0.0.1' IDENTIFIED BY 'copying'",
            "GRANT REPLICATION SLAVE ON *.* TO copying@'127.0.0.1'",
            _CREATE,
        )
        pair.follow(begin)
        yield pair


@pytest.mark.parametrize("lacks_some", [False, True])
def test_a_promoted_replica_is_refused_until_the_publication_is_reinitialized(
    pair: _Pair, databases: DatabasesFactory, tmp_path: Path, lacks_some: bool
) -> None:
    site = item_site(pair.primary, databases(), tmp_path)
    insert(site, 1, 3, "before")
    run(site)
    promoted = pair.promote()
    # Delivered and lost with its server; or there, and nobody has written since.
    if lacks_some:
        insert(site, 4, 9, "lost")
        run(site)
    go_to(site, promoted)
    if lacks_some:
        insert(site, 4, 5, "after")
    assert_refused_everywhere(site, tmp_path, "leads to another server", "as a replica that was promoted")
    if lacks_some:
        assert_reinitializes(site, tmp_path)
        return
    outcome = command(site, tmp_path, "reinitialize", "--log-reader")
    assert outcome.status == 0, outcome.err
    insert(site, 11, 13, "later")
    run(site)
    assert site.differences() == []


@pytest.fixture(params=_OF)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MariaDbServer]:
    with publishing_mariadb(tmp_path / "server", request.param) as server:
        server.execute(_CREATE)
        yield server


@pytest.mark.parametrize("rows_stay", [False, True])
def test_an_older_backup_is_refused_though_its_log_has_grown_again(
    server: MariaDbServer, databases: DatabasesFactory, tmp_path: Path, rows_stay: bool
) -> None:
    site = item_site(server, databases(), tmp_path)
    insert(site, 1, 3, "before")
    run(site)
    backup = server.back_up(tmp_path / "backup")
    insert(site, 4, 9, "lost")
    run(site)
    registered = watermark(site)
    server.restore(backup)
    assert_refused_everywhere(site, tmp_path, "it was reset, or the server was restored")
    insert(site, 4, 5, "after")
    grow(site, registered)
    assert_refused_everywhere(site, tmp_path, "it was reset, or the server was restored")
    assert watermark(site) == registered
    if not rows_stay:
        assert_reinitializes(site, tmp_path)
        return
    outcome = command(site, tmp_path, "reinitialize", "--log-reader")
    assert (outcome.status, outcome.err) == (0, "")
    site.spark = SparkHere()
    found = site.validate(repair="apply")
    found.raise_error()
    assert found.validation is not None
    assert [it.repaired for it in found.validation.articles] == [6]
    insert(site, 1001, 1003, "later")
    run(site)
    assert site.differences() == []


def test_a_restored_server_that_has_all_that_was_read_goes_on(
    server: MariaDbServer, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = item_site(server, databases(), tmp_path)
    insert(site, 1, 5, "before")
    grow(site, end_of_log(site))
    run(site)
    backup = server.back_up(tmp_path / "backup")
    insert(site, 6, 9, "lost, and never read")
    server.restore(backup)
    insert(site, 6, 8, "after")
    run(site)
    assert site.differences() == []
