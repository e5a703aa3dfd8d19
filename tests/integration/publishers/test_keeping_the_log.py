"""The log is retained from where it is registered, no further and no longer; a probe says whether there is more."""

from __future__ import annotations

import pytest

from support.publishers import NO_LIMITS, PublisherSite
from tranrepl.errors import MustBeReinitializedError
from tranrepl.publisher.log_range import Limits


def _site(site: PublisherSite, rows: int = 0) -> PublisherSite:
    site.server.create("t")
    site.server.create("other")
    site.set_up("t")
    site.server.execute(*(f"INSERT INTO t VALUES ({number}, 'x', NULL)" for number in range(rows)))
    return site


def test_nothing_that_was_not_confirmed_is_given_up(site: PublisherSite) -> None:
    _site(site, rows=6)
    with site.opened() as publisher:
        whole = site.read(publisher)
        end = site.parts(publisher, limits=Limits(2, NO_LIMITS.message_bytes))[-1].end
        assert end is not None
        publisher.confirm(end)
        assert site.start(publisher) <= end
    with site.opened() as publisher:
        assert site.read(publisher, start=end) == whole[2:]
        publisher.confirm(publisher.end_of_log())
        assert site.read(publisher, start=publisher.kept_from()) == []


def test_confirming_again_what_is_confirmed_changes_nothing(site: PublisherSite) -> None:
    _site(site, rows=3)
    with site.opened() as publisher:
        start, end = publisher.kept_from(), publisher.end_of_log()
        publisher.confirm(end)
        kept = publisher.kept_from()
        for position in (end, start):
            publisher.confirm(position)
            publisher.catch_up(position)
        assert publisher.kept_from() == kept


def test_a_change_that_is_open_while_the_log_is_confirmed_is_read_later(site: PublisherSite) -> None:
    _site(site)
    with site.server.session() as session:
        session.execute("INSERT INTO t VALUES (1, 'x', NULL)")
        with site.opened() as publisher:
            up_to = publisher.end_of_log()
            assert not site.probe(publisher, up_to).found_change
            publisher.confirm(up_to)
            session.commit()
            assert [it.after for it in site.read(publisher, start=up_to)] == [("1", "x", None)]


def test_a_probe_finds_a_change_and_nothing_where_there_is_none(site: PublisherSite) -> None:
    _site(site)
    with site.opened() as publisher:
        site.server.execute("INSERT INTO other VALUES (1, 'x', NULL)")
        up_to = publisher.end_of_log()
        probe = site.probe(publisher, up_to)
        while not probe.found_change and probe.empty_up_to < up_to:
            # It may pass over the log part by part.
            publisher.confirm(probe.empty_up_to)
            probe = site.probe(publisher, up_to)
        assert (probe.found_change, probe.empty_up_to) == (False, up_to)
        site.server.execute("INSERT INTO t VALUES (1, 'x', NULL)")
        assert site.probe(publisher, publisher.end_of_log()).found_change
        assert not site.probe(publisher, up_to).found_change


def test_the_log_may_be_read_to_where_it_is_written(site: PublisherSite) -> None:
    _site(site, rows=1)
    said: list[str] = []
    with site.opened() as publisher:
        end = publisher.end_of_log()
        assert publisher.readable_end_of_log(said.append) >= end
        assert publisher.readers() >= 1
        publisher.require_session()
        publisher.require_unread()
    assert said == []


def test_health_tells_how_much_log_is_unread_and_kept(site: PublisherSite) -> None:
    _site(site)
    with site.opened() as publisher:
        publisher.confirm(publisher.end_of_log())
        before = publisher.health()
        site.server.execute(*(f"INSERT INTO t VALUES ({number}, 'x', NULL)" for number in range(50)))
        after = publisher.health()
        assert (before.name, before.state is None, before.waits_for) == (publisher.name, False, None)
        if site.server.keeps_log:
            assert (before.unread_bytes or 0) + 50 * 30 <= (after.unread_bytes or 0)
        assert before.retained is not None
        assert after.retained is not None
        assert (before.retained.size or 0) < (after.retained.size or 0)


def test_a_log_that_is_kept_no_more_is_told_with_the_way_on(site: PublisherSite) -> None:
    _site(site, rows=1)
    with site.opened() as publisher:
        assert len(publisher.forget_log()) == site.server.keeps_log
        assert publisher.forget_log() == []
        if not site.server.keeps_log:
            publisher.require_kept()
            return
        assert publisher.health().state is None
        for question in (publisher.kept_from, publisher.require_kept):
            with pytest.raises(MustBeReinitializedError) as raised:
                question()
            assert "tranrepl reinitialize" in (raised.value.report.remedy or "")
