"""Commands made by hand in the store and the distribution database, as a log reader would leave them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from support.command_history import Column, History, table_description
from support.site import Site
from tranrepl.admin.check import check_publisher
from tranrepl.distributor.command_file import write_commands
from tranrepl.distributor.database import Batch, DistributionDatabase, PublicationRecord, StoredSchemaChange
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import Operation
from tranrepl.model.position import Position
from tranrepl.model.schema_change import SchemaChange
from tranrepl.settings.registration import registered_article


class StoredHistory:
    """What is stored of a site that is set up. Transactions of a `History` are numbered on, eight bytes of log each."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._transactions = self._base = 0
        self._reserved: dict[int, RegisteredArticle] = {}
        with site.topology.distributor() as database:
            record = database.publications.get(site.publication.publication)
            self.articles = {str(it.source): it for it in database.articles.registered(record)}

    def history(self) -> History:
        """Return an empty history, to be stored after what is, and after the Publisher's log as it is."""
        with self._site.topology.publisher("test") as publisher:
            end = int.from_bytes(publisher.end_of_log().value, "big") // 8 * 8
        self._base = end - 8 * self._transactions
        return History(xact=self._transactions)

    def published_definition(self, old: RegisteredArticle) -> RegisteredArticle:
        """Reserve a definition of the table as it is at the Publisher now."""
        tables = check_publisher(self._site.topology).tables
        made = next(registered_article(it, table, old) for it, table in tables if it.source == old.source)
        return self._reserve(made)

    def next_definition(self, old: RegisteredArticle, columns: Sequence[Column]) -> RegisteredArticle:
        """Reserve a definition, as a log reader does before it stores a schema change."""
        setting = next(it for it in self._site.publication.articles if it.source == old.source)
        made = registered_article(setting, table_description(old.source, columns))
        return self._reserve(made.model_copy(update={"source_object_id": old.source_object_id}))

    def _reserve(self, article: RegisteredArticle) -> RegisteredArticle:
        with self._site.topology.distributor() as database:
            (number,) = database.articles.reserve_ids(1)
        self._reserved[number] = article.model_copy(update={"article_id": number})
        return self._reserved[number]

    def store(self, history: History, *, together: bool = False) -> None:
        """Store and register what the history has; then it is empty. A transaction with a schema change is a batch by
        itself, unless all go `together`."""
        self._transactions = history.xact
        rows = [{**row, "xact_seqno": self.seqno(row["xact_seqno"])} for row in history.rows]
        history.rows.clear()
        with self._site.topology.distributor() as database:
            record = database.publications.get(self._site.publication.publication)
            for part in [rows] if together else _batches(rows):
                record = self._register(database, record, part)
            self._move_log(database, record)

    def _move_log(self, database: DistributionDatabase, record: PublicationRecord) -> None:
        """Let the real log end behind what was made, and the slot stand there."""
        self._site.at_publisher("SELECT pg_switch_wal()", "SELECT pg_logical_emit_message(false, 'test', '')")
        with self._site.topology.publisher("test") as publisher:
            end = publisher.end_of_log()
            database.batches.register(record, None, end, proof=None)
            publisher.confirm(end)

    def seqno(self, number: bytes) -> bytes:
        """Return the stored `xact_seqno` of a history's."""
        return (self._base + 8 * int.from_bytes(number, "big")).to_bytes(8, "big")

    def _register(
        self, database: DistributionDatabase, record: PublicationRecord, rows: Sequence[dict[str, Any]]
    ) -> PublicationRecord:
        seqnos = [it["xact_seqno"] for it in rows]
        first, last = min(seqnos), max(seqnos)
        times = [it["commit_time"] for it in rows]
        folder = write_commands(record.store, pa.Table.from_pylist(list(rows), ROW_LAYOUT).to_batches())
        batch = Batch(folder, first, last, min(times), max(times), len(set(seqnos)), len(rows), 100)
        changes = [
            StoredSchemaChange(it["xact_seqno"], it["command_id"], SchemaChange.model_validate_json(it["after"]))
            for it in rows
            if it["operation"] == Operation.SCHEMA
        ]
        new = [it.change.new_article_id for it in changes if it.change.new_article_id is not None]
        definitions = [self._reserved[it] for it in new if it in self._reserved]
        return database.batches.register(record, batch, Position(last), changes, definitions, proof=None)


def _batches(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    altering = {it["xact_seqno"] for it in rows if it["operation"] == Operation.SCHEMA}
    for _, part in groupby(rows, lambda it: it["xact_seqno"] if it["xact_seqno"] in altering else None):
        yield list(part)
