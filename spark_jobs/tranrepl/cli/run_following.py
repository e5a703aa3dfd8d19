"""What the history says of a job that goes on in a process of its own, for whoever waits for it at a shell."""

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

_LOOKED_EVERY_SECONDS = 1.0
_WAITED_SECONDS = 2.0
"""How long a query that is still running when the run ends is waited for."""

Show = Callable[[Mapping[str, Any]], None]
"""Is given the run's history row."""


@contextmanager
def following(topology: Topology, subscription: str | None, show: Show) -> Iterator[None]:
    """Show, once a second, the history row of a run that begins after this: a subscription's, or (None) the log
    reader's. The history is read by a connection of its own; a reading that fails is left out."""
    over, history = Event(), _History(topology.distributor(), topology.publication.publication, subscription)
    follower = Thread(target=_follow, args=[history, show, over], name="tranrepl-display", daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join(_WAITED_SECONDS)


def _follow(history: _History, show: Show, over: Event) -> None:
    with history.database:
        while not over.wait(_LOOKED_EVERY_SECONDS):
            row = history.row()
            if row is not None and not over.is_set():
                show(row)


@dataclass
class _History:
    database: DistributionDatabase
    publication: str
    subscription: str | None
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def row(self) -> Mapping[str, Any] | None:
        """Return the newest run's row; None where that run began before, or cannot be read."""
        with suppress(ReplicationError):
            row: Mapping[str, Any] | None = self.database.history.newest(self._record, self._subscription)
            # The job notes its start by this machine's clock.
            if row is not None and row["start_time"] >= self.since:
                return row
        return None

    @cached_property
    def _record(self) -> PublicationRecord:
        return self.database.publications.get(self.publication)

    @cached_property
    def _subscription(self) -> SubscriptionRecord | None:
        return None if self.subscription is None else self.database.subscriptions.get(self._record, self.subscription)
