"""What a MariaDB Publisher refuses, each with its remedy."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.publishers import PublisherSite, mariadb_under_test, of_mariadb, publishing_mariadb
from support.site import Site
from tranrepl.admin.check import check_publisher
from tranrepl.admin.early_warnings import _of_log
from tranrepl.admin.metrics import metric_families
from tranrepl.admin.status import status
from tranrepl.cli.status_display import show_status
from tranrepl.errors import ConfigurationError, DataError
from tranrepl.publisher.mysql import zero_dates
from tranrepl.publisher.publisher import LogHealth, RetainedLog
from tranrepl.settings.publication import Article
from tranrepl_airflow.monitor.background_queries import _ask_publisher


@pytest.fixture
def site(mariadb_shop: MariaDbServer) -> PublisherSite:
    return PublisherSite(mariadb_under_test(mariadb_shop, "shop"))


def _problems(site: PublisherSite, table: str) -> list[str]:
    with site.opened() as publisher:
        ((article, described),) = site.described(publisher, table)
        return [it.message for it in publisher.article_problems(article, described)]


def test_a_child_whose_rows_change_with_its_parents_is_refused(site: PublisherSite) -> None:
    site.server.execute(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE `odd-child` (id int PRIMARY KEY, p int, CONSTRAINT own FOREIGN KEY (p) REFERENCES parent (id) "
        "ON DELETE SET NULL)",
        "CREATE TABLE `käse/größe` (id int PRIMARY KEY, p int, CONSTRAINT other FOREIGN KEY (p) "
        "REFERENCES parent (id) ON DELETE CASCADE)",
        "CREATE TABLE quiet (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id))",
    )
    (problem,) = _problems(site, "odd-child")
    assert "foreign key own changes its rows where shop/parent changes" in problem
    assert "foreign key other changes its rows" in _problems(site, "käse/größe")[0]
    assert _problems(site, "quiet") == _problems(site, "parent") == []


def test_a_table_without_transactions_is_refused(site: PublisherSite) -> None:
    site.server.execute("CREATE TABLE plain (id int PRIMARY KEY) ENGINE = MyISAM")
    assert "engine MyISAM" in _problems(site, "plain")[0]


def test_dates_that_do_not_exist_are_told_by_table_and_column(
    site: PublisherSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.server.execute(
        "CREATE TABLE dated (id int PRIMARY KEY, `of %s` date, t datetime(3), s timestamp NULL, year0 date, free date)",
        "CREATE TABLE plain_dates (id int PRIMARY KEY, d date)",
        "INSERT INTO plain_dates VALUES (1, '2024-02-29'), (2, NULL)",
        "INSERT INTO dated VALUES (1, '2024-00-10', '0000-00-00', '0000-00-00', '0000-01-01', '9999-12-31')",
    )

    def told(**settings: str) -> list[str]:
        with site.opened() as publisher:
            return list(publisher.value_warnings(site.described(publisher, "plain_dates", "dated", **settings)))

    assert [re.findall(r"0000-00-00: (.*?)\. ", it) for it in told()] == [["shop.dated (of %s, t, s, year0)"]]
    assert told(filter="id > 1") == []
    monkeypatch.setattr(zero_dates, "_SECONDS_IN_ALL", 0)
    assert [re.findall(r"have some: (.*?)\. ", it) for it in told()] == [["tables shop.plain_dates, shop.dated"]]
    ((usual,),) = site.server.execute("SELECT @@GLOBAL.sql_mode")
    site.server.execute("SET GLOBAL sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE'")
    try:
        assert told() == []
    finally:
        site.server.execute(f"SET GLOBAL sql_mode = '{usual}'")


def test_the_table_of_messages_is_no_article(site: PublisherSite) -> None:
    site.server.execute("CREATE TABLE t (id int PRIMARY KEY)")
    site.set_up("t")
    with site.opened() as publisher:
        article = Article.model_validate({"source": "tranrepl.message", "destination": "public.message"})
        (problem,) = publisher.article_problems(article, publisher.describe([article.source])[article.source])
    assert "table tranrepl.message is tranrepl's own" in problem.message


def test_a_value_that_is_too_long_for_a_packet_is_no_null(site: PublisherSite) -> None:
    site.server.execute(
        "CREATE TABLE `100%s` (id int PRIMARY KEY, `of %%` longblob, more text CHARACTER SET utf8mb4)",
        "INSERT INTO `100%s` VALUES (1, NULL, NULL), (2, 'ab', 'a\u2028b'), (3, REPEAT('a', 600000), NULL)",
        "SET GLOBAL max_allowed_packet = 1048576",
    )
    try:
        site.set_up("100%s")
        (article,) = site.articles
        with (
            site.opened() as publisher,
            publisher.snapshot(10, print) as snapshot,
            snapshot.source.session("test") as session,
        ):
            rows = session.rows_of_keys(article, [["1"], ["2"]])
            assert list(rows.values()) == [["1", None, None], ["2", r"\x6162", "a\u2028b"]]
            (whole,) = session.ranges(article, None)
            with pytest.raises(DataError, match="longer than max_allowed_packet"):
                list(session.lines(whole))
            with pytest.raises(DataError, match="longer than max_allowed_packet"):
                publisher.rows_of_key(article, ["3"])
    finally:
        site.server.execute("SET GLOBAL max_allowed_packet = DEFAULT")


@of_mariadb
def test_a_snapshot_has_all_rows_and_lives_whatever_the_servers_defaults(site: PublisherSite) -> None:
    site.server.execute(
        "CREATE TABLE limited (id varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY)",
        "INSERT INTO limited VALUES ('A'), ('a'), ('b')",
    )
    site.set_up("limited", filter="id < 'b'")
    limits = ("sql_select_limit", "max_statement_time", "idle_transaction_timeout", "idle_readonly_transaction_timeout")
    site.server.execute(*(f"SET GLOBAL {it} = {value}" for it, value in zip(limits, (1, 0.5, 1, 1), strict=True)))
    try:
        with (
            site.opened() as publisher,
            publisher.snapshot(10, print) as snapshot,
            snapshot.source.session("test") as session,
        ):
            time.sleep(1.2)
            (whole,) = session.ranges(site.articles[0], None)
            assert b"".join(session.lines(whole)) == b"A\na\n"
            assert publisher.rows_of_key(site.articles[0], ["a"]) == [["a"]]
    finally:
        site.server.execute(*(f"SET GLOBAL {it} = DEFAULT" for it in limits))


@of_mariadb
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT change_it()", "in the binary log as statements"),
        ("INSERT INTO logged VALUES (2, RAND())", "in the binary log as statements"),
        ("SET STATEMENT max_statement_time = 0 FOR TRUNCATE logged", "names table shop.logged: SET STATEMENT"),
    ],
)
def test_changes_that_are_no_rows_in_the_log_end_the_reading(site: PublisherSite, statement: str, reason: str) -> None:
    site.server.execute(
        "CREATE OR REPLACE TABLE logged (id int PRIMARY KEY, n double)",
        "CREATE OR REPLACE FUNCTION change_it() RETURNS int DETERMINISTIC MODIFIES SQL DATA "
        "BEGIN INSERT INTO logged VALUES (3, 3); RETURN 1; END",
    )
    site.set_up("logged")
    with site.server.session() as session:
        for it in ("SET SESSION binlog_format = STATEMENT", statement):
            session.execute(it)
        session.commit()
    with site.opened() as publisher:
        refusal = site.parts(publisher)[-1].refusal
    assert refusal is not None
    assert reason in refusal.error.message


def test_rows_of_a_column_that_is_not_as_registered_are_refused(site: PublisherSite) -> None:
    site.server.execute("CREATE TABLE turned (id int PRIMARY KEY, n decimal(10,2))")
    site.set_up("turned")
    site.server.execute("ALTER TABLE turned MODIFY n decimal(10,4)")
    with site.opened() as publisher:
        after = publisher.end_of_log()
        site.server.execute("INSERT INTO turned VALUES (1, 1.5)")
        unreadable = site.parts(publisher, after)[-1].unreadable
    assert unreadable is not None
    assert "column n is not in the log as it is registered" in unreadable.error.message


@pytest.mark.parametrize(
    ("setting", "value", "usual"),
    [
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_metadata", "MINIMAL", "FULL"),
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


def test_log_that_is_removed_before_it_is_read_is_refused(site: PublisherSite) -> None:
    hour, day = timedelta(hours=1), timedelta(days=1)
    ((usual,),) = site.server.execute("SELECT @@GLOBAL.binlog_expire_logs_seconds")
    is_mysql = site.server.kind == "mysql"
    purge = "SET GLOBAL binlog_expire_logs_auto_purge = {}" if is_mysql else "DO '{}'"
    with site.opened() as publisher:
        place = publisher.end_of_log()
        assert list(publisher.problems(day * 1000)) == []
        site.server.execute("FLUSH BINARY LOGS", purge.format("ON"), "SET GLOBAL binlog_expire_logs_seconds = 86400")
        try:
            assert [*publisher.problems(day), *publisher.warnings(hour)] == []
            (problem,) = publisher.problems(day + hour / 2)
            (warning,) = publisher.warnings(day)
            assert _without_size(publisher.health(place)) == _without_size(publisher.health())
            # No file is removed before the next one begins.
            site.server.execute("SET GLOBAL binlog_expire_logs_seconds = 1")
            assert _without_size(publisher.health(publisher.end_of_log())) == _without_size(publisher.health())
            site.server.execute("SET GLOBAL binlog_expire_logs_seconds = 0")
            assert list(publisher.problems(day * 1000)) == []
        finally:
            site.server.execute(f"SET GLOBAL binlog_expire_logs_seconds = {usual}", purge.format("OFF"))
    assert "removes its log after 24 hours, read or not, and Subscribers are waited for 24.5" in problem.message
    statement = "SET {} binlog_expire_logs_seconds = 88200".format("PERSIST" if is_mysql else "GLOBAL")
    assert (problem.report.remedy or "").startswith(statement)
    assert "runs pause up to 1 day" in warning


def _without_size(health: LogHealth) -> RetainedLog:
    """Return what is kept of the log, which a server may write to between two looks."""
    assert health.retained is not None
    return replace(health.retained, size=None)


@of_mariadb
def test_a_replica_whose_changes_are_not_logged_is_refused_and_a_crash_that_loses_log_is_warned_of(
    site: PublisherSite,
) -> None:
    site.server.execute(
        "SET GLOBAL gtid_strict_mode = OFF", "SET GLOBAL gtid_slave_pos = '7-9-1'", "SET GLOBAL sync_binlog = 0"
    )
    try:
        with site.opened() as publisher:
            (problem,) = publisher.problems()
            warnings = list(publisher.warnings(None))
    finally:
        site.server.execute(
            "SET GLOBAL gtid_slave_pos = ''", "SET GLOBAL gtid_strict_mode = ON", "SET GLOBAL sync_binlog = 1"
        )
    assert "log_slave_updates is OFF" in problem.message
    assert any("sync_binlog is 0" in it for it in warnings)


def test_no_message_speaks_of_a_slot_and_status_and_monitor_name_a_danger(
    mariadb_shop: MariaDbServer,
    databases: DatabasesFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mariadb_shop.execute("DROP TABLE IF EXISTS shop.told", "CREATE TABLE shop.told (id int PRIMARY KEY)")
    ends = replace(databases(), publisher=mariadb_shop.connection("shop", "publisher"))
    article = {"source": "shop.told", "destination": "public.told"}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    published = Site(ends, tmp_path / "store", [article], None, [subscription], retained_log_threshold=1)
    published.set_up()
    found = status(published.topology)
    show_status(found)
    shown = capsys.readouterr().out
    assert re.search(r"binary log: kept, retains \S+ \w+ of log \(until it is purged\)", shown)
    told = [shown, *(f"{it.name} {it.documentation} {it.samples}" for it in metric_families([found]))]
    with published.topology.publisher("test") as publisher:
        retained = publisher.health().retained
    assert retained is not None
    large = replace(retained, size=5 << 20)
    told += [f"{it.text} {it.remedy}" for it in _of_log(published.publication, large)]
    ((usual,),) = mariadb_shop.execute("SELECT @@GLOBAL.binlog_expire_logs_seconds")
    purge = "SET GLOBAL binlog_expire_logs_auto_purge = {}" if mariadb_shop.kind == "mysql" else "DO '{}'"
    mariadb_shop.execute("FLUSH BINARY LOGS", purge.format("ON"))
    time.sleep(1)
    mariadb_shop.execute("SET GLOBAL binlog_expire_logs_seconds = 1")
    try:
        show_status(status(published.topology))
        shown = capsys.readouterr().out
        for name, value in ends.environment.items():
            monkeypatch.setenv(name, value)
        refused = check_publisher(published.topology).problems
        by_monitor = _ask_publisher(("publisher", published.publication.publication, "distribution"))
    finally:
        mariadb_shop.execute(f"SET GLOBAL binlog_expire_logs_seconds = {usual}", purge.format("OFF"))
    assert re.search(r"the binary log is in danger: in 0\.0 hours the server removes \S+bin\.\d+ ", shown)
    assert any("(max_distretention)" in it.message for it in refused)
    assert by_monitor.retained is not None
    assert [it.text for it in by_monitor.retained.dangers if it.text in shown] != []
    told.append(shown)
    assert len(told) > 3
    assert [it for it in told if "slot" in it.lower() and it.count("slot") > it.count("PostgreSQL slot")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "remedy"),
    [("10.5.29-MariaDB", "use MariaDB 10.6 to 11.8"), ("8.4.3", "use MySQL 9.7"), ("10.6.24-MariaDB", None)],
)
def test_an_older_server_is_refused_by_its_version_or_warned_of(
    version: str, remedy: str | None, tmp_path: Path
) -> None:
    with publishing_mariadb(tmp_path / "older", options=[f"--version={version}"]) as server:
        server.execute("CREATE DATABASE shop")
        site = PublisherSite(mariadb_under_test(server, "shop"))
        if remedy is None:
            with site.opened() as publisher:
                (said,) = (it for it in publisher.warnings(None) if f"the server is {version}" in it)
            assert "never run: it was with 10.11 and 11.8" in said
            return
        with site.opened() as publisher, pytest.raises(ConfigurationError, match=f"the server is {version}") as refused:
            list(publisher.problems())
    assert refused.value.report.remedy == remedy
