"""A subscription's state in Replication Monitor's words, from what is registered and measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tranrepl.admin.status.report import SubscriptionState
from tranrepl.distributor.tables import RunStatus, SubscriptionStatus
from tranrepl.settings.publication import Publication

WITHOUT_SNAPSHOT = (SubscriptionStatus.SUBSCRIBED, SubscriptionStatus.INITIATED)
EXPIRING_SHARE = 0.8
"""The part of max_distretention after which a subscription is about to expire."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What a publication's settings say of when somebody should look, in seconds."""

    latency: float | None
    longest_distretention: float

    @classmethod
    def of(cls, publication: Publication) -> Self:
        """Return those of a publication."""
        return cls(publication.latency_threshold, publication.distributor.max_distretention * 3600)


def subscription_state(
    thresholds: Thresholds, registered: SubscriptionStatus, run: RunStatus | None, latency: float | None
) -> SubscriptionState:
    """Return the subscription's state. `run`: how its newest run went; `latency`: how many seconds the first
    undelivered command has waited."""
    found = {
        SubscriptionState.EXPIRED: registered is SubscriptionStatus.INACTIVE,
        SubscriptionState.ERROR: run is RunStatus.FAIL,
        SubscriptionState.PERFORMANCE_CRITICAL: bool(thresholds.latency and latency and latency >= thresholds.latency),
        SubscriptionState.EXPIRING_SOON: (latency or 0.0) >= thresholds.longest_distretention * EXPIRING_SHARE,
        SubscriptionState.UNINITIALIZED: run is None or registered in WITHOUT_SNAPSHOT,
        SubscriptionState.RETRYING: run is RunStatus.RETRY,
        SubscriptionState.RUNNING: run in (RunStatus.START, RunStatus.IN_PROGRESS),
    }
    return next((state for state, holds in found.items() if holds), SubscriptionState.NOT_RUNNING)
