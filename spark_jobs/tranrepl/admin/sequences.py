"""A Subscriber's sequences: what keeps them from following the Publisher's, and `tranrepl sequences`, which sets them
for a cut-over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tranrepl.distribution.sequences import AdvancedSequences, advance_sequences, lacking_rights
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.sequences import FoundSequences
from tranrepl.publisher.publisher import Publisher
from tranrepl.settings.publication import Article, Subscription
from tranrepl.settings.registration import registered_article
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.sequences import SequenceScope
from tranrepl.topology import Topology

_APPLICATION = "tranrepl sequences"


def set_sequences(topology: Topology, subscription: str) -> AdvancedSequences | None:
    """Set all sequences of a subscription's destinations to the Publisher's, where they are behind; None where this
    kind of Subscriber has none to set.

    Raises TransientError where a server does not answer, or somebody holds a sequence.
    """
    with topology.distributor() as database:
        record = database.publications.get(topology.publication.publication)
        articles = database.articles.registered(record, subscription)
    with topology.subscriber(subscription, record.publisher_system, _APPLICATION) as subscriber:
        if subscriber.sequences is None:
            return None
        return advance_sequences(
            subscriber.where,
            subscriber.sequences,
            SequenceScope.ALL,
            articles,
            lambda: topology.publisher(_APPLICATION),
        )


def sequence_warnings(
    tables: Sequence[tuple[Article, TableDescription]],
    open_publisher: Callable[[], Publisher],
    subscriber: Subscriber,
    settings: Subscription,
    *,
    tables_are_current: bool,
) -> Iterator[str]:
    """Yield what keeps the Subscriber's sequences from following the Publisher's; deliveries go on without. Which
    tables setup created, only the model's tables of this version say."""
    if subscriber.sequences is None or settings.sequences is False:
        return
    articles = [registered_article(article, table) for article, table in tables]
    scope = SequenceScope.ALL if settings.sequences else SequenceScope.CREATED
    found = subscriber.sequences.find(articles, scope) if tables_are_current else FoundSequences()
    yield from lacking_rights(subscriber.where, found.grants)
    if found.by_column or not all(subscriber.has_destination(it.destination) for it in articles):
        publisher = open_publisher()
        yield from lacking_rights(publisher.where, publisher.sequences(articles).grants)
