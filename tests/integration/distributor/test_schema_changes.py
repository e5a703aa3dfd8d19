"""Schema changes in the distribution database: registered with their batch, forgotten with it, gone with teardown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.observed import ITEM, distribution_rows
from support.site import Site
from tranrepl.distributor.database import Batch, DistributionDatabase, PublicationRecord, StoredSchemaChange
from tranrepl.distributor.teardown import remove_publication
from tranrepl.errors import FencedError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.model.schema_change import ColumnAction, ColumnChange, SchemaChange

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_STATUSES = "SELECT article_id, status FROM msarticles ORDER BY article_id"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.item"])
    site.at_publisher(ITEM)
    site.set_up()
    return site


def _seqno(number: int) -> bytes:
    return (number * 8).to_bytes(8, "big")


def _after(article: RegisteredArticle, new: RegisteredArticle | None, number: int) -> StoredSchemaChange:
    change = SchemaChange(
        source=article.source,
        article_id=article.article_id,
        new_article_id=None if new is None else new.article_id,
        tag="ALTER TABLE",
        columns=(ColumnChange(action=ColumnAction.DROP, column="quantity"),),
        notes=("a note",),
    )
    return StoredSchemaChange(_seqno(number), number, change)


def _registered(
    database: DistributionDatabase,
    record: PublicationRecord,
    number: int,
    *changes: StoredSchemaChange,
    definitions: Sequence[RegisteredArticle] = (),
) -> PublicationRecord:
    batch = Batch(f"folder-{number}", _seqno(number), _seqno(number), _NOW, _NOW, 1, 1, 100)
    end = Position(_seqno((int.from_bytes((record.registered_to or Position(bytes(8))).value, "big") // 8) + 1))
    return database.batches.register(record, batch, end, changes, definitions, proof=None)


def test_definitions_hold_from_no_position_of_a_log_that_is_forgotten(site: Site) -> None:
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        (known,) = database.articles.registered(record)
        assert known.source_definition.holds_from > FIRST_POSITION
        database.publications.forget_log(record, {})
        (left,) = database.articles.registered(record)
    assert left.source_definition == known.source_definition.model_copy(update={"holds_from": FIRST_POSITION})


def test_a_schema_change_is_registered_with_its_definitions_and_forgotten(site: Site) -> None:
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        (old,) = database.articles.registered(record)
        first, second = (old.model_copy(update={"article_id": it}) for it in database.articles.reserve_ids(2))
        assert database.articles.registered(record) == [old]
        changes = [_after(old, first, 1), _after(first, second, 2)]
        record = _registered(database, record, 2, *changes, definitions=[first, second])
        assert database.articles.registered(record) == [second]
        assert database.schema_changes.after(record, bytes(8)) == changes
        assert database.schema_changes.after(record, _seqno(1)) == changes[1:]
        record = _registered(database, record, 3, _after(second, None, 3))
        assert database.articles.registered(record) == []
        assert distribution_rows(site, _STATUSES) == [
            (old.article_id, "inactive"),
            (first.article_id, "inactive"),
            (second.article_id, "ended"),
        ]
        assert database.articles.by_id(record)[second.article_id] == second
        database.batches.remove(record, _seqno(2), timedelta(0))
        assert [it.command_id for it in database.schema_changes.after(record, bytes(8))] == [3]
        remove_publication(database, record)
        assert distribution_rows(site, "SELECT * FROM msschema_changes") == []


def test_a_schema_change_of_a_fenced_log_reader_is_not_registered(site: Site) -> None:
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        (old,) = database.articles.registered(record)
        new = old.model_copy(update={"article_id": database.articles.reserve_ids(1)[0]})
        _registered(database, record, 1)
        with pytest.raises(FencedError):
            _registered(database, record, 2, _after(old, new, 2), definitions=[new])
        assert database.schema_changes.after(record, bytes(8)) == []
    assert distribution_rows(site, _STATUSES) == [(old.article_id, "active")]
