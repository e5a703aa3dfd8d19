"""The articles at both ends of a sync point, ready to be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tranrepl.errors import ConfigurationError
from tranrepl.jobs.validation_report import Comparison
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.commands import Operation
from tranrepl.model.comparison import Checksum
from tranrepl.publisher.snapshot import PublisherComparison
from tranrepl.subscriber.comparison import ComparableTable, SubscriberComparison
from tranrepl.validation.differences import ComparedArticle
from tranrepl.validation.reading import Reader
from tranrepl.validation.sync_point import HeldSyncPoint, SyncPoint

_SMALLEST_PART = 128 * 1024 * 1024
"""Bytes of a table that a part has at least."""


@dataclass(frozen=True, slots=True)
class ComparisonTargets:
    reader: Reader
    compared: tuple[ComparedArticle, ...]
    subscriber: SubscriberComparison
    notices: tuple[str, ...] = ()
    """Articles that cannot be compared."""


@contextmanager
def open_comparison_targets(
    sync_point: SyncPoint, point: HeldSyncPoint, articles: Sequence[RegisteredArticle]
) -> Iterator[ComparisonTargets]:
    """Open the snapshots, while delivery is held.

    Raises ConfigurationError where the rows of the Subscriber's database cannot be compared, or a table is not as it
    was set up.
    """
    opened, cores = sync_point.opened, sync_point.spark.sparkContext.defaultParallelism
    dialect = sync_point.topology.dialect(sync_point.request.subscription)
    with (
        point.snapshot.comparison(articles) as publisher,
        dialect.comparison(opened.connection, opened.key, articles, cores) as subscriber,
    ):
        notices = tuple(_not_compared(article, problem) for article, problem in subscriber.problems)
        published = publisher.describe(articles)
        checksum_by, part_bytes = _checksum(publisher, subscriber), _part_bytes(publisher, articles, cores)
        tables = [replace(it, forms=tuple(publisher.forms(it.article, it.forms))) for it in subscriber.tables]
        compared = tuple(
            ComparedArticle(
                table.article,
                publisher.end(table.article, table.forms, checksum_by, part_bytes),
                subscriber.end(table, checksum_by, part_bytes),
                _what(table, published.get(table.article.source)),
            )
            for table in tables
        )
        yield ComparisonTargets(Reader(sync_point.spark), compared, subscriber, notices)


def _what(table: ComparableTable, published: TableDescription | None) -> Comparison:
    compared = {column.name: column.type_name for column in table.article.columns}
    here = [] if published is None else [column.name for column in published.columns]
    return Comparison(
        columns=tuple(compared),
        converted={name: table.types[name] for name, it in compared.items() if table.types[name] != it},
        unpublished=tuple(name for name in here if name not in compared),
        own=tuple(name for name in table.columns if name not in compared and name not in here),
        row_filter=table.article.filter,
    )


def _checksum(publisher: PublisherComparison, subscriber: SubscriberComparison) -> Checksum:
    """Return the native checksum where both servers' hash functions give the same numbers for the same values, else
    MD5."""
    return Checksum.NATIVE if publisher.native_hashes() == subscriber.native_hashes() else Checksum.MD5


def _part_bytes(publisher: PublisherComparison, articles: Sequence[RegisteredArticle], cores: int) -> int:
    """Return how much of a table is read at a time: as much as keeps all cores busy, both ends together. A whole table
    is read faster than its parts are, in a few pages of the cache that are used again and again."""
    return max(_SMALLEST_PART, 2 * publisher.table_bytes(articles) // cores)


def _not_compared(article: RegisteredArticle, error: ConfigurationError) -> str:
    """Say why an article is not compared: custom procedures may keep rows in any way they like. Raises the error for an
    article without."""
    operations = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)
    if all(article.propagation(it).procedure is None for it in operations):
        raise error
    return f"article {article.source} is not compared, it has custom procedures: {error.message}"
