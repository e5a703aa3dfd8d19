"""`tranrepl trace`: tracer tokens, posted, followed and listed.

Source: `sp_posttracertoken`, `sp_helptracertokens`, `sp_helptracertokenhistory`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

from pydantic import BaseModel

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, TokenHistory
from tranrepl.model.tracer_token import TracerToken
from tranrepl.topology import Topology

_POLL_SECONDS = 0.5
_APPLICATION = "tranrepl trace"


class SubscriptionLatency(BaseModel):
    """A tracer token on its way to one subscription. What has not happened is None."""

    subscription: str
    subscriber_latency: float | None = None
    """Seconds from where it was registered until the Subscriber had it."""
    overall_latency: float | None = None
    """Seconds from its commit at the Publisher until the Subscriber had it."""


class TokenLatency(BaseModel):
    """A tracer token by leg. What has not happened is None."""

    token: str
    tracer_id: int | None = None
    publisher_commit: datetime | None = None
    """By the Publisher's clock."""
    distributor_latency: float | None = None
    """Seconds from its commit at the Publisher until it was registered."""
    subscriptions: tuple[SubscriptionLatency, ...] = ()
    """Those that get it: it was not in the snapshot that they began with."""
    clock_difference: float | None = None
    """Seconds by which the Publisher's clock was ahead of the distribution database's. Latencies are without it."""

    @property
    def has_arrived(self) -> bool:
        """Whether every subscription has it."""
        return self.tracer_id is not None and all(it.overall_latency is not None for it in self.subscriptions)


def post_token(topology: Topology) -> str:
    """Post a token, and return its number.

    Raises ConfigurationError where the publication is not set up, MissingRightError where our role may not write into
    the Publisher's log.
    """
    with topology.distributor() as database, topology.publisher(_APPLICATION) as publisher:
        database.publications.get(topology.publication.publication)
        publisher.require_kept()
        token = TracerToken.new(publisher.name)
        publisher.post_token(token)
    return token.token


def follow_token(topology: Topology, token: str, timeout_seconds: float) -> Iterator[TokenLatency]:
    """Yield the token whenever something happened to it, until every subscription has it or the time is over."""
    deadline = time.monotonic() + timeout_seconds
    last = TokenLatency(token=token)
    yield last
    with topology.distributor() as database:
        record = database.publications.get(topology.publication.publication)
        while not last.has_arrived and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            found = _find(topology, database, record, token)
            if found != last:
                last = found
                yield last


def newest_tokens(topology: Topology, count: int) -> list[TokenLatency]:
    """Return the newest registered tokens, the latest first."""
    with topology.distributor() as database:
        record = database.publications.get(topology.publication.publication)
        return [_latency(topology, it) for it in database.tracer_tokens.newest(record, count)]


def _find(topology: Topology, database: DistributionDatabase, record: PublicationRecord, token: str) -> TokenLatency:
    found = database.tracer_tokens.find(record, token)
    return TokenLatency(token=token) if found is None else _latency(topology, found)


def _latency(topology: Topology, found: TokenHistory) -> TokenLatency:
    difference = timedelta(microseconds=found.clock_difference or 0)
    posted = found.publisher_commit - difference
    names = [it.name for it in topology.publication.subscriptions if it.name in found.expected]
    return TokenLatency(
        token=found.token,
        tracer_id=found.tracer_id,
        publisher_commit=found.publisher_commit,
        distributor_latency=_seconds(posted, found.distributor_commit),
        subscriptions=tuple(
            SubscriptionLatency(
                subscription=it,
                subscriber_latency=_seconds(found.distributor_commit, found.subscriber_commit.get(it)),
                overall_latency=_seconds(posted, found.subscriber_commit.get(it)),
            )
            for it in names
        ),
        clock_difference=None if found.clock_difference is None else difference.total_seconds(),
    )


def _seconds(since: datetime, until: datetime | None) -> float | None:
    """Return the seconds between; not less than none, as clocks are compared with some error."""
    return None if until is None else max(0.0, (until - since).total_seconds())
