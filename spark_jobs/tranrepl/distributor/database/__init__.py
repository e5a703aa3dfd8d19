"""The distribution database, with a class for each thing that it holds, and what they return."""

from __future__ import annotations

from tranrepl.distributor.database.batches import Batch
from tranrepl.distributor.database.deliveries import DeliveredSpan
from tranrepl.distributor.database.delivery_states import DeliveryState, StateAfter
from tranrepl.distributor.database.distribution_database import DistributionDatabase
from tranrepl.distributor.database.errors import RecordedError
from tranrepl.distributor.database.history import RunRow
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.database.schema_changes import StoredSchemaChange, StoredScript
from tranrepl.distributor.database.snapshots import ArticleState, UnknownRows
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.database.tracer_tokens import PendingToken, StoredToken, TokenHistory

__all__ = [
    "ArticleState",
    "Batch",
    "DeliveredSpan",
    "DeliveryState",
    "DistributionDatabase",
    "PendingToken",
    "PublicationRecord",
    "RecordedError",
    "RunRow",
    "StateAfter",
    "StoredSchemaChange",
    "StoredScript",
    "StoredToken",
    "SubscriptionRecord",
    "TokenHistory",
    "UnknownRows",
]
