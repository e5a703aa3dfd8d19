"""An XA transaction is read once, with its commit, however long ago it was prepared."""

from __future__ import annotations

import pytest

from support.mariadb import MariaDbServer
from support.publishers import PublisherSite, mariadb_under_test
from tranrepl.model.position import Position
from tranrepl.publisher.log_range import LogReadError
from tranrepl.publisher.publisher import Publisher


@pytest.fixture
def site(mariadb_shop: MariaDbServer) -> PublisherSite:
    site = PublisherSite(mariadb_under_test(mariadb_shop, "shop"))
    mariadb_shop.execute("DROP TABLE IF EXISTS t", database="shop")
    site.server.create("t")
    site.set_up("t")
    return site


def _prepare(site: PublisherSite, xid: str, *statements: str) -> None:
    site.server.execute(f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}")


def _insert(number: int) -> str:
    return f"INSERT INTO t VALUES ({number}, 'x', NULL)"


def _keys(site: PublisherSite, publisher: Publisher, start: Position | None = None) -> list[str | None]:
    return [it.after[0] for it in site.read(publisher, start) if it.after is not None]


def test_a_transaction_that_was_prepared_in_an_earlier_reading_is_read_with_its_commit(site: PublisherSite) -> None:
    many = ", ".join(f"({number}, '{'x' * 40}', NULL)" for number in range(100, 400))
    _prepare(site, "'a', 'b', 7", _insert(1), f"INSERT INTO t VALUES {many}")
    _prepare(site, "'gone'", _insert(2))
    with site.opened() as publisher:
        site.server.execute(_insert(3))
        assert _keys(site, publisher) == ["3"]
        end = publisher.end_of_log()
        site.server.execute("FLUSH BINARY LOGS", "XA COMMIT 'a', 'b', 7", "XA ROLLBACK 'gone'", _insert(4))
        # The name is free for another one.
        _prepare(site, "'a', 'b', 7", _insert(5))
        site.server.execute("XA COMMIT 'a', 'b', 7")
        expected = ["1", *map(str, range(100, 400)), "4", "5"]
        assert _keys(site, publisher, end) == expected
        assert _keys(site, publisher) == ["3", *expected]


def test_rows_that_were_prepared_before_a_snapshot_come_with_their_commit(site: PublisherSite) -> None:
    site.server.execute(_insert(1))
    _prepare(site, "'x'", _insert(2))
    with site.opened() as publisher:
        with publisher.snapshot(30, print) as snapshot, snapshot.source.session("test") as session:
            session.hold(site.articles)
            (whole,) = session.ranges(site.articles[0], None)
            assert b"".join(session.lines(whole)).startswith(b"1\tx")
            position = snapshot.position
        site.server.execute("XA COMMIT 'x'")
        assert _keys(site, publisher, position) == ["2"]


def test_a_commit_whose_rows_were_purged_ends_the_reading(site: PublisherSite) -> None:
    _prepare(site, "'x'", _insert(1))
    with site.opened() as publisher:
        site.server.lose_log(publisher)
        end = publisher.end_of_log()
        site.server.execute("XA COMMIT 'x'")
        with pytest.raises(LogReadError) as raised:
            site.parts(publisher, end)
    assert "was prepared in a part of the log that was purged" in raised.value.error.report.message
    assert "tranrepl reinitialize" in (raised.value.error.report.remedy or "")
