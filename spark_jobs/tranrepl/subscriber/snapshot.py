"""Words of a snapshot at a Subscriber, whatever its database.

`MSreplication_snapshots` has a row for each range of a table that is loaded, written in the transaction that loads it,
and row 0 for the article itself: it names the snapshot that may load, so that one that was given up cannot any more,
and where the last one that was loaded stands, so that a Subscriber of before it, restored from a backup, is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from tranrepl.errors import ConfigurationError, FencedError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.position import equivalent_watermark, seqnos_of_one_place
from tranrepl.remedies import FINISH_BATCH
from tranrepl.settings.publication import Article, PreCreation


@dataclass(frozen=True, slots=True)
class SnapshotArticle:
    """An article that a snapshot loads, and its table at the Publisher."""

    article: RegisteredArticle
    settings: Article
    source: TableDescription
    large: bool
    """It is worth while to build its indexes after the load."""
    earlier_filter: str | None = None
    """True for rows that the destination has of it, where its row filter changed."""

    @property
    def owned(self) -> OwnedRows:
        """Which rows of the destination are the article's."""
        return self.owned_by(self.article, self.earlier_filter)

    def owned_by(self, definition: RegisteredArticle, earlier_filter: str | None = None) -> OwnedRows:
        """Return which rows are the article's where the destination has this definition."""
        condition = definition.filter
        if self.settings.pre_creation_cmd is not PreCreation.DELETE:
            condition = None
        elif condition is not None and earlier_filter is not None:
            condition = f"({condition}) OR ({earlier_filter})"
        return OwnedRows(self, condition, definition.source.table)

    @property
    def name(self) -> str:
        return str(self.article.source)


@dataclass(frozen=True, slots=True)
class OwnedRows:
    """Rows that a destination has of an article, and that its snapshot deletes."""

    article: SnapshotArticle
    condition: str | None
    """True for them, as row filters say it; None: they are all of the table's."""
    table: str
    """The name of the Publisher's table that the condition may have for columns."""

    @property
    def name(self) -> str:
        return self.article.name

    def lacking(self, where: str, columns: Iterable[str]) -> str:
        """Return the note where the table lacks columns that the condition reads."""
        return (
            f"{where}: article {self.name}: rows that table {self.article.article.destination} had of it may stay: the "
            f"table has no column {', '.join(sorted(columns))}, which tells them from others: {self.condition}; delete "
            "by hand those that are not the Publisher's"
        )


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """What `delete_before_changes` did."""

    articles: frozenset[str]
    """Those whose rows were deleted."""
    left: tuple[str, ...]
    """Notes on chosen articles whose rows no condition could tell apart."""


@dataclass(frozen=True, slots=True)
class LoadedRange:
    """A part of an article's rows that is committed."""

    article: str
    number: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CopiedArticle:
    """An article of which rows are committed, by a snapshot that did not end: all of them, or ranges of keys."""

    article_id: int
    """The definition that they were copied by."""
    xact_seqno: bytes
    """The last transaction that they show."""
    rows: int
    is_whole: bool
    bounds: tuple[int, ...] | None
    """Where ranges of keys begin, as `publisher.snapshot.key_ranges` takes them; None of other ranges."""


@dataclass(frozen=True, slots=True)
class ExpectedRanges:
    """By which ranges an article is loaded."""

    article: RegisteredArticle
    count: int
    bounds: Sequence[int] | None
    """As `CopiedArticle.bounds`."""


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """Articles by name: each level after the one before it; those of `at_once` in one piece."""

    levels: tuple[tuple[str, ...], ...]
    at_once: frozenset[str]


def load_order(parents: Mapping[str, Iterable[str]]) -> LoadOrder:
    """Order articles for loading; `parents` are, by article, those that its rows refer to. Raises ConfigurationError
    for a circle of several."""
    graph = {name: {it for it in referred if it != name} for name, referred in parents.items()}
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        raise ConfigurationError(
            f"foreign keys at the Subscriber make a circle: {', '.join(sorted(set(error.args[1])))}",
            remedy="not_for_replication: true for this subscription, or drop one of them until the snapshot is loaded",
        ) from None
    levels = []
    while sorter.is_active():
        ready = sorter.get_ready()
        levels.append(tuple(sorted(ready)))
        sorter.done(*ready)
    return LoadOrder(tuple(levels), frozenset(name for name, referred in parents.items() if name in referred))


def referring(parents: Mapping[str, Iterable[str]], chosen: Iterable[str]) -> frozenset[str]:
    """Return the chosen articles, and those whose rows refer to them, or to such that do; `parents` as `load_order` has
    them."""
    found, size = set(chosen), -1
    while len(found) > size:
        size = len(found)
        found |= {name for name, referred in parents.items() if not found.isdisjoint(referred)}
    return frozenset(found)


def fence_after(watermark: bytes) -> bytes:
    """Return another watermark that says the same: no delivery that expects the old one can go on, and none is asked to
    apply anything else."""
    return equivalent_watermark(watermark)


def at_same_position(watermark: bytes, other: bytes) -> bool:
    """Return whether the two are one place, or one is a fence after the other."""
    return seqnos_of_one_place(watermark) == seqnos_of_one_place(other)


def is_before(watermark: bytes, other: bytes) -> bool:
    """Return whether a transaction lies between the two, or might."""
    return seqnos_of_one_place(watermark) < seqnos_of_one_place(other)


def not_empty(where: str, articles: Sequence[SnapshotArticle]) -> ConfigurationError:
    first, several = articles[0], len(articles) > 1
    tables = ", ".join(str(it.article.destination) for it in articles)
    which = f"tables {tables} hold" if several else f"table {tables} holds"
    whose = "their snapshots" if several else f"the snapshot of {first.name}"
    return ConfigurationError(
        f"{where}: {which} rows, and {whose} must not touch them (pre_creation_cmd: {PreCreation.NONE})",
        remedy=f"write another pre_creation_cmd for {'these articles' if several else 'this article'} into the file: "
        f"{PreCreation.DELETE}, {PreCreation.TRUNCATE} or {PreCreation.DROP}; or empty the "
        f"{'tables' if several else 'table'}. A new subscription that has the rows already takes no snapshot with "
        "sync_type: replication_support_only",
        article=None if several else first.name,
    )


def half_delivered(where: str) -> TransientError:
    return TransientError(
        f"{where}: a commit batch was interrupted while its streams committed, or within a schema change",
        remedy=FINISH_BATCH,
    )


def another_snapshot(where: str) -> FencedError:
    return FencedError(f"{where}: another snapshot of this subscription has begun; this one has ended")
