"""A replica of a MariaDB Publisher is promoted: it is refused, and what the refusal says leads on with nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.item_site import command
from support.mariadb import MariaDbServer
from support.publishers import publishing_mariadb
from support.snapshot_site import automatic_site
from support.spark_here import SparkHere
from support.whole_run import good_run
from tranrepl.errors import MustBeReinitializedError

pytestmark = pytest.mark.slow
_SECONDS = 60


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[MariaDbServer, MariaDbServer]]:
    """Yield a server and its replica."""
    with ExitStack() as stack:
        primary = stack.enter_context(publishing_mariadb(tmp_path / "primary"))
        replica = stack.enter_context(
            publishing_mariadb(tmp_path / "replica", options=("--server-id=2", "--log-slave-updates=ON"))
        )
        ((begin,),) = primary.execute("SELECT @@gtid_binlog_pos")
        primary.execute(
            "CREATE USER copying@'127.0.0.1' IDENTIFIED BY 'copying'",
            "GRANT REPLICATION SLAVE ON *.* TO copying@'127.0.0.1'",
            "CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        )
        replica.execute(
            "RESET MASTER",
            f"SET GLOBAL gtid_slave_pos = '{begin}'",
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.connection('shop').port}, "
            "MASTER_USER = 'copying', MASTER_PASSWORD = 'copying', MASTER_USE_GTID = slave_pos",
            "START SLAVE",
        )
        yield primary, replica


def _catch_up(primary: MariaDbServer, replica: MariaDbServer) -> None:
    ((position,),) = primary.execute("SELECT @@gtid_binlog_pos")
    assert replica.execute(f"SELECT MASTER_GTID_WAIT('{position}', {_SECONDS})") == [(0,)]


@pytest.mark.parametrize("lacks_some", [False, True])
def test_a_promoted_replica_is_refused_until_the_publication_is_reinitialized(
    servers: tuple[MariaDbServer, MariaDbServer], databases: DatabasesFactory, tmp_path: Path, lacks_some: bool
) -> None:
    primary, replica = servers
    ends = replace(databases(), publisher=primary.connection("shop", "publisher"))
    article = {"source": "shop.item", "destination": "public.item", "pre_creation_cmd": "truncate"}
    site = automatic_site(ends, tmp_path, [article])
    site.spark = SparkHere()
    site.at_publisher(
        "CREATE TABLE item (id int PRIMARY KEY, name varchar(40))", "INSERT INTO item VALUES (1, 'a'), (2, 'b')"
    )
    site.set_up()
    site.take_snapshot().raise_error()
    site.at_publisher("INSERT INTO item VALUES (3, 'c')", "DELETE FROM item WHERE id = 1")
    site.run()
    assert site.differences() == []
    if lacks_some:
        site.at_publisher("INSERT INTO item VALUES (4, 'not read')")
    _catch_up(primary, replica)
    replica.execute("STOP SLAVE", "RESET SLAVE ALL")
    site.connections["publisher"] = replica.connection("shop", "publisher")
    site.databases = replace(ends, publisher=site.connections["publisher"])
    with pytest.raises(MustBeReinitializedError, match=r"leads to another server, .* as a replica that was promoted"):
        site.read_log()
    assert site.deliver().error is None
    if lacks_some:
        site.at_publisher("INSERT INTO item VALUES (5, 'after')")
    outcome = command(site, tmp_path, "reinitialize", *([] if lacks_some else ["--log-reader"]))
    assert outcome.status == 0, outcome.err
    site.at_publisher("INSERT INTO item VALUES (6, 'later')", "UPDATE item SET name = 'changed' WHERE id < 6")
    good_run(site)
    good_run(site)
    assert site.differences() == []
    assert len(site.at_subscriber("SELECT id FROM item")) == (5 if lacks_some else 3)
