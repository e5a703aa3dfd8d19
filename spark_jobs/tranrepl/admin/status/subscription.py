"""State of a subscription, from its Subscriber and from the distribution database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from tranrepl.admin.status.report import (
    LastError,
    LastRun,
    MeasuredLatency,
    SkippedCommands,
    SubscriptionStatus,
)
from tranrepl.admin.status.server_answers import error_line
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, SubscriptionRecord
from tranrepl.distributor.database.overview import Backlog, SubscriptionOverview
from tranrepl.distributor.stored_commands import StoredCount, count_after
from tranrepl.distributor.tables import WITHOUT_SNAPSHOT, SubscriptionStatus as RegisteredStatus
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.model.latency import together
from tranrepl.remedies import Place
from tranrepl.settings.publication import Publication
from tranrepl.settings.registered_names import with_registered
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

    def _whole(self) -> list[str]:
        """Return every article, by the names in the file."""
        publication = self.publication
        if publication.has_patterns:
            publication = with_registered(publication, self.database.articles.registered(self.record))
        return [str(it.source) for it in publication.articles]

    def ask(self) -> SubscriptionStatus:
        """Return the subscription's status. Raises ConfigurationError where it is not registered."""
        subscription = self.database.subscriptions.get(self.record, self.name)
        place = Place(self.settings_file, self.name)
        known = self._with_exact_backlog(self.database.overview.subscription(subscription, self.watermark))
        states = self.database.snapshots.article_states(subscription)
        return SubscriptionStatus(
            subscription=self.name,
            state=known.state(self.publication),
            watermark=known.watermark.hex(),
            waiting_articles=self._whole()
            if known.status in WITHOUT_SNAPSHOT
            else [article for article, state in states.items() if state.status in WITHOUT_SNAPSHOT],
            stopped_articles={
                article: state.reason or ""
                for article, state in states.items()
                if state.status is RegisteredStatus.INACTIVE
            },
            undelivered_transactions=known.backlog.transactions,
            undelivered_commands=known.backlog.commands,
            undelivered_at_most=known.backlog.at_most,
            estimated_seconds=None if known.estimated_seconds is None else int(known.estimated_seconds),
            latency_seconds=known.latency_seconds,
            last_latency_seconds=known.last_latency_seconds,
            latency=measured_latency(self.database, self.record, subscription),
            last_error=LastError.of(known.last_error, place),
            skipped=self._skipped(subscription, place),
            delivered_commands=self.database.history.delivered_commands(self.record, subscription),
            last_run=LastRun.of(known.last_run),
        )

    def _with_exact_backlog(self, known: SubscriptionOverview) -> SubscriptionOverview:
        """Return it without what the batch that the watermark is inside of has up to the watermark: the store says,
        where it can be read from here."""
        if not known.backlog.at_most:
            return known
        batches = self.database.batches.after(self.record, known.watermark)
        inside = [it for it in batches if it.first_xact_seqno <= known.watermark]
        try:
            counts = [count_after(self.record, it, known.watermark) for it in inside]
        except ConfigurationError:
            return known
        whole = [it for it in batches if it.first_xact_seqno > known.watermark]
        counts += [StoredCount(it.transactions, it.commands, it.first_commit_time) for it in whole]
        backlog = Backlog(
            transactions=sum(it.transactions for it in counts),
            commands=sum(it.commands for it in counts),
            since=next((it.since for it in counts if it.commands), None),
            at_most=False,
        )
        return replace(known, backlog=backlog)

    def _skipped(self, subscription: SubscriptionRecord, place: Place) -> SkippedCommands:
        hours = self.publication.distributor.history_retention
        skipped = self.database.errors.skipped_since(self.record, subscription, timedelta(hours=hours))
        last = LastError.of(skipped.last, place)
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
