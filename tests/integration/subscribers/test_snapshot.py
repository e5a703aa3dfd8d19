"""What a snapshot asks of a Subscriber, the same of every database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.command_history import Column, table_description
from support.subscribers import KEY, Site
from tranrepl.errors import ConfigurationError, DataError, FencedError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article, PreCreation
from tranrepl.subscriber.base.sql_loader import SqlLoader
from tranrepl.subscriber.base.statements import Parameters, Statement
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.snapshot import SnapshotArticle
from tranrepl.subscriber.subscription import SubscriptionPosition

_COLUMNS = (
    Column("id", "integer", key=1),
    Column("name", "text"),
    Column("price", "numeric(9,2)"),
)
_START = (0x1234_5678).to_bytes(8, "big")


def _article(site: Site, command: PreCreation) -> SnapshotArticle:
    settings = {"filter": "id < 1000", "pre_creation_cmd": command}
    article = site.article("item", _COLUMNS, **settings)
    described = table_description(TableName("public", "item"), _COLUMNS)
    asked = Article.model_validate(
        {
            "source": article.source,
            "destination": article.destination,
            **site.kind.commands,
            **settings,
        }
    )
    return SnapshotArticle(article, asked, described, large=True)


def _rows(site: Site) -> list[tuple[Any, ...]]:
    return [
        (int(number), name, None if price is None else f"{float(price):.2f}")
        for number, name, price in site.rows("item")
    ]


_FIRST = b"1\tone\t1.50\n2\ttab\\t line\\n \\\\ \\b\\v\\f\t\\N\n"
_SECOND = b"3\t\\N\t0.00\n"
_LOADED = [(1, "one", "1.50"), (2, "tab\t line\n \\ \b\v\f", None), (3, None, "0.00")]


def test_ranges_are_loaded_once_and_the_watermark_comes_last(plain_site: Site) -> None:
    it = _article(plain_site, PreCreation.NONE)
    dialect = dialect_of(plain_site.connection)
    with dialect.snapshot(plain_site.connection, KEY, "test") as target:
        target.begin("given up", [it], whole=True, not_for_replication=False)
        with dialect.loader(plain_site.connection, KEY, "given up") as loader:
            loader.load(it.article, 1, [_FIRST])
            # The job was killed; its rows are there, and another one begins.
            fence = target.begin("second", [it], whole=True, not_for_replication=False)
            with pytest.raises(FencedError, match="another snapshot"):
                loader.load(it.article, 2, [_SECOND])
        assert plain_site.rows("item") == []
        with dialect.loader(plain_site.connection, KEY, "second") as loader:
            first = loader.load(it.article, 1, [_FIRST, b""])
            loader.load(it.article, 2, [_SECOND])
        assert (first.rows, first.bytes) == (2, len(_FIRST))
        assert sorted((part.number, part.rows) for part in target.loaded("second")) == [(1, 2), (2, 1)]
        target.build(it)
        target.finish([it], [])
        with pytest.raises(FencedError):
            target.end("given up", {it.name: _START}, fence, _START)
        assert FIRST_XACT_SEQNO < plain_site.watermark() < _START
        target.end("second", {it.name: _START}, fence, _START)
        assert target.loaded("second") == []
    with dialect.subscriber(plain_site.connection, KEY, "test") as subscriber:
        assert subscriber.initialized_articles() == {it.name: _START}
    assert plain_site.watermark() == _START
    assert _rows(plain_site) == _LOADED
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        plain_site.execute("INSERT INTO item (id, name) VALUES (1, 'again')")


@pytest.mark.parametrize("kind", ["mariadb statements", "mssql statements"])
def test_a_bulk_insert_names_the_row_that_does_not_fit(
    kind: str, make_site: Callable[[str], Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(kind)
    it = _article(site, PreCreation.NONE)
    dialect = dialect_of(site.connection)
    bound: list[str] = []
    by_itself = SqlLoader._bound

    def noted(self: SqlLoader, at: SqlTarget, prepared: Statement, line: str) -> Parameters:
        bound.append(line)
        return by_itself(self, at, prepared, line)

    monkeypatch.setattr(SqlLoader, "_bound", noted)
    with dialect.snapshot(site.connection, KEY, "test") as target:
        target.begin("first", [it], whole=True, not_for_replication=False)
        with dialect.loader(site.connection, KEY, "first") as loader:
            assert loader.load(it.article, 1, [_FIRST, b"", _SECOND]).rows == 3
            assert bound == []
            with pytest.raises(DataError, match="price"):
                loader.load(it.article, 2, [b"7\tok\t1.00\n8\tno number of theirs\tNaN\n"])
    assert _rows(site) == _LOADED


@pytest.mark.parametrize("kind", ["postgres statements", "sqlite statements"])
def test_rows_that_a_delivery_on_its_way_still_commits_are_in_the_way(
    kind: str, make_site: Callable[[str], Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(kind)
    it = _article(site, PreCreation.NONE)
    locks = Subscriber.position

    def delivered_meanwhile(self: Subscriber) -> SubscriptionPosition:
        site.execute("INSERT INTO item (id, name) VALUES (5, 'delivered')")
        return locks(self)

    monkeypatch.setattr(Subscriber, "position", delivered_meanwhile)
    with dialect_of(site.connection).snapshot(site.connection, KEY, "test") as target:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="holds rows"):
                target.begin("first", [it], whole=True, not_for_replication=False)
    assert len(site.rows("item", "id")) == 1


@pytest.mark.parametrize("command", list(PreCreation))
def test_what_is_done_with_rows_that_are_there(plain_site: Site, command: PreCreation) -> None:
    it = _article(plain_site, command)
    plain_site.execute(
        "INSERT INTO item (id, name) VALUES (5, 'matches')", "INSERT INTO item (id, name) VALUES (5000, 'x')"
    )
    dialect = dialect_of(plain_site.connection)
    with dialect.snapshot(plain_site.connection, KEY, "test") as target:
        if command is PreCreation.NONE:
            with pytest.raises(ConfigurationError, match="holds rows"):
                target.begin("first", [it], whole=True, not_for_replication=False)
        else:
            fence = target.begin("first", [it], whole=False, not_for_replication=False)
            target.build(it)
            target.finish([it], [])
            target.end("first", {it.name: _START}, fence, None)
            # What it began with stays known while the next one loads.
            target.begin("next", [it], whole=False, not_for_replication=False)
            with dialect.subscriber(plain_site.connection, KEY, "test") as subscriber:
                assert subscriber.initialized_articles() == {it.name: _START}
    left = {PreCreation.NONE: [5, 5000], PreCreation.DELETE: [5000]}.get(command, [])
    assert [int(row[0]) for row in plain_site.rows("item", "id")] == left
    # An article that joins leaves the subscription's watermark where it says the same.
    assert int.from_bytes(plain_site.watermark(), "big") < 8
