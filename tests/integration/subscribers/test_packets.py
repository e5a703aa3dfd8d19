"""Values that are larger than MariaDB's max_allowed_packet: the one that is says so, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.command_history import Column, History, table_description
from support.mariadb import MariaDbServer
from support.subscribers import KEY, STATEMENTS, Kind, Site
from tranrepl.errors import DataError, ErrorKind
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Apply, Article, PreCreation
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.snapshot import SnapshotArticle

_PACKET = 1 << 20
_LARGE = "€" * _PACKET
_COLUMNS = (Column("id", "integer", key=1), Column("note", "text"))
_START = (0x1234_5678).to_bytes(8, "big")


@pytest.fixture(scope="module")
def small_packets(mariadb: MariaDbServer) -> Iterator[MariaDbServer]:
    """Yield the run's MariaDB, which takes packets of 1 MB until the end of these tests."""
    yield mariadb
    mariadb.execute("SET GLOBAL max_allowed_packet = DEFAULT")


@pytest.fixture(params=["statements", "procedures"])
def site(request: pytest.FixtureRequest, small_packets: MariaDbServer) -> Iterator[Site]:
    name = f"subscriber_{request.param}"
    small_packets.execute(f"SET GLOBAL max_allowed_packet = {_PACKET}", f"CREATE DATABASE {name}")
    kind = Kind("mariadb", STATEMENTS if request.param == "statements" else {}, request.param)
    yield Site(
        kind, small_packets.connection(name), lambda *it: small_packets.execute(*it, database=name), name, chunk=1000
    )
    small_packets.execute(f"DROP DATABASE {name}")


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("apply", list(Apply))
@pytest.mark.parametrize("large", [_LARGE, "'" * (_PACKET // 2)], ids=["large", "large once quoted"])
def test_a_value_too_large_is_named_and_goes_once_the_setting_is_larger(
    site: Site, small_packets: MariaDbServer, apply: Apply, large: str
) -> None:
    article = site.article("item", _COLUMNS)
    options = ApplierOptions(apply=apply)
    small = History().insert(article, ("1", "one")).insert(article, ("2", "x" * (_PACKET - 1000)))
    assert site.deliver(small, options=options).error is None
    before = site.rows("item")
    changes = {
        "3": History(xact=small.xact).transaction().insert(article, ("3", large)),
        "1": History(xact=small.xact).transaction().update(article, ("1", "one"), ("1", large)),
    }
    for key, history in changes.items():
        result = site.deliver(history, site.watermark(), options=options)
        assert result.error is not None
        assert (result.error.kind, result.error.database_code) == (ErrorKind.DATA, "1153")
        assert result.error.article == "public.item"
        assert f"id = {key}" in result.error.message
        assert f"max_allowed_packet is {_PACKET}" in result.error.message
        assert "SET GLOBAL max_allowed_packet" in (result.error.remedy or "")
        assert site.rows("item") == before
    small_packets.execute(f"SET GLOBAL max_allowed_packet = {64 * _PACKET}")
    both = changes["3"].update(article, ("1", "one"), ("1", large))
    assert site.deliver(both, site.watermark(), options=options).error is None
    assert site.rows("item") == [(1, large), before[1], (3, large)]


def test_many_rows_go_in_bulk_whatever_a_packet_holds(site: Site, small_packets: MariaDbServer) -> None:
    small_packets.execute("SET GLOBAL max_allowed_packet = 65536")
    article = site.article("item", _COLUMNS)
    history = History()
    for number in range(4000):
        history.insert(article, (str(number), f"{number} " * 100))
    result = site.deliver(history)
    assert (result.error, result.in_bulk, result.fallbacks) == (None, 4000, {})
    assert site.rows("item") == [(number, f"{number} " * 100) for number in range(4000)]


def test_a_snapshot_names_the_row_that_is_too_large(site: Site, small_packets: MariaDbServer) -> None:
    article = site.article("item", _COLUMNS)
    asked = Article.model_validate(
        {"source": article.source, "destination": article.destination, "pre_creation_cmd": PreCreation.NONE}
    )
    described = table_description(TableName("public", "item"), _COLUMNS)
    it = SnapshotArticle(article, asked, described, large=True)
    chunk = f"1\tone\n2\t{_LARGE}\n3\t\\N\n".encode()
    dialect = dialect_of(site.connection)
    with dialect.snapshot(site.connection, KEY, "test") as target:
        target.begin("first", [it], whole=True, not_for_replication=False)
        with dialect.loader(site.connection, KEY, "first") as loader, pytest.raises(DataError) as refused:
            loader.load(article, 1, [chunk])
        assert (refused.value.report.database_code, refused.value.report.article) == ("1153", "public.item")
        assert "id = 2" in refused.value.message
        assert f"max_allowed_packet is {_PACKET}" in refused.value.message
        small_packets.execute(f"SET GLOBAL max_allowed_packet = {64 * _PACKET}")
        with dialect.loader(site.connection, KEY, "first") as loader:
            loader.load(article, 1, [chunk])
    assert site.rows("item") == [(1, "one"), (2, _LARGE), (3, None)]
    assert FIRST_XACT_SEQNO < site.watermark() < _START


def test_check_warns_of_a_small_packet(site: Site, small_packets: MariaDbServer) -> None:
    article = Article.model_validate({"source": "public.item", **site.kind.commands})
    described = [(article, table_description(article.source, _COLUMNS))]

    def warnings() -> list[str]:
        with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
            return list(subscriber.warnings(described))

    (warning,) = warnings()
    assert f"max_allowed_packet is {_PACKET}" in warning
    assert "public.item" in warning
    assert "SET GLOBAL max_allowed_packet" in warning
    small_packets.execute(f"SET GLOBAL max_allowed_packet = {64 * _PACKET}")
    assert warnings() == []
