"""Tables and partitions that a Subscriber had and has no more: setup makes them again, without rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from tranrepl.admin.recorded_definitions import articles_as_applied
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, UnknownRows
from tranrepl.distributor.stale_articles import reinitialize_or_stop_at, waits_for_snapshot
from tranrepl.distributor.tables import WITHOUT_SNAPSHOT, SubscriptionStatus
from tranrepl.errors import ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article, Publication
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.base.subscriber import Subscriber


def delivered_articles(
    database: DistributionDatabase, record: PublicationRecord | None, subscription: str
) -> dict[TableName, RegisteredArticle]:
    """Return the articles, as they are registered, whose rows the Subscriber is to have: those of an active
    subscription that wait for no snapshot."""
    found = database.subscriptions.find(record, subscription) if record is not None else None
    if record is None or found is None or found.status is not SubscriptionStatus.ACTIVE:
        return {}
    states = database.snapshots.article_states(found).items()
    waiting = {source for source, state in states if state.status in WITHOUT_SNAPSHOT}
    return {it.source: it for it in database.articles.registered(record, subscription) if str(it.source) not in waiting}


def missing_tables(
    database: DistributionDatabase,
    record: PublicationRecord,
    subscription: str,
    subscriber: Subscriber,
    tables: PublishedTables,
) -> dict[TableName, str]:
    """Return by article what is missing of the table that changes were delivered to, in words."""
    delivered = delivered_articles(database, record, subscription)
    if not delivered or subscriber.find_watermark() is None:
        return {}
    applied = articles_as_applied(database, record, subscriber, list(delivered.values()))
    articles = dict(zip(delivered, applied, strict=True))
    found = {
        article.source: _missing(subscriber, article, table, articles[article.source])
        for article, table in tables
        # One that gets another table is reinitialized for that.
        if article.source in articles and articles[article.source].destination == article.destination_table
    }
    return {source: what for source, what in found.items() if what is not None}


def _missing(
    subscriber: Subscriber, article: Article, table: TableDescription, applied: RegisteredArticle
) -> str | None:
    if not subscriber.has_destination(article.destination_table):
        return f"table {article.destination_table}"
    division = applied.source_definition.division
    # Others are new: the Publisher's log brings their rows.
    had = {it.table for it in division.partitions} if division is not None else set()
    lacking = subscriber.lacking_partitions(article, table)
    lost = [str(there) for partition, there in lacking.items() if partition in had]
    return f"partition {', '.join(lost)} of table {article.destination_table}" if lost else None


def missing_table_warnings(
    publication: Publication,
    database: DistributionDatabase,
    record: PublicationRecord | None,
    subscription: str,
    subscriber: Subscriber,
    tables: PublishedTables,
) -> dict[TableName, str]:
    """Return by article what `check` says of what is missing, as far as the distribution database and the Subscriber
    can say."""
    found: Mapping[TableName, str] = {}
    with suppress(ReplicationError):
        if record is not None:
            found = missing_tables(database, record, subscription, subscriber, tables)
    chosen = publication.subscription(subscription)
    becomes = {
        source: "the next run copies them by a snapshot"
        if waits_for_snapshot(publication, source, chosen)
        else "the article is stopped until its rows are validated or copied"
        for source in found
    }
    return {
        source: f"article {source}: {subscriber.where}: {what} is missing, with its rows: `tranrepl setup FILE` makes "
        f"it again, then {becomes[source]}"
        for source, what in found.items()
    }


def reinitialize_or_stop_missing(
    database: DistributionDatabase,
    record: PublicationRecord,
    publication: Publication,
    subscription: str,
    subscriber: Subscriber,
    tables: PublishedTables,
) -> Iterator[str]:
    """Let each article whose table, or a partition of it, is missing wait for a snapshot, or stop it; yield what was
    done. It comes before the tables are made: a job that is killed in between has not made an empty one in silence."""
    missing = missing_tables(database, record, subscription, subscriber, tables)
    for source, what in missing.items():
        registered = database.subscriptions.get(record, subscription)
        why = UnknownRows(f"{what} was missing at {subscriber.where}")
        yield reinitialize_or_stop_at(database, registered, publication, source, why)
