"""A snapshot and the log divide the transactions between them: each is in one of the two."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

from support.publishers import PublisherSite, Values, replayed
from tranrepl.publisher.snapshot import Snapshot, SnapshotSession, TableRange

_NULL = "\\N"
_FEW_BYTES = 4096


def _rows(session: SnapshotSession, site: PublisherSite, bytes_each: int | None = None) -> dict[str, Values]:
    """Return the rows of all ranges by key; each range has some of them."""
    return _together(_range_rows(session, it) for it in session.ranges(site.articles[0], bytes_each))


def _rows_by_several(snapshot: Snapshot, ranges: Sequence[TableRange]) -> dict[str, Values]:
    """Return the same, each range read by a session of its own, some at once."""

    def read(chosen: TableRange) -> dict[str, Values]:
        with snapshot.source.session("test") as session:
            return _range_rows(session, chosen)

    with ThreadPoolExecutor(4) as threads:
        return _together(threads.map(read, ranges))


def _together(parts: Iterable[dict[str, Values]]) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for rows in parts:
        assert not found.keys() & rows.keys()
        found |= rows
    return found


def _range_rows(session: SnapshotSession, chosen: TableRange) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for line in b"".join(session.lines(chosen)).decode().splitlines():
        values = tuple(None if it == _NULL else it for it in line.split("\t"))
        assert values[0] not in found
        found[values[0] or ""] = values
    return found


@contextmanager
def _writers(site: PublisherSite, first_id: int) -> Iterator[None]:
    """Commit transactions of two changes each, without a pause."""
    stop = threading.Event()

    def write(first: int) -> None:
        with site.server.session() as session:
            for number in count(first, 10):
                if stop.is_set():
                    return
                session.execute(f"INSERT INTO t VALUES ({number}, 'new', NULL)")
                session.execute(f"UPDATE t SET note = 'written' WHERE id = {number - 10}")
                session.rollback() if number % 7 == 0 else session.commit()

    threads = [threading.Thread(target=write, args=[number]) for number in range(first_id, first_id + 3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_no_change_is_lost_or_doubled_between_a_snapshot_and_the_log(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t", **site.server.whole_old_rows)
    with site.opened() as publisher:
        for turn in range(3):
            with _writers(site, 100_000 * turn), publisher.snapshot(30, _say_nothing) as snapshot:
                with snapshot.source.session("test") as session:
                    session.hold(site.articles)
                    rows = _rows_by_several(snapshot, session.ranges(site.articles[0], _FEW_BYTES))
                point, watermark = snapshot.position, snapshot.xact_seqno
            assert publisher.positions.watermark(point) == watermark
            later = [it for it in site.read(publisher) if it.xact_seqno > watermark]
            assert replayed(later, rows) == site.server.rows("t")


def test_every_session_sees_the_same_rows_while_the_snapshot_lives(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    site.server.execute("INSERT INTO t VALUES (1, 'x', 'y')", "INSERT INTO t VALUES (2, NULL, NULL)")
    before = site.server.rows("t")
    with site.opened() as publisher, publisher.snapshot(30, _say_nothing) as snapshot:
        site.server.execute("INSERT INTO t VALUES (3, 'later', NULL)", "UPDATE t SET name = 'later'")
        assert [_seen(snapshot, site) for _ in range(3)] == [before] * 3
    assert len(site.server.rows("t")) == 3


def test_a_table_in_many_ranges_has_each_row_once(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    for start in range(0, 5000, 1000):
        rows = ", ".join(f"({number}, '{'x' * 30}', NULL)" for number in range(start, start + 1000))
        site.server.execute(f"INSERT INTO t VALUES {rows}")
    with site.opened() as publisher, publisher.snapshot(30, _say_nothing) as snapshot:
        each = publisher.table_bytes(site.articles[0]) // 5
        with snapshot.source.session("test") as session:
            ranges = session.ranges(site.articles[0], each)
            assert _rows(session, site, each) == site.server.rows("t")
    assert [it.number for it in ranges] == list(range(1, len(ranges) + 1))
    assert abs(sum(it.share for it in ranges) - 1) < 0.001


def test_rows_are_found_by_their_keys(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    site.server.execute("INSERT INTO t VALUES (1, 'x', NULL)", "INSERT INTO t VALUES (2, 'y', 'z')")
    with (
        site.opened() as publisher,
        publisher.snapshot(30, _say_nothing) as snapshot,
        snapshot.source.session("test") as session,
    ):
        found = session.rows_of_keys(site.articles[0], [["2"], ["3"]])
    assert found == {("2",): ["2", "y", "z"]}


def test_a_snapshot_has_the_columns_and_rows_that_are_published(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t", columns=["id", "note"], filter="id > 1")
    site.server.execute("INSERT INTO t VALUES (1, 'x', 'y')", "INSERT INTO t VALUES (2, 'x', 'z')")
    with site.opened() as publisher, publisher.snapshot(30, _say_nothing) as snapshot:
        assert _seen(snapshot, site) == {"2": ("2", "z")}
        found = [publisher.rows_of_key(site.articles[0], [key]) for key in ("1", "2", "3")]
    assert found == [[], [["2", "z"]], []]


def _seen(snapshot: Snapshot, site: PublisherSite) -> dict[str, Values]:
    with snapshot.source.session("test") as session:
        return _rows(session, site)


def _say_nothing(_: str) -> None:
    pass
