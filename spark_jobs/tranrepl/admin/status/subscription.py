"""Where a subscription stands: what its Subscriber says, and what the distribution database does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tranrepl.admin.status.history import error_of, run_of
from tranrepl.admin.status.report import (
    LastError,
    LastRun,
    MeasuredLatency,
    SkippedCommands,
    SubscriptionStatus,
)
from tranrepl.admin.status.server_answers import error_line
from tranrepl.admin.status.state import WITHOUT_SNAPSHOT, Thresholds, subscription_state
from tranrepl.admin.status.undelivered import Undelivered, undelivered_after
from tranrepl.distributor.database import DistributionDatabase, ErrorRow, PublicationRecord, SubscriptionRecord
from tranrepl.distributor.tables import RunStatus, SubscriptionStatus as RegisteredStatus
from tranrepl.errors import VALIDATION_FAILED, ReplicationError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.latency import together
from tranrepl.next_steps import Place
from tranrepl.settings.publication import Publication
from tranrepl.topology import Topology

MEASURED_MINUTES = 10
"""How far latency by leg looks back."""


def ask_subscriber(topology: Topology, system: str | None, name: str) -> bytes | None:
    """Ask the Subscriber alone for its watermark. Raises ConfigurationError where it is not set up, TransientError
    where it is not there.

    Without the Publisher's system identifier which watermark is the subscription's is not known: None.
    """
    with topology.subscriber(name, system, "tranrepl status") as subscriber:
        return subscriber.find_watermark() if system is None else subscriber.watermark()


@dataclass(frozen=True, slots=True)
class SubscriptionQuestion:
    """Queries the distribution database, and its store, about one subscription."""

    publication: Publication
    database: DistributionDatabase
    record: PublicationRecord
    name: str
    watermark: bytes | None
    """The Subscriber's; None where it gave no answer."""
    settings_file: str

    def ask(self) -> SubscriptionStatus:
        """Return the subscription's status. Raises ConfigurationError where it is not registered."""
        subscription = self.database.subscriptions.get(self.record, self.name)
        watermark = self.watermark or self._last_known(subscription)
        uninitialized = subscription.status in WITHOUT_SNAPSHOT
        batches = [] if uninitialized else self.database.batches.after(self.record, watermark)
        undelivered = undelivered_after(self.record, batches, watermark)
        last = run_of(self.database.history.newest(self.record, subscription))
        latency = _age(undelivered.since) if undelivered.since is not None else None
        rate = self.database.history.delivery_rate(self.record, subscription)
        states = self.database.snapshots.article_states(subscription)
        return SubscriptionStatus(
            subscription=self.name,
            state=subscription_state(Thresholds.of(self.publication), subscription.status, _status_of(last), latency),
            watermark=watermark.hex(),
            waiting_articles=[str(it.source) for it in self.publication.articles]
            if uninitialized
            else [article for article, state in states.items() if state.status in WITHOUT_SNAPSHOT],
            stopped_articles={
                article: state.reason or ""
                for article, state in states.items()
                if state.status is RegisteredStatus.INACTIVE
            },
            undelivered_transactions=undelivered.transactions,
            undelivered_commands=undelivered.commands,
            undelivered_at_most=undelivered.at_most,
            estimated_seconds=int(undelivered.commands / rate) if rate else undelivered.commands,
            latency_seconds=latency,
            last_latency_seconds=self.database.history.delivery_latency(self.record, subscription),
            latency=measured_latency(self.database, self.record, subscription),
            last_error=self._last_error(subscription, watermark, undelivered),
            skipped=self._skipped(subscription),
            delivered_commands=self.database.history.delivered_commands(self.record, subscription),
            last_run=last,
        )

    def _last_known(self, subscription: SubscriptionRecord) -> bytes:
        recorded = self.database.history.last_known_watermark(self.record, subscription)
        return recorded or subscription.subscription_seqno or FIRST_XACT_SEQNO

    def _last_error(
        self, subscription: SubscriptionRecord, watermark: bytes, undelivered: Undelivered
    ) -> LastError | None:
        row = self.database.errors.last(self.record, subscription)
        if row is None:
            return None
        healed = self._is_healed(row, subscription, watermark, undelivered)
        return error_of(row, healed=healed, place=Place(self.settings_file, self.name))

    def _is_healed(
        self, row: ErrorRow, subscription: SubscriptionRecord, watermark: bytes, undelivered: Undelivered
    ) -> bool:
        report = row.report
        if report.xact_seqno is not None and report.number != VALIDATION_FAILED:
            if watermark >= bytes.fromhex(report.xact_seqno):
                return True
            # A later run may have ended before it came to the transaction.
            if undelivered.commands:
                return False
        return self.database.history.ended_well_since(self.record, subscription, row)

    def _skipped(self, subscription: SubscriptionRecord) -> SkippedCommands:
        hours = self.publication.distributor.history_retention
        skipped = self.database.errors.skipped_since(self.record, subscription, timedelta(hours=hours))
        last = error_of(skipped.last, healed=False) if skipped.last else None
        return SkippedCommands(commands=skipped.commands, within_hours=hours, last=last)


def measured_latency(
    database: DistributionDatabase, record: PublicationRecord, subscription: SubscriptionRecord
) -> MeasuredLatency | None:
    """Return how long the commands took that were delivered within the last minutes; None where there were none."""
    since = datetime.now(UTC) - timedelta(minutes=MEASURED_MINUTES)
    measured = together(it.latency for it in database.deliveries.latency_by_leg(record, subscription, since))
    if not measured.commands:
        return None
    microseconds = measured.clock_difference
    return MeasuredLatency(
        within_minutes=MEASURED_MINUTES,
        commands=measured.commands,
        legs=measured.all_quantiles(),
        clock_difference=None if microseconds is None else microseconds / 1_000_000,
    )


def unanswered_subscription(name: str, watermark: bytes | None, error: ReplicationError | None) -> SubscriptionStatus:
    """Return what is left to say without the distribution database. `error`: why it says nothing of this one alone."""
    return SubscriptionStatus(
        subscription=name,
        watermark=watermark.hex() if watermark is not None else None,
        problem=error_line("the distribution database", error) if error is not None else None,
    )


def _status_of(run: LastRun | None) -> RunStatus | None:
    if run is None:
        return None
    return RunStatus.SUCCEED if run.acknowledged else RunStatus[run.status.upper()]


def _age(time: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - time).total_seconds())
