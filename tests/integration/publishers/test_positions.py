"""Positions: bytes that sort in commit order, and a text form of their own."""

from __future__ import annotations

import pytest

from support.publishers import PublisherSite, Registered, of_another_kind
from tranrepl.errors import ConfigurationError, MustBeReinitializedError
from tranrepl.model.position import FIRST_POSITION, SEQNOS_PER_PLACE
from tranrepl.publisher.registry import publisher_database


def test_positions_sort_in_commit_order(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    with site.opened() as publisher:
        positions = [publisher.end_of_log()]
        for number in range(3):
            site.server.execute(f"INSERT INTO t VALUES ({number}, 'x', NULL)")
            positions.append(publisher.end_of_log())
        assert sorted(set(positions)) == positions
        seqnos = [it.xact_seqno for it in site.read(publisher)]
        watermarks = [publisher.positions.watermark(it) for it in positions]
    assert sorted([*seqnos, *watermarks]) == [
        watermarks[0],
        seqnos[0],
        watermarks[1],
        seqnos[1],
        watermarks[2],
        seqnos[2],
        watermarks[3],
    ]


def test_the_text_form_of_a_position_reads_back(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    with site.opened() as publisher:
        for position in (publisher.kept_from(), publisher.end_of_log()):
            text = publisher.positions.text(position)
            assert publisher.positions.parse(text) == position
            assert len(text) < 40
        with pytest.raises(ValueError, match=r"^allowed: "):
            publisher.positions.parse("yesterday")


def test_a_transaction_leaves_room_for_watermarks_that_say_the_same(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    site.server.execute("INSERT INTO t VALUES (1, 'x', NULL)", "INSERT INTO t VALUES (2, 'x', NULL)")
    with site.opened() as publisher:
        seqnos = [it.xact_seqno for it in site.read(publisher)]
    assert [int.from_bytes(it, "big") % SEQNOS_PER_PLACE for it in seqnos] == [0, 0]
    assert seqnos[0] < seqnos[1]


def test_a_share_of_the_log_grows_from_its_start_to_its_end(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    with site.opened() as publisher:
        start, positions = site.start(publisher), publisher.positions
        for number in range(4):
            site.server.execute(f"INSERT INTO t VALUES ({number}, 'x', NULL)")
        end, seqnos = publisher.end_of_log(), [it.xact_seqno for it in site.read(publisher)]
    shares = [positions.share(start, end, it) for it in (FIRST_POSITION.value, *seqnos, positions.watermark(end))]
    assert shares == sorted(shares)
    assert (shares[0], 0.9 < shares[-1] <= 1) == (0, True)


def test_what_is_registered_is_proved_to_be_of_this_log(site: PublisherSite) -> None:
    site.server.create("t")
    site.set_up("t")
    with site.opened() as publisher:
        identity, start = publisher.identity(), site.start(publisher)
        known = Registered(start, start, identity.timeline)
        assert publisher.continuation(identity, known).start == start
        publisher.require_unbroken(identity, known)
        site.server.execute("INSERT INTO t VALUES (1, 'x', NULL)")
        (change,) = site.read(publisher)
        ahead = Registered(publisher.end_of_log(), start, identity.timeline, change.xact_seqno)
        found = publisher.continuation(identity, ahead)
        assert start <= found.start <= ahead.position
        assert site.read(publisher, found.start) == []
        site.server.lose_log(publisher)
        with pytest.raises(MustBeReinitializedError) as raised:
            publisher.require_unbroken(identity, known)
    assert "tranrepl reinitialize" in (raised.value.report.remedy or "")


def test_a_kind_that_is_no_publisher_is_told_with_those_that_are(site: PublisherSite) -> None:
    with pytest.raises(ConfigurationError, match="'teradata'") as raised:
        publisher_database(of_another_kind(site.server.connection))
    assert site.server.kind in (raised.value.report.remedy or "")
