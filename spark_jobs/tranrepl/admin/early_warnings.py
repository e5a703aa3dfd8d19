"""Early warnings: what will stop replication if nobody acts, each reported once while it lasts.

Sources: SQL Server, `sp_replmonitorchangepublicationthreshold`, messages 14160 and 14161; PostgreSQL,
`pg_replication_slots`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tranrepl.admin.status.state import EXPIRING_SHARE
from tranrepl.distributor.database.overview import PublicationOverview, SubscriptionOverview
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.publisher.publisher import RetainedLog
from tranrepl.settings.publication import Publication
from tranrepl.topology import Topology

_APPLICATION = "tranrepl early warnings"
_MEGABYTE = 1024 * 1024
_ENDANGERED = ("unreserved", "lost")
_SMALL_PART = 5
"""One of so many parts of what the server lets a slot retain is a small rest."""


class WarningKind(StrEnum):
    """What is warned of."""

    LATENCY = "latency"
    EXPIRATION = "expiration"
    RETAINED_LOG = "retained log"
    SLOT_IN_DANGER = "slot in danger"

    @property
    def number(self) -> str:
        """SQL Server's message; empty where it has none."""
        return {WarningKind.EXPIRATION: "14160", WarningKind.LATENCY: "14161"}.get(self, "")


@dataclass(frozen=True, slots=True)
class EarlyWarning:
    """One thing that will hurt. `subscription` is empty where it concerns the Publisher's log."""

    kind: WarningKind
    subscription: str
    text: str
    remedy: str


def new_early_warnings(topology: Topology) -> list[EarlyWarning]:
    """Return the warnings that hold now and were not reported yet; they count as reported. Queries the distribution
    database and the Publisher. Raises ConfigurationError where the publication is not set up, TransientError where a
    server is away.
    """
    publication = topology.publication
    with topology.distributor() as database:
        record = database.publications.get(publication.publication)
        (known,) = database.overview.of([publication.publication], timedelta(days=1), 1)
        with topology.publisher(_APPLICATION) as publisher:
            retained = publisher.health().retained
        standing = standing_warnings(publication, known, retained, datetime.now(UTC))
        new = database.warnings.take_new(record, {(it.subscription, it.kind.value) for it in standing})
    return [it for it in standing if (it.subscription, it.kind.value) in new]


def standing_warnings(
    publication: Publication, known: PublicationOverview, retained: RetainedLog | None, now: datetime
) -> list[EarlyWarning]:
    """Return all warnings that hold now, reported or not."""
    found = [] if retained is None else list(_of_log(publication, retained))
    for subscription in known.subscriptions:
        found += _of_subscription(publication, subscription, now)
    return found


def _of_log(publication: Publication, retained: RetainedLog) -> Iterator[EarlyWarning]:
    size, left = retained.size, retained.left
    threshold = publication.retained_log_threshold
    if threshold is not None and size is not None and size > threshold * _MEGABYTE:
        yield EarlyWarning(
            WarningKind.RETAINED_LOG,
            "",
            f"the Publisher retains {size // _MEGABYTE:,} MB of log for the slot (retained_log_threshold: {threshold})",
            "see with `tranrepl status FILE` what holds it: a run that fails, a long transaction, a paused DAG",
        )
    nearly_used = size is not None and left is not None and left * _SMALL_PART <= size + left
    if retained.status in _ENDANGERED or nearly_used:
        rest = "" if left is None else f"; {max(0, left) // _MEGABYTE:,} MB may be written before it may be lost"
        yield EarlyWarning(
            WarningKind.SLOT_IN_DANGER,
            "",
            f"the replication slot is in danger: wal_status {retained.status}{rest}",
            "read the log with `tranrepl run FILE`, or raise max_slot_wal_keep_size at the Publisher",
        )


def _of_subscription(publication: Publication, known: SubscriptionOverview, now: datetime) -> Iterator[EarlyWarning]:
    since = known.backlog.since
    if since is None or known.status is not SubscriptionStatus.ACTIVE:
        return
    latency = (now - since).total_seconds()
    threshold = publication.latency_threshold
    if threshold is not None and latency >= threshold:
        yield EarlyWarning(
            WarningKind.LATENCY,
            known.subscription,
            f"its first undelivered command has waited for {latency:,.0f} s (latency_threshold: {threshold}); "
            f"{known.backlog.commands:,} commands are undelivered",
            "see with `tranrepl status FILE` whether deliveries run and how long they take",
        )
    longest = publication.distributor.max_distretention
    if latency >= longest * 3600 * EXPIRING_SHARE:
        yield EarlyWarning(
            WarningKind.EXPIRATION,
            known.subscription,
            f"its first undelivered command has waited for {latency / 3600:,.0f} hours; after {longest:g} "
            "(max_distretention) clean-up deactivates the subscription, which must then be reinitialized",
            "let it deliver with `tranrepl run FILE`, or raise max_distretention",
        )
