"""Retention: which stored commands and history rows go, and which subscriptions have waited too long.

The algorithm is SQL Server's (`sp_MSdistribution_cleanup`, Agent history clean up), with one difference: a subscription
is where its Subscriber says, not where the last history row says, so that a Subscriber restored from a backup
finds what it needs as long as that is kept at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from tranrepl.distributor.database import Batch, DistributionDatabase, PublicationRecord, SubscriptionRecord
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import SUBSCRIPTION_DEACTIVATED, ErrorKind, ErrorReport
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.remedies import reinitialize_subscription
from tranrepl.settings.publication import DistributorSettings

ORPHAN_AGE = timedelta(hours=6)
"""A folder that was whole for so long and is not registered never will be: the job that wrote it is gone. So is one
that still reads a folder that was replaced. The distribution database's clock counts, from the clean-up that found the
folder first: the store's may say when an upload began."""


@dataclass(frozen=True, slots=True)
class ActiveSubscription:
    """An active subscription and its Subscriber's watermark; None where the Subscriber did not answer."""

    subscription: SubscriptionRecord
    watermark: bytes | None


class Cleanup(BaseModel):
    """What a clean-up did. Also the XCom of its task."""

    batches: int = 0
    commands: int = 0
    history_rows: int = 0
    delivery_rows: int = 0
    """By how many there are fewer: minutes are added up to hours."""
    tracer_tokens: int = 0
    orphan_folders: int = 0
    merged_batches: int = 0
    """Small batches that are part of a larger one now."""
    deactivated: dict[str, ErrorReport] = {}
    """The error (21011) of each deactivated subscription, by name."""
    unreachable: dict[str, str] = {}
    """Why a Subscriber did not answer, by subscription: nothing is removed that it may need."""


def remove_expired(
    database: DistributionDatabase,
    record: PublicationRecord,
    settings: DistributorSettings,
    subscriptions: Sequence[ActiveSubscription],
) -> Cleanup:
    """Deactivate what waited too long, then remove what nobody needs. Idempotent. The store is
    this distribution database's: folders that it does not know go.

    Raises ReplicationError where the store cannot be cleaned up from here.
    """
    longest = timedelta(hours=settings.max_distretention)
    deactivated = {it.subscription.subscription: _deactivated(database, record, it, longest) for it in subscriptions}
    errors = {name: error for name, error in deactivated.items() if error is not None}
    active = [it for it in subscriptions if it.subscription.subscription not in errors]
    removed = _remove_batches(database, record, active, timedelta(hours=settings.min_distretention))
    reach(Failpoint.UNREGISTERED)
    record.store.remove(batch.folder for batch in removed)
    # Listed before the registered ones are: a folder that is registered in between is none of them.
    before = datetime.now(UTC) - ORPHAN_AGE
    unwritten = {it.name for it in record.store.folders() if it.written < before}
    orphans = database.batches.note_unregistered(record, unwritten, ORPHAN_AGE)
    record.store.remove(orphans)
    history = timedelta(hours=settings.history_retention)
    return Cleanup(
        batches=len(removed),
        commands=sum(batch.commands for batch in removed),
        history_rows=database.history.remove(record, history),
        delivery_rows=database.deliveries.thin(record, history, timedelta(hours=settings.measurement_retention)),
        tracer_tokens=database.tracer_tokens.remove(record, history),
        orphan_folders=len(orphans),
        deactivated=errors,
    )


def _deactivated(
    database: DistributionDatabase, record: PublicationRecord, subscribed: ActiveSubscription, longest: timedelta
) -> ErrorReport | None:
    """Deactivate a subscription whose first undelivered command waited longer; return its error."""
    watermark = subscribed.watermark
    if watermark is None:
        watermark = database.history.last_known_watermark(record, subscribed.subscription) or FIRST_XACT_SEQNO
    waiting = database.batches.first_older(record, watermark, longest)
    if waiting is None or not database.subscriptions.set_status(subscribed.subscription, SubscriptionStatus.INACTIVE):
        return None
    name = subscribed.subscription.subscription
    error = ErrorReport(
        kind=ErrorKind.CONFIGURATION,
        number=SUBSCRIPTION_DEACTIVATED,
        message=f"subscription {name} of publication {record.publication} was deactivated: its first undelivered "
        f"command, of {waiting.first_commit_time:%Y-%m-%d %H:%M:%S} UTC, is older than "
        f"{longest // timedelta(hours=1)} hours (max_distretention)",
        remedy=reinitialize_subscription(name),
        xact_seqno=waiting.first_xact_seqno.hex(),
    )
    database.errors.record(record, error, name)
    return error


def _remove_batches(
    database: DistributionDatabase, record: PublicationRecord, active: Sequence[ActiveSubscription], youngest: timedelta
) -> list[Batch]:
    """Remove batches that every active subscription has, and return them."""
    watermarks = [it.watermark for it in active]
    known = [it for it in watermarks if it is not None]
    if len(known) < len(watermarks):
        return []
    return database.batches.remove(record, min([*known, record.registered_xact_seqno or FIRST_XACT_SEQNO]), youngest)
