"""What is read of a log is what was committed, in commit order, as often as it is read."""

from __future__ import annotations

from collections.abc import Sequence

from support.publishers import NO_LIMITS, Change, PublisherSite, changes_of, replayed
from tranrepl.model.commands import Operation
from tranrepl.publisher.log_range import Limits, LogRange


def _insert(number: int, name: str = "x") -> str:
    return f"INSERT INTO t VALUES ({number}, '{name}', NULL)"


def _read(ranges: Sequence[LogRange]) -> list[Change]:
    return [it for one in ranges for part in one.changes() for it in changes_of(part.changes)]


def test_what_is_read_is_what_was_committed(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    site.server.execute(
        _insert(1, "first"),
        _insert(2, "it''s a\\b\\tc"),
        "UPDATE t SET name = 'second', note = 'was first' WHERE id = 1",
        "UPDATE t SET id = 20 WHERE id = 2",
        _insert(3),
        "DELETE FROM t WHERE id = 3",
        _insert(3, "again"),
    )
    with site.opened() as publisher:
        changes = site.read(publisher)
    assert replayed(changes) == site.server.rows("t")
    names = ["INSERT", "INSERT", "UPDATE", "UPDATE", "INSERT", "DELETE", "INSERT"]
    assert [it.operation.name for it in changes] == names
    assert len({it.xact_seqno for it in changes}) == len(changes)


def test_what_was_rolled_back_is_not_read(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    with site.server.session() as session:
        session.execute(_insert(1))
        session.rollback()
        session.execute(_insert(2))
        session.execute("SAVEPOINT a")
        session.execute(_insert(3))
        session.execute("ROLLBACK TO SAVEPOINT a")
        session.execute(_insert(4))
        session.commit()
        session.execute(_insert(5))
        with site.opened() as publisher:
            changes = site.read(publisher)
    assert [it.after[0] if it.after else None for it in changes] == ["2", "4"]
    assert len({it.xact_seqno for it in changes}) == 1


def test_interleaved_transactions_come_whole_in_the_order_of_their_commits(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    with site.server.session() as one, site.server.session() as other:
        one.execute(_insert(1))
        other.execute(_insert(2))
        one.execute(_insert(3))
        other.execute(_insert(4))
        other.commit()
        one.execute(_insert(5))
        one.commit()
    with site.opened() as publisher:
        changes = site.read(publisher)
    assert [it.after[0] if it.after else None for it in changes] == ["2", "4", "1", "3", "5"]
    assert [it.xact_seqno for it in changes] == sorted(it.xact_seqno for it in changes)
    assert len({it.xact_seqno for it in changes}) == 2


def test_a_large_transaction_is_read_whole(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    with site.server.session() as session:
        for start in range(0, 30_000, 1000):
            rows = ", ".join(f"({number}, 'name {number}', '{'x' * 30}')" for number in range(start, start + 1000))
            session.execute(f"INSERT INTO t VALUES {rows}")
        session.execute("UPDATE t SET note = NULL WHERE id < 1000")
        session.commit()
    site.server.execute(_insert(30_000))
    with site.opened() as publisher:
        changes = site.read(publisher)
    assert len(changes) == 31_001
    assert len({it.xact_seqno for it in changes}) == 2
    assert replayed(changes) == site.server.rows("t")


def test_only_published_tables_and_columns_are_read(site: PublisherSite) -> None:
    site.server.create("t")
    site.server.create("other")
    site.set_up("t", columns=["id", "note"])
    site.server.execute("INSERT INTO other VALUES (1, 'x', 'y')", "INSERT INTO t VALUES (1, 'x', 'y')")
    site.server.execute("UPDATE t SET name = 'not ours'")
    with site.opened() as publisher:
        (change,) = site.read(publisher)
    assert (change.table, change.after) == ("t", ("1", "y"))


def test_a_truncate_is_read_in_its_place(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    site.server.execute(_insert(1), "TRUNCATE TABLE t", _insert(1))
    with site.opened() as publisher:
        changes = site.read(publisher)
    assert [it.operation for it in changes] == [Operation.INSERT, Operation.TRUNCATE, Operation.INSERT]


def test_reading_again_before_anything_is_confirmed_gives_the_same(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    site.server.execute(*(_insert(number) for number in range(20)))
    with site.opened() as publisher:
        first = site.read(publisher)
        assert site.read(publisher) == first
    with site.opened() as publisher:
        assert site.read(publisher) == first


def test_a_reading_ends_with_the_transaction_that_reaches_a_limit(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    site.server.execute(*(_insert(number) for number in range(10)))
    with site.opened() as publisher:
        whole = site.read(publisher)
        for limits in (Limits(4, NO_LIMITS.message_bytes), Limits(9, 9_999_999, whole[3].xact_seqno)):
            parts = site.parts(publisher, limits=limits)
            assert [it for part in parts for it in changes_of(part.changes)] == whole[:4]
            assert (parts[-1].limit_reached, parts[-1].last_commit) == (True, whole[3].xact_seqno)
            # Reading goes on where it ended.
            end = parts[-1].end
            assert end is not None
            assert site.read(publisher, start=end) == whole[4:]


def test_ranges_that_are_read_side_by_side_are_the_same_log(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    site.server.execute(*(_insert(number) for number in range(10)))
    with site.opened() as publisher:
        start, end, whole = site.start(publisher), publisher.end_of_log(), site.read(publisher)
        middle = site.parts(publisher, limits=Limits(5, NO_LIMITS.message_bytes))[-1].end
        assert middle is not None
        log = publisher.log_range(site.articles, start, end, NO_LIMITS, publisher.readers())
        first, second = _read([log.between(start, middle)]), _read([log.between(middle, end)])
        ranges = log.side_by_side()
        read = _read(ranges)
        assert log.find_too_long() is None
    assert (len(first), [*first, *second]) == (5, whole)
    assert (ranges[0].start, ranges[-1].up_to, read) == (start, end, whole)


def test_a_row_filter_is_evaluated_as_the_publisher_does(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t", filter="name > 'b' AND id <> 3", **site.server.whole_old_rows)
    values = ["a", "c", "d", None, "b", "bb"]
    for number, name in enumerate(values, start=1):
        site.server.execute(f"INSERT INTO t VALUES ({number}, {'NULL' if name is None else repr(name)}, NULL)")
    found = site.server.execute("SELECT id FROM t WHERE name > 'b' AND id <> 3 ORDER BY 1")
    with site.opened() as publisher:
        log = publisher.log_range(site.articles, site.start(publisher), publisher.end_of_log(), NO_LIMITS)
        (article,), changes = site.articles, [part.changes for part in log.changes()]
        (one,) = [it for it in changes if it is not None]
        assert {it.operation for it in one.sets} == {Operation.INSERT}
        with log.row_filters() as filters:
            assert filters is not None
            places = filters.columns(article)
            matching: dict[str, bool] = {}
            for inserts in one.sets:
                after = inserts.after
                assert after is not None
                columns = [one.buffer.strings(after.starts[:, at], after.lengths[:, at]) for at in places]
                rows = one.buffer.strings(after.starts[:, 0], after.lengths[:, 0])
                matching |= dict(zip(rows.to_pylist(), filters.matches(article, rows, columns).tolist(), strict=True))
    assert sorted(int(number) for number, holds in matching.items() if holds) == [row[0] for row in found]
