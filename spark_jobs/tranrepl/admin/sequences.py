"""`tranrepl sequences`: a Subscriber's sequences for a cut-over."""

from __future__ import annotations

from tranrepl.distribution.sequences import AdvancedSequences, advance_sequences
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
        articles = database.articles.registered(record)
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
