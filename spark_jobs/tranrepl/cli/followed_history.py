"""The history of runs that begin from now on, read beside them for who looks on at a shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from threading import Event, Thread
from typing import Any

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, SubscriptionRecord
from tranrepl.errors import ReplicationError
from tranrepl.topology import Topology

_WAITED_SECONDS = 2.0
"""How long a query that is still running when the runs end is waited for."""


@dataclass
class FollowedHistory:
    """What the distribution database says of the runs."""

    topology: Topology
    over: Event = field(default_factory=Event)
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    @cached_property
    def database(self) -> DistributionDatabase:
        return self.topology.distributor()

    @cached_property
    def record(self) -> PublicationRecord:
        return self.database.publications.get(self.topology.publication.publication)

    def subscription(self, name: str) -> SubscriptionRecord:
        return self.database.subscriptions.get(self.record, name)

    def newest(self, subscription: SubscriptionRecord | None) -> Mapping[str, Any] | None:
        """Return the newest run's row, a delivery's or (None) the log reader's; None where that run began before, and
        where it is over."""
        row: Mapping[str, Any] | None = self.database.history.newest(self.record, subscription)
        # The job notes its start by this machine's clock.
        return None if row is None or row["start_time"] < self.since or self.over.is_set() else row


@contextmanager
def following(
    topology: Topology, look: Callable[[FollowedHistory], None], every_seconds: float = 1.0
) -> Iterator[None]:
    """Look at the history now and then, in a thread and by a connection of its own, until the context ends. A reading
    that fails is left out."""
    history = FollowedHistory(topology)
    follower = Thread(target=_follow, args=[history, look, every_seconds], name="tranrepl-display", daemon=True)
    follower.start()
    try:
        yield
    finally:
        history.over.set()
        follower.join(_WAITED_SECONDS)


def _follow(history: FollowedHistory, look: Callable[[FollowedHistory], None], every_seconds: float) -> None:
    with history.database:
        while not history.over.wait(every_seconds):
            with suppress(ReplicationError):
                look(history)
