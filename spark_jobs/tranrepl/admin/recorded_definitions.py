"""Which definition each article's table stands at, as setup records it at the Subscribers."""

from __future__ import annotations

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.subscriber.dialect import Subscriber
from tranrepl.subscriber.schema_changes import chain_of_changes


def record_definitions(database: DistributionDatabase, record: PublicationRecord, subscriber: Subscriber) -> None:
    """Record that the Subscriber's tables stand at the definitions in force, but for those that schema changes have
    still to bring there."""
    waiting = {it.article_id for it in waiting_articles(database, record, subscriber)}
    registered = database.articles.registered(record)
    subscriber.record_definitions([it for it in registered if it.article_id not in waiting])


def waiting_articles(
    database: DistributionDatabase, record: PublicationRecord, subscriber: Subscriber
) -> list[RegisteredArticle]:
    """Return the articles, as they are registered, whose tables stand at an earlier definition, from which stored
    schema changes lead to it."""
    recorded = set(subscriber.definitions().values())
    if not recorded:
        return []
    changes = [it.change for it in database.schema_changes.after(record, FIRST_XACT_SEQNO)]
    return [
        article
        for article in database.articles.registered(record)
        if article.article_id not in recorded
        and any(chain_of_changes(changes, it, article.article_id) for it in recorded)
    ]
