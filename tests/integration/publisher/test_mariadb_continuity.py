"""Whether a MariaDB server's log is the one that was read: purged, reset, and written again so that it fits."""

from __future__ import annotations

import re

import pytest

from support.mariadb import MariaDbServer
from support.publishers import PublisherSite, Registered, mariadb_under_test
from tranrepl.errors import INCONSISTENT_DISTRIBUTION_DATABASE, DataError, MustBeReinitializedError
from tranrepl.publisher.log_range import LogReadError

_INSERT = "INSERT INTO t VALUES (1, 'x', NULL)"
_OTHERS = "INSERT INTO u VALUES (1, 'x', NULL)"
_AT = "SET SESSION timestamp = {}"


@pytest.fixture
def site(mariadb_shop: MariaDbServer) -> PublisherSite:
    """Return a publication of table `t` whose log begins with nothing."""
    site = PublisherSite(mariadb_under_test(mariadb_shop, "shop"))
    mariadb_shop.execute("DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS u", database="shop")
    site.server.create("t")
    site.server.create("u")
    # The first set-up on a server writes the table of messages.
    site.set_up("t")
    mariadb_shop.execute(mariadb_shop.reset_log)
    site.begins = None
    site.set_up("t")
    return site


def _registered(site: PublisherSite, *statements: str) -> Registered:
    """Return what is registered once these transactions were read."""
    site.server.execute(*statements)
    with site.opened() as publisher:
        changes, end = site.read(publisher), publisher.end_of_log()
        last = changes[-1].xact_seqno if changes else None
        timeline = publisher.identity().timeline
        return Registered(end, site.begins, timeline, last, proof=publisher.proof(end, last))


def _refusal(site: PublisherSite, registered: Registered) -> MustBeReinitializedError | None:
    with site.opened() as publisher:
        try:
            publisher.require_unbroken(publisher.identity(), registered)
        except MustBeReinitializedError as error:
            return error
    return None


def test_the_same_log_is_read_on_after_its_older_files_were_purged(site: PublisherSite) -> None:
    registered = _registered(site, _INSERT)
    site.server.execute(_INSERT.replace("1", "2", 1), "FLUSH BINARY LOGS")
    assert _refusal(site, registered) is None
    later = _registered(site, "FLUSH BINARY LOGS", _OTHERS)
    later = Registered(
        later.position, later.start, later.timeline, registered.last, proof=_proof(site, later, registered)
    )
    with site.opened() as publisher:
        site.server.execute(f"PURGE BINARY LOGS TO '{publisher.log.file(3)}'")  # type: ignore[attr-defined]
    assert _refusal(site, later) is None
    gone = _refusal(site, registered)
    assert gone is not None
    assert ("it was purged" in gone.report.message, gone.report.number) == (True, None)


def _proof(site: PublisherSite, at: Registered, last: Registered) -> str | None:
    with site.opened() as publisher:
        return publisher.proof(at.position, last.last)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([_INSERT], [], id="reset"),
        pytest.param([_INSERT], [_AT.format(1_000_000_000), _INSERT], id="the same bytes at an earlier time"),
        pytest.param([_INSERT, _OTHERS], [_AT.format(1_000_000_000), _INSERT, _OTHERS], id="and others after it"),
        pytest.param([_OTHERS], ["SET SESSION gtid_domain_id = 7", _OTHERS], id="nothing of ours, another domain"),
    ],
)
def test_a_log_that_was_begun_again_is_refused_though_it_fits(
    mariadb_shop: MariaDbServer, site: PublisherSite, before: list[str], after: list[str]
) -> None:
    registered = _registered(site, *before)
    if mariadb_shop.kind == "mysql":
        # It has no domains, and bytes that differ in their times alone.
        after = [it for it in after if "domain" not in it]
    site.server.execute("TRUNCATE TABLE t", "TRUNCATE TABLE u", mariadb_shop.reset_log, *after)
    if after:
        with site.opened() as publisher:
            assert publisher.end_of_log() == registered.position
    error = _refusal(site, registered)
    assert error is not None
    assert error.report.number == INCONSISTENT_DISTRIBUTION_DATABASE
    assert "it was reset, or the server was restored" in error.report.message


def test_an_event_that_is_damaged_in_its_file_is_an_error_that_names_its_place(
    mariadb_shop: MariaDbServer, site: PublisherSite
) -> None:
    """A server does not send all events of a file: their places count."""
    others = [f"INSERT INTO t VALUES ({number}, '', NULL)" for number in range(10, 20)]
    site.server.execute(_INSERT, *others, "INSERT INTO t VALUES (2, 'a text', NULL)", "FLUSH BINARY LOGS")
    with site.opened() as publisher:
        changes, end = site.read(publisher), publisher.end_of_log()
        assert len(changes) == 12
        file = mariadb_shop.log_file(publisher.log.file(1))  # type: ignore[attr-defined]
        content = file.read_bytes()
        place = content.rindex(b"a text")
        file.write_bytes(content[:place] + b"a tent" + content[place + 6 :])
        try:
            with pytest.raises(LogReadError) as caught:
                site.read(publisher, up_to=end)
        finally:
            file.write_bytes(content)
    error = caught.value.error
    assert isinstance(error, DataError)
    named = re.search(r"file 000001, offset (\d+) is damaged", error.message)
    assert named is not None
    # MariaDB 11.8 says the place of the group alone: what it did not send of that is not counted.
    assert 0 < place - int(named[1]) < 150
