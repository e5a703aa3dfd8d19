"""The definition applied to each article's table, as setup records it at the Subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import chain_of_changes
from tranrepl.subscriber.base.subscriber import Subscriber


def record_definitions(database: DistributionDatabase, record: PublicationRecord, subscriber: Subscriber) -> None:
    """Record the definitions in force as applied at the Subscriber, but for those that schema changes have still to
    bring there; and that it gets no more rows of articles that are not in force."""
    waiting = {it.article_id for it in waiting_articles(database, record, subscriber)}
    registered = database.articles.registered(record, subscriber.key.subscription)
    subscriber.record_definitions([it for it in registered if it.article_id not in waiting])
    names = database.articles.names(record)
    subscriber.release_tables([*names, *chain.from_iterable(names.values())])


def articles_as_applied(
    database: DistributionDatabase,
    record: PublicationRecord,
    subscriber: Subscriber,
    wanted: Sequence[RegisteredArticle],
) -> list[RegisteredArticle]:
    """Return the wanted articles, but in the definition applied to their tables where schema changes have still to
    bring them to the wanted one."""
    waiting = waiting_articles(database, record, subscriber)
    if not waiting:
        return list(wanted)
    by_id = database.articles.by_id(record, subscriber.key.subscription)
    # By the table: its name may be another one's meanwhile.
    tables = {by_id[it].source_object_id: by_id[it] for it in subscriber.definitions().values() if it in by_id}
    applied = {it.source: tables[it.source_object_id] for it in waiting if it.source_object_id in tables}
    return [applied.get(it.source, it) for it in wanted]


def waiting_warnings(
    database: DistributionDatabase, record: PublicationRecord | None, subscriber: Subscriber
) -> dict[TableName, str]:
    """Return by article what `check` says of those whose tables stored schema changes have still to alter."""
    waiting = [] if record is None else waiting_articles(database, record, subscriber)
    return {
        it.source: f"article {it.source}: {subscriber.where}: stored schema changes will alter its table with the "
        "next delivery; check compares it after that"
        for it in waiting
    }


def waiting_articles(
    database: DistributionDatabase, record: PublicationRecord, subscriber: Subscriber
) -> list[RegisteredArticle]:
    """Return the articles, as they are registered, whose tables have an earlier definition, from which stored schema
    changes lead to it."""
    recorded = set(subscriber.definitions().values())
    if not recorded:
        return []
    changes = [it.change for it in database.schema_changes.after(record, FIRST_XACT_SEQNO)]
    if not changes:
        return []
    return [
        article
        for article in database.articles.registered(record, subscriber.key.subscription)
        if article.article_id not in recorded
        and any(chain_of_changes(changes, it, article.article_id) for it in recorded)
    ]
