"""A MariaDB Publisher that is killed while it writes a transaction to its log: the log cannot be read on there, and the
way on that the error names loses nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.publishers import publishing_mariadb
from support.shell import publication_file, run_submitted_jobs_here, typed
from support.site import Site
from support.spark_here import SparkHere

pytestmark = [pytest.mark.slow, pytest.mark.new_sessions]

_ARTICLES = [{"source": "shop.item", "destination": "public.item"}]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MariaDbServer]:
    with publishing_mariadb(tmp_path / "mariadb") as server:
        server.execute("CREATE DATABASE shop")
        yield server


def _die_while_writing(server: MariaDbServer) -> None:
    """Kill it in the middle of a transaction of its log, and start it again."""
    log = server.log_file(str(server.execute(server.end_of_log)[0][0]))
    size = log.stat().st_size

    def write() -> None:
        with suppress(pymysql.err.Error), server.connect("shop") as session, session.cursor() as cursor:
            cursor.execute("BEGIN")
            for number in range(100, 130):
                cursor.execute(f"INSERT INTO item VALUES ({number}, REPEAT('x', 3000000))")
            cursor.execute("COMMIT")

    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(write)
        while log.stat().st_size < size + 5_000_000:
            assert not written.done()
        server.kill()
    server.start()


def test_the_named_way_on_loses_nothing(
    server: MariaDbServer, databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("CREATE TABLE item (id bigint PRIMARY KEY, v longtext)", database="shop")
    ends = replace(databases(), publisher=server.connection("shop", "publisher"))
    site = Site(ends, tmp_path / "store", _ARTICLES, SparkHere())
    file = publication_file(tmp_path, _ARTICLES, replicate_ddl=False)
    run_submitted_jobs_here(site.spark, monkeypatch)
    site.set_up()
    site.at_publisher("INSERT INTO item VALUES (1, 'delivered')")
    site.run()
    site.at_publisher("INSERT INTO item VALUES (2, 'not read')")
    _die_while_writing(server)
    site.at_publisher("INSERT INTO item VALUES (3, 'after it')")
    error = site.read_log().error
    assert error is not None
    assert "the beginning of a transaction and not its end" in error.message
    named = re.findall("`tranrepl (.*?)`", error.remedy or "")[1:]
    assert named == ["reinitialize FILE --log-reader", "validate FILE --repair"]
    for command in (*named, "run FILE"):
        words = [str(file) if it == "FILE" else it for it in command.split()]
        assert typed(*words, environment=site.databases.environment).status == 0, command
    assert site.at_publisher("SELECT id FROM item ORDER BY id") == [(1,), (2,), (3,)]
    assert site.differences() == []
