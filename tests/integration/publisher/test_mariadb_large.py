"""Transactions that are too large to be held are passed on in parts: the commands are the same."""

from __future__ import annotations

from itertools import cycle, islice

import pyarrow as pa
import pytest

from support.mariadb import MariaDbServer
from support.publishers import NO_LIMITS, PublisherSite, mariadb_under_test, of_mariadb
from support.unpacked_servers import UnpackedMariaDbServer
from tranrepl.errors import ErrorKind
from tranrepl.log_reader.reading import read_commands
from tranrepl.publisher.log_read import LogRead
from tranrepl.publisher.mysql import dump, log_range
from tranrepl.publisher.mysql.positions import place_of, position_of

_ROWS = """INSERT INTO {} WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 999)
    SELECT {} + n, repeat('x', 30), repeat('y', n % 40) FROM n"""


@pytest.fixture
def site(mariadb_shop: MariaDbServer) -> PublisherSite:
    mariadb_shop.execute("DROP TABLE IF EXISTS t, u, other, plain", database="shop")
    site = PublisherSite(mariadb_under_test(mariadb_shop, "shop"))
    for name in ("t", "u", "other"):
        site.server.create(name)
    site.set_up("t", "u")
    with site.opened() as publisher:
        site.begins = publisher.end_of_log()
    return site


def _commands(site: PublisherSite) -> tuple[pa.Table | None, int, LogRead]:
    """Return the commands since the site was made, how many batches of them came, and the account."""
    accounts: list[LogRead] = []
    with site.opened() as publisher:
        assert site.begins is not None
        log = publisher.log_range(site.articles, site.begins, publisher.end_of_log(), NO_LIMITS)
        batches = list(read_commands(log, accounts.append))
    return pa.Table.from_batches(batches) if batches else None, len(batches), accounts[-1]


def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "_CHUNK", 16_000)
    monkeypatch.setattr(log_range, "_HELD_BYTES", 20_000)


def _change(site: PublisherSite, *statements: str) -> None:
    with site.server.session() as session:
        for it in statements:
            session.execute(it)
        session.commit()


def test_the_commands_of_a_large_transaction_are_those_of_one_that_is_held(
    mariadb_shop: MariaDbServer, site: PublisherSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _change(site, "INSERT INTO t VALUES (-1, 'before', NULL)")
    _change(
        site,
        *(_ROWS.format(table, at) for at in (0, 1000) for table in ("t", "other", "u")),
        "UPDATE t JOIN u USING (id) SET t.name = 'both', u.name = 'both' WHERE id < 1500",
        "SAVEPOINT a",
        _ROWS.format("t", 2000),
        "ROLLBACK TO SAVEPOINT a",
        "DELETE FROM t WHERE id % 2 = 0",
    )
    _change(site, *(_ROWS.format("other", at) for at in (2000, 3000)))
    _change(site, "INSERT INTO t VALUES (-2, 'after', NULL)", "UPDATE u SET id = -id WHERE id = 5")
    whole, _, first = _commands(site)
    _in_parts(monkeypatch)
    parts, count, second = _commands(site)
    assert whole is not None
    assert parts is not None
    assert (first.complete, second.complete) == (True, True)
    assert parts.equals(whole)
    assert (second.transactions, second.last_commit, second.end) == (first.transactions, first.last_commit, first.end)
    assert count > 10
    # Each stream ends after some chunks, as where a server has not synchronized more of its log.
    chunks, lengths = dump.BinlogDump.chunks, cycle((3, 1, 2))
    monkeypatch.setattr(dump.BinlogDump, "chunks", lambda self: islice(chunks(self), next(lengths)))
    monkeypatch.setattr(dump, "_WAITS", [0.0] * 1000)
    cut, _, third = _commands(site)
    assert cut is not None
    assert cut.equals(whole.slice(0, cut.num_rows))
    if isinstance(mariadb_shop, UnpackedMariaDbServer):
        # It does not say where one could go on within a group.
        assert third.error is not None
        assert third.error.kind is ErrorKind.TRANSIENT
    else:
        assert (third.end, cut.num_rows) == (first.end, whole.num_rows)


@of_mariadb
def test_what_a_savepoint_undoes_of_a_large_transaction_is_not_read(
    mariadb_shop: MariaDbServer, site: PublisherSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such rows are in the log where a table without transactions was changed too."""
    site.server.execute("CREATE TABLE plain (id int PRIMARY KEY) ENGINE=MyISAM")
    statements = [
        *(_ROWS.format(table, at) for at in (0, 1000) for table in ("t", "u")),
        "SAVEPOINT a",
        _ROWS.format("t", 2000),
        "INSERT INTO plain VALUES ({})",
        "ROLLBACK TO SAVEPOINT a",
        _ROWS.format("u", 2000),
    ]
    _change(site, *(it.format(1) for it in statements))
    whole, _, _ = _commands(site)
    _in_parts(monkeypatch)
    parts, count, account = _commands(site)
    assert (account.complete, count > 3) == (True, True)
    assert parts is not None
    assert parts.equals(whole)
    with site.server.session() as session:
        for it in ("DELETE FROM t", "CREATE TEMPORARY TABLE x (id int)", "DELETE FROM u"):
            session.execute(it)
        session.rollback()
    _, _, account = _commands(site)
    assert account.error is not None
    assert account.error.kind is ErrorKind.DATA
    assert "was rolled back" in account.error.message


def test_a_large_transaction_without_its_end_is_an_error_and_no_commands(
    site: PublisherSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the server ended while it wrote it: it does not have its rows."""
    _in_parts(monkeypatch)
    _change(site, *(_ROWS.format("t", at) for at in range(0, 4000, 1000)))
    monkeypatch.setattr(log_range, "blocks", lambda *of: (it for it in islice(dump.blocks(*of), 8)))
    _, count, account = _commands(site)
    assert count > 1
    assert account.error is not None
    assert (account.error.kind, "and not its end" in account.error.message) == (ErrorKind.DATA, True)


def test_a_stream_that_ends_before_the_log_does_is_an_error(
    site: PublisherSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server ends the stream of a session that is killed as at the log's end: what comes after would be lost."""
    monkeypatch.setattr(dump, "_WAITS", (0.0,))
    _change(site, "INSERT INTO t VALUES (1, 'one', NULL)")
    accounts: list[LogRead] = []
    with site.opened() as publisher:
        assert site.begins is not None
        end = publisher.end_of_log()
        for up_to in (end, position_of(place_of(end) + 1)):
            log = publisher.log_range(site.articles, site.begins, up_to, NO_LIMITS)
            assert sum(map(len, read_commands(log, accounts.append))) == 1
    whole, cut = accounts
    assert whole.complete
    assert whole.end == end
    assert cut.error is not None
    assert (cut.error.kind, cut.end) == (ErrorKind.TRANSIENT, None)
