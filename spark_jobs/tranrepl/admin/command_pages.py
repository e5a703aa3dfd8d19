"""Stored commands a page at a time, from any place on, with bounded work for each page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl import garbage_collection
from tranrepl.admin.browse import BrowsedCommand, browsed_command
from tranrepl.distributor.database import Batch, DistributionDatabase, PublicationRecord
from tranrepl.distributor.stored_commands import scan_batch
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO, NO_ARTICLE_ID, Operation
from tranrepl.model.position import seqno_after, seqno_before
from tranrepl.model.row_images import values
from tranrepl.subscriber.base.dialect import Dialect
from tranrepl.subscriber.command_text import command_key_values, key_text

MOST_LOOKED_AT = 50_000
"""Stored commands that are read for a page, whether they fit or not."""
MOST_BATCHES = 30
"""Batches that are read for a page: opening a file costs about as much as reading a hundred commands."""
_WITHOUT_VALUES = ("xact_seqno", "command_id", "commit_time", "article_id", "operation")
_IMAGES = ("before", "after")


@dataclass(frozen=True, slots=True, order=True)
class CommandPlace:
    """A place in the order of commands: that of a command, whether it is stored or not."""

    xact_seqno: bytes = FIRST_XACT_SEQNO
    command_id: int = 0


@dataclass(frozen=True, slots=True)
class CommandChoice:
    """Which commands a page shows, and how many at most. `key`: the values of a key's columns, as in `5` or `5, b`, or
    as errors name them, `id = 5`."""

    begin: CommandPlace = CommandPlace()
    article: str | None = None
    key: str | None = None
    most: int = 100


@dataclass(frozen=True, slots=True)
class CommandPage:
    commands: Sequence[BrowsedCommand]
    next: CommandPlace | None
    """Where the next page begins; None where nothing follows. A page that shows nothing may have one: so far was
    looked."""


@dataclass(slots=True)
class CountedTransaction:
    """What a transaction holds, without a value of it."""

    xact_seqno: str
    commit_time: datetime
    commands: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By article (empty for what is of none) and operation."""


@dataclass(frozen=True, slots=True)
class TransactionPage:
    transactions: Sequence[CountedTransaction]
    """One that holds more than is looked at goes on, on the next page."""
    next: CommandPlace | None


@dataclass(frozen=True, slots=True)
class CommandRow:
    """The row that a command is of: its key, as it was before and as it is after an UPDATE of it."""

    article: RegisteredArticle
    key: Sequence[tuple[str, str | None]]
    new_key: Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class StoredCommands:
    """The stored commands of a publication. Its methods raise ConfigurationError where the publication is not set up,
    or its store cannot be read from here."""

    database: DistributionDatabase
    publication: str
    dialect: Dialect | None = None
    """That of the Subscriber whose procedures and statements are shown."""
    subscription: str | None = None
    """That Subscriber's, whose destinations are named."""

    def page(self, choice: CommandChoice) -> CommandPage:
        """Return commands with their values."""
        record, batches, articles = self._opened(choice.begin)
        shown: list[BrowsedCommand] = []
        reading = _Reading(record, batches, choice.begin)
        for table in reading.tables():
            for row in _rows(table, _fitting(table, choice, articles)):
                if choice.key is not None and not _has_key(row, articles, choice.key):
                    continue
                if len(shown) == choice.most:
                    return CommandPage(shown, CommandPlace(row["xact_seqno"], row["command_id"]))
                shown.append(browsed_command(row, articles, self.dialect))
        return CommandPage(shown, reading.next)

    def transactions(self, choice: CommandChoice) -> TransactionPage:
        """Return transactions with counts, at most `choice.most`; no value is read, and `choice.key` left out."""
        record, batches, articles = self._opened(choice.begin)
        found: dict[bytes, CountedTransaction] = {}
        reading = _Reading(record, batches, choice.begin, _WITHOUT_VALUES)
        for table in reading.tables():
            for row in _counted(table.filter(_fitting(table, choice, articles))):
                seqno = row["xact_seqno"]
                if seqno not in found and len(found) == choice.most:
                    return TransactionPage(list(found.values()), CommandPlace(seqno))
                one = found.setdefault(seqno, CountedTransaction(seqno.hex(), row["commit_time_min"]))
                name = _source(articles, row["article_id"])
                one.commands[name, Operation(row["operation"]).name] += row["command_id_count"]
        return TransactionPage(list(found.values()), reading.next)

    def command(self, place: CommandPlace) -> BrowsedCommand | None:
        """Return one command; None where it is not stored."""
        for row, articles in self._at(place):
            return browsed_command(row, articles, self.dialect)
        return None

    def row_of(self, place: CommandPlace) -> CommandRow | None:
        """Return which row a command is of; None where it is not stored, or of no single row."""
        for row, articles in self._at(place):
            article = articles.get(row["article_id"])
            if article is None:
                return None
            operation = Operation(row["operation"])
            found = command_key_values(article, operation, row)
            if found is None or operation is not Operation.UPDATE:
                return None if found is None else CommandRow(article, found, found)
            # An after image has no values of columns that stay, in most call syntaxes.
            new = command_key_values(article, Operation.INSERT, row) or found
            kept = [(name, old if value is None else value) for (name, old), (_, value) in zip(found, new, strict=True)]
            return CommandRow(article, found, kept)
        return None

    def _at(self, place: CommandPlace) -> Iterator[tuple[Mapping[str, Any], dict[int, RegisteredArticle]]]:
        record, batches, articles = self._opened(place)
        same = (pc.field("xact_seqno") == pa.scalar(place.xact_seqno, pa.binary())) & (
            pc.field("command_id") == place.command_id
        )
        for batch in batches:
            if batch.first_xact_seqno > place.xact_seqno:
                return
            for table in scan_batch(record, batch, same):
                for row in table.to_pylist():
                    yield row, articles

    @garbage_collection.paused()
    def _opened(self, begin: CommandPlace) -> tuple[PublicationRecord, list[Batch], dict[int, RegisteredArticle]]:
        record = self.database.publications.get(self.publication)
        before = b"" if begin.xact_seqno == FIRST_XACT_SEQNO else seqno_before(begin.xact_seqno)
        batches = self.database.batches.after(record, before, MOST_BATCHES)
        return record, batches, self.database.articles.by_id(record, self.subscription)


