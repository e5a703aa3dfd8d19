"""`tranrepl browse`: stored commands as SQL Server's `sp_browsereplcmds` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.distributor.stored_commands import scan_batch
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import NO_ARTICLE_ID, Operation
from tranrepl.subscriber.base.dialect import Dialect
from tranrepl.subscriber.capabilities import NameLimit
from tranrepl.subscriber.command_text import command_text, message_text


@dataclass(frozen=True, slots=True)
class BrowsedCommand:
    xact_seqno: str
    command_id: int
    commit_time: datetime
    article: str
    """Empty for a script and a tracer token."""
    operation: str
    command: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which commands to show; bounds of `xact_seqno` are inclusive."""

    first: bytes | None = None
    last: bytes | None = None
    article: str | None = None


def browse(
    record: PublicationRecord,
    batches: Sequence[Batch],
    articles: Mapping[int, RegisteredArticle],
    selection: Selection,
    dialect: Dialect,
) -> Iterator[BrowsedCommand]:
    """Yield stored commands in order, as a Subscriber of that kind gets them: with the names of procedures.

    Raises ConfigurationError where the store cannot be read from here.
    """
    for batch in batches:
        if selection.first is not None and batch.last_xact_seqno < selection.first:
            continue
        if selection.last is not None and batch.first_xact_seqno > selection.last:
            return
        for commands in scan_batch(record, batch, _chosen(selection, articles)):
            for row in commands.to_pylist():
                yield browsed_command(row, articles, dialect)


def browsed_command(
    row: Mapping[str, Any], articles: Mapping[int, RegisteredArticle], dialect: Dialect | None
) -> BrowsedCommand:
    """Return a stored command (row layout) as it is shown."""
    if row["article_id"] == NO_ARTICLE_ID:
        return _browsed_message(row)
    return _browsed(row, articles, dialect)


def _chosen(selection: Selection, articles: Mapping[int, RegisteredArticle]) -> pc.Expression:
    chosen = pc.scalar(True)
    if selection.first is not None:
        chosen &= pc.field("xact_seqno") >= pa.scalar(selection.first, pa.binary())
    if selection.last is not None:
        chosen &= pc.field("xact_seqno") <= pa.scalar(selection.last, pa.binary())
    if selection.article is not None:
        ids = [number for number, article in articles.items() if str(article.source) == selection.article]
        chosen &= pc.field("article_id").isin(ids)
    return chosen


def _browsed(
    row: Mapping[str, Any], articles: Mapping[int, RegisteredArticle], dialect: Dialect | None
) -> BrowsedCommand:
    operation, article = Operation(row["operation"]), articles[row["article_id"]]
    names = NameLimit() if dialect is None else dialect.capabilities.procedure_names
    return BrowsedCommand(
        row["xact_seqno"].hex(),
        row["command_id"],
        row["commit_time"],
        str(article.source),
        operation.name,
        command_text(article, operation, row, names),
    )


def _browsed_message(row: Mapping[str, Any]) -> BrowsedCommand:
    operation = Operation(row["operation"])
    return BrowsedCommand(
        row["xact_seqno"].hex(),
        row["command_id"],
        row["commit_time"],
        "",
        operation.name,
        message_text(operation, row["after"]),
    )
