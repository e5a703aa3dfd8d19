"""The distribution database, with a class for each thing that it holds, and what they return."""

from __future__ import annotations

from tranrepl.connections import Connection
from tranrepl.distributor.database.articles import Articles
from tranrepl.distributor.database.batches import Batch, Batches
from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.deliveries import DeliveredSpan, Deliveries
from tranrepl.distributor.database.delivery_states import DeliveryState, DeliveryStates, StateAfter
from tranrepl.distributor.database.errors import Errors, RecordedError
from tranrepl.distributor.database.history import History, RunRow
from tranrepl.distributor.database.overview import Overview
from tranrepl.distributor.database.pending_definitions import Pending
from tranrepl.distributor.database.publications import PublicationRecord, Publications
from tranrepl.distributor.database.schema_changes import SchemaChanges, StoredSchemaChange, StoredScript
from tranrepl.distributor.database.scripts import Scripts
from tranrepl.distributor.database.snapshots import ArticleState, Snapshots, UnknownRows
from tranrepl.distributor.database.subscriptions import SubscriptionRecord, Subscriptions
from tranrepl.distributor.database.tracer_tokens import PendingToken, StoredToken, TokenHistory, TracerTokens
from tranrepl.distributor.database.warnings import Warnings

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


class DistributionDatabase(DatabaseConnection):
    """Opened for one job or one command, and closed at its end: `with DistributionDatabase(connection) as database`.
    `store` is how its publications' stores are reached, where they are object storage."""

    def __init__(self, connection: Connection, store: Connection | None = None) -> None:
        super().__init__(connection)
        self.publications = Publications(self, store)
        self.articles = Articles(self)
        self.subscriptions = Subscriptions(self)
        self.snapshots = Snapshots(self)
        self.batches = Batches(self)
        self.schema_changes = SchemaChanges(self)
        self.pending_definitions = Pending(self)
        self.scripts = Scripts(self)
        self.tracer_tokens = TracerTokens(self)
        self.deliveries = Deliveries(self)
        self.delivery_states = DeliveryStates(self)
        self.errors = Errors(self)
        self.history = History(self, self.errors)
        self.overview = Overview(self)
        self.warnings = Warnings(self)