class _Reading:
    """Reads batches one after the other, and knows where it has stopped."""

    def __init__(
        self,
        record: PublicationRecord,
        batches: Sequence[Batch],
        begin: CommandPlace,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._record = record
        self._batches = batches
        self._begin = begin
        self._columns = columns
        self.next: CommandPlace | None = None
        """Where to go on, once all tables were taken; None where nothing is left."""

    def tables(self) -> Iterator[pa.Table]:
        looked_at = 0
        for batch in self._batches:
            for table in scan_batch(self._record, batch, self._later(), self._columns):
                if not len(table):
                    continue
                if looked_at >= MOST_LOOKED_AT:
                    self.next = CommandPlace(table["xact_seqno"][0].as_py(), table["command_id"][0].as_py())
                    return
                looked_at += len(table)
                yield table
        if len(self._batches) == MOST_BATCHES:
            self.next = CommandPlace(seqno_after(self._batches[-1].last_xact_seqno))

    def _later(self) -> pc.Expression:
        seqno = pa.scalar(self._begin.xact_seqno, pa.binary())
        same = (pc.field("xact_seqno") == seqno) & (pc.field("command_id") >= self._begin.command_id)
        return (pc.field("xact_seqno") > seqno) | same


def _fitting(table: pa.Table, choice: CommandChoice, articles: Mapping[int, RegisteredArticle]) -> pa.Array:
    """Return which commands are of the article and may be of the key."""
    fitting = pa.array([True] * len(table))
    if choice.article is not None:
        ids = [number for number, article in articles.items() if str(article.source) == choice.article]
        fitting = pc.and_(fitting, pc.is_in(table["article_id"], pa.array(ids, pa.int32())))
    if choice.key is not None and set(_IMAGES) <= set(table.column_names):
        part = _part_of(choice.key)
        holding = [pc.fill_null(pc.match_substring(table[it], part), False) for it in _IMAGES]
        fitting = pc.and_(fitting, pc.or_(*holding))
    return fitting


def _part_of(key: str) -> str:
    """Return a part of the key that any image of its row has, escaped or not."""
    return max(re.findall(r"[0-9A-Za-z]+", key.rpartition(" = ")[2]), key=len, default="")


def _has_key(row: Mapping[str, Any], articles: Mapping[int, RegisteredArticle], key: str) -> bool:
    if row["article_id"] == NO_ARTICLE_ID or row["operation"] in (Operation.SCHEMA, Operation.TRUNCATE):
        return False
    article = articles[row["article_id"]]
    for line in filter(None, (row[it] for it in _IMAGES)):
        found = values(line)
        named = [(article.columns[at].name, found[at] if at < len(found) else None) for at in article.key_positions]
        if key in (key_text(named), ", ".join(str(value) for _, value in named)):
            return True
    return False


def _rows(table: pa.Table, fitting: pa.Array) -> Iterator[Mapping[str, Any]]:
    """Yield rows one by one: their values may be large."""
    for at in pc.indices_nonzero(fitting).to_pylist():
        yield from table.slice(at, 1).to_pylist()


def _counted(table: pa.Table) -> list[Mapping[str, Any]]:
    """Return the number of commands by transaction, article and operation, in the order of transactions."""
    by = ["xact_seqno", "article_id", "operation"]
    counted = table.group_by(by, use_threads=False).aggregate([("command_id", "count"), ("commit_time", "min")])
    # Arrow numbers groups by a hash, at times not in the order of the rows.
    rows: list[Mapping[str, Any]] = counted.sort_by("xact_seqno").to_pylist()
    return rows


def _source(articles: Mapping[int, RegisteredArticle], article_id: int) -> str:
    return "" if article_id == NO_ARTICLE_ID else str(articles[article_id].source)
