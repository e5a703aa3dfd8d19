"""What a snapshot opens before it begins, and which articles it is for."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tranrepl.distribution.opening import OpenDistribution, recording_refusals
from tranrepl.distributor.tables import WITHOUT_SNAPSHOT, SubscriptionStatus
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.log_reader.continuity import find_break
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.publisher.publisher import Publisher
from tranrepl.publisher.snapshot import needing_registered_tables, renamed_or_dropped
from tranrepl.settings.publication import Article
from tranrepl.settings.registered_names import with_current_names
from tranrepl.snapshot.definitions import require_in_force
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.base.snapshot import Snapshot
from tranrepl.subscriber.foreign_keys import NO_FOREIGN_KEYS, ForeignKeys, published_foreign_keys
from tranrepl.subscriber.snapshot import SnapshotArticle
from tranrepl.topology import Topology

log = logging.getLogger(__name__)

LARGE_BYTES = 16 * 1024 * 1024
"""Size of a table from which on its indexes are built after the load."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The articles of a subscription that a snapshot is for."""

    articles: tuple[RegisteredArticle, ...]
    whole: bool
    """The subscription as such begins with it."""


@dataclass(frozen=True, slots=True)
class OpenSnapshot:
    request: SnapshotRequest
    opened: OpenDistribution
    publisher: Publisher
    target: Snapshot
    articles: tuple[SnapshotArticle, ...]
    sizes: Mapping[str, int]
    """Bytes of each article's table."""
    foreign_keys: ForeignKeys
    whole: bool

    @property
    def names(self) -> list[str]:
        return [it.name for it in self.articles]

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def options(self) -> ApplierOptions:
        settings = self.request.publication.subscription(self.request.subscription)
        return ApplierOptions(not_for_replication=settings.not_for_replication)


def waiting_articles(request: SnapshotRequest, opened: OpenDistribution) -> Waiting:
    """Return the articles that wait for a snapshot. Raises ConfigurationError where the subscription is inactive, or an
    article does not exist or cannot begin before the others."""
    status = opened.subscription.status
    states = opened.database.snapshots.article_states(opened.subscription)
    names = {name for name, it in states.items() if it.status in WITHOUT_SNAPSHOT}
    if status is SubscriptionStatus.ACTIVE and not names and not request.articles:
        # Thousands of articles take seconds to read.
        return Waiting((), whole=False)
    articles = published_articles(request, opened)
    if status in WITHOUT_SNAPSHOT:
        if request.articles:
            raise ConfigurationError(
                f"subscription {opened.subscription.subscription} has no snapshot yet: it begins with all articles",
                remedy="leave out --article",
            )
        return Waiting(tuple(articles), whole=True)
    if status is SubscriptionStatus.INACTIVE:
        opened.refuse_incomplete(b"")
    waiting = [it for it in articles if str(it.source) in names]
    return Waiting(
        tuple(it for it in waiting if not request.articles or str(it.source) in request.articles), whole=False
    )


def published_articles(request: SnapshotRequest, opened: OpenDistribution) -> list[RegisteredArticle]:
    """Return all articles of the subscription. Raises ConfigurationError where the request names another."""
    articles = opened.database.articles.active(request.publication, opened.record, request.subscription)
    require_in_force(opened, articles)
    known = {str(it.source) for it in articles}
    for name in request.articles:
        if name not in known:
            raise ConfigurationError(
                f"publication {opened.record.publication} has no article {name!r}",
                remedy=f"allowed: {', '.join(sorted(known))}",
            )
    return articles


@contextmanager
def open_waiting(request: SnapshotRequest, topology: Topology) -> Iterator[tuple[OpenDistribution, Waiting]]:
    with recording_refusals(topology, request.subscription) as opened:
        yield opened, waiting_articles(request, opened)


@contextmanager
def open_snapshot(
    request: SnapshotRequest, topology: Topology, opened: OpenDistribution, waiting: Waiting
) -> Iterator[OpenSnapshot]:
    """Connect to the Publisher and the Subscriber, and look at the tables."""
    publication = request.publication
    with (
        topology.publisher("tranrepl snapshot") as publisher,
        topology.dialect(request.subscription).snapshot(opened.connection, opened.key, "tranrepl snapshot") as target,
    ):
        problem = find_break(publisher, opened.database, opened.record)
        if problem is not None:
            raise problem
        tables = publisher.describe([it.source for it in waiting.articles])
        with needing_registered_tables(replicate_ddl=publication.replicate_ddl):
            for it in waiting.articles:
                if it.source not in tables:
                    raise renamed_or_dropped(publisher.where, it)
        sizes = {str(it.source): publisher.table_bytes(it) for it in waiting.articles}
        settings = with_current_names(publication.at(request.subscription), waiting.articles).articles
        articles = _described(settings, waiting.articles, tables, sizes)
        if publication.subscription(request.subscription).sequences is False:
            articles = tuple(replace(it, source=it.source.without_sequences()) for it in articles)
        states = opened.database.snapshots.article_states(opened.subscription)
        articles = tuple(
            replace(it, earlier_filter=states[it.name].earlier_filter) if it.name in states else it for it in articles
        )
        keys = NO_FOREIGN_KEYS
        if publication.subscription(request.subscription).foreign_keys:
            keys = published_foreign_keys([(it.settings, it.source) for it in articles])
        yield OpenSnapshot(request, opened, publisher, target, articles, sizes, keys, waiting.whole)


def _described(
    settings: Sequence[Article],
    articles: Sequence[RegisteredArticle],
    tables: Mapping[TableName, TableDescription],
    sizes: Mapping[str, int],
) -> tuple[SnapshotArticle, ...]:
    by_source = {it.source: it for it in settings}
    return tuple(
        SnapshotArticle(
            article, by_source[article.source], tables[article.source], sizes[str(article.source)] >= LARGE_BYTES
        )
        for article in articles
    )
