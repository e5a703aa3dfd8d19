"""The distribution database, with a class for each thing that it holds."""

from __future__ import annotations

from tranrepl.connections import Connection
from tranrepl.distributor.database.articles import Articles
from tranrepl.distributor.database.batches import Batches
from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.deliveries import Deliveries
from tranrepl.distributor.database.delivery_states import DeliveryStates
from tranrepl.distributor.database.errors import Errors
from tranrepl.distributor.database.history import History
from tranrepl.distributor.database.overview import Overview
from tranrepl.distributor.database.publications import Publications
from tranrepl.distributor.database.schema_changes import SchemaChanges
from tranrepl.distributor.database.scripts import Scripts
from tranrepl.distributor.database.snapshots import Snapshots
from tranrepl.distributor.database.subscriptions import Subscriptions
from tranrepl.distributor.database.tracer_tokens import TracerTokens
from tranrepl.distributor.database.warnings import Warnings


class DistributionDatabase(DatabaseConnection):
    """Opened for one job or one command, and closed at its end: `with DistributionDatabase(connection) as database`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.publications = Publications(self)
        self.articles = Articles(self)
        self.subscriptions = Subscriptions(self)
        self.snapshots = Snapshots(self)
        self.batches = Batches(self)
        self.schema_changes = SchemaChanges(self)
        self.scripts = Scripts(self)
        self.tracer_tokens = TracerTokens(self)
        self.deliveries = Deliveries(self)
        self.delivery_states = DeliveryStates(self)
        self.errors = Errors(self)
        self.history = History(self, self.errors)
        self.overview = Overview(self)
        self.warnings = Warnings(self)
