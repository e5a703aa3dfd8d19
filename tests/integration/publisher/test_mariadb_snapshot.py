"""How many sessions read a snapshot of a MariaDB Publisher."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.mariadb import MariaDbServer
from support.publishers import PublisherSite, mariadb_under_test
from tranrepl.publisher.mysql import snapshot
from tranrepl.publisher.snapshot import TableRange


@pytest.mark.parametrize(("seconds", "readers"), [(10.0, 4), (0.0, 1)])
def test_several_sessions_read_and_one_where_no_moment_is_found_for_them(
    seconds: float, readers: int, mariadb_shop: MariaDbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb_shop.execute("DROP TABLE IF EXISTS t", database="shop")
    site = PublisherSite(mariadb_under_test(mariadb_shop, "shop"))
    site.server.create("t")
    site.set_up("t")
    # Nearly all keys are close together, where one of two halves has them all.
    keys = [-9000000, *range(1000, 6000), 2000000]
    site.server.execute(
        f"INSERT INTO t VALUES {', '.join(f'({it}, REPEAT(1, 40), NULL)' for it in keys)}", "ANALYZE TABLE t"
    )
    monkeypatch.setattr(snapshot, "_SECONDS_TOGETHER", seconds)
    said: list[str] = []
    with site.opened() as publisher, publisher.snapshot(30, said.append) as taken:

        def read(chosen: TableRange) -> bytes:
            with taken.source.session("test") as session:
                return b"".join(session.lines(chosen))

        with taken.source.session("test") as session, ThreadPoolExecutor(32) as threads:
            ranges = session.ranges(site.articles[0], 50_000)
            site.server.execute("DELETE FROM t")
            lines = list(threads.map(read, ranges))
        assert isinstance(taken, snapshot.MySqlSnapshot)
        assert len(taken.answering.sessions) == readers
    assert b"".join(lines).decode().split("\n") == [*(f"{it}\t{'1' * 40}\t\\N" for it in keys), ""]
    assert max(it.count(b"\n") for it in lines) < len(keys) / 4
    assert [it.partition("; ")[2] for it in said] == (["one session reads"] if readers == 1 else [])
