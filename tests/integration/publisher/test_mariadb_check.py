"""What a MariaDB Publisher refuses, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.mariadb import MariaDbServer
from support.publishers import PublisherSite, mariadb_under_test, publishing_mariadb


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    with publishing_mariadb(tmp_path_factory.mktemp("mariadb")) as server:
        server.execute("CREATE DATABASE shop")
        yield server


@pytest.fixture
def site(server: MariaDbServer) -> PublisherSite:
    return PublisherSite(mariadb_under_test(server, "shop"))


def _problems(site: PublisherSite, table: str) -> list[str]:
    with site.opened() as publisher:
        ((article, described),) = site.described(publisher, table)
        return [it.message for it in publisher.article_problems(article, described)]


def test_a_child_whose_rows_change_with_its_parents_is_refused(site: PublisherSite) -> None:
    site.server.execute(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE `odd-child` (id int PRIMARY KEY, p int, CONSTRAINT own FOREIGN KEY (p) REFERENCES parent (id) "
        "ON DELETE SET NULL)",
        "CREATE TABLE quiet (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id))",
    )
    (problem,) = _problems(site, "odd-child")
    assert "foreign key own changes its rows where shop/parent changes" in problem
    assert _problems(site, "quiet") == _problems(site, "parent") == []


def test_a_table_without_transactions_is_refused(site: PublisherSite) -> None:
    site.server.execute("CREATE TABLE plain (id int PRIMARY KEY) ENGINE = MyISAM")
    assert "engine MyISAM" in _problems(site, "plain")[0]


@pytest.mark.parametrize(
    ("setting", "value", "usual"),
    [
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_metadata", "NO_LOG", "FULL"),
        ("binlog_format", "MIXED", "ROW"),
    ],
)
def test_a_server_that_logs_too_little_is_refused(site: PublisherSite, setting: str, value: str, usual: str) -> None:
    site.server.execute(f"SET GLOBAL {setting} = {value}")
    try:
        with site.opened() as publisher:
            (problem,) = publisher.problems()
    finally:
        site.server.execute(f"SET GLOBAL {setting} = {usual}")
    assert f"SET GLOBAL {setting} = {usual}" in (problem.report.remedy or "")
