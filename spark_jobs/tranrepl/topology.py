"""Where a publication's servers are: its Publisher, its Distributor, its Subscribers, and how each is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tranrepl.connections import Connection
from tranrepl.distributor.command_store import CommandStore
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.store import store_at
from tranrepl.settings.publication import Publication
from tranrepl.settings.registered_names import with_current_names
from tranrepl.subscriber.base.dialect import Dialect
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.subscription import SubscriptionKey

if TYPE_CHECKING:
    from tranrepl.model.article import RegisteredArticle
    from tranrepl.model.position import Positions
    from tranrepl.publisher.publisher import Publisher


@dataclass(frozen=True, slots=True)
class Topology:
    """A publication, and the connections to its servers by id. A job has the connections of the ends that it opens.

    What a database needs is loaded when that end is opened: a delivery starts sooner without the Publisher's modules.
    """

    publication: Publication
    connections: Mapping[str, Connection]

    def with_current_names(self, registered: Sequence[RegisteredArticle]) -> Topology:
        """Return the same publication with the names of the articles in force."""
        return replace(self, publication=with_current_names(self.publication, registered)) if registered else self

    @property
    def publisher_connection(self) -> Connection:
        return self.connections[self.publication.publisher.connection]

    @property
    def distributor_connection(self) -> Connection:
        return self.connections[self.publication.distributor.connection]

    @property
    def store_connection(self) -> Connection | None:
        """The store's; None where machines use their own identity there, or none."""
        name = self.publication.distributor.store_connection
        return None if name is None else self.connections[name]

    def subscriber_connection(self, subscription: str) -> Connection:
        """Return the subscription's connection. Raises ConfigurationError where the publication has no such
        subscription."""
        return self.connections[self.publication.subscription(subscription).connection]

    def dialect(self, subscription: str) -> Dialect:
        """Return what the subscription's Subscriber speaks."""
        from tranrepl.subscriber.registry import dialect_of

        return dialect_of(self.subscriber_connection(subscription))

    def subscription_key(self, subscription: str, publisher_system: str | None) -> SubscriptionKey:
        """Return how a subscription's rows at the Subscriber are named. `publisher_system`: the system identifier of
        the Publisher's server, where the publication has one by now."""
        publisher = self.publisher_connection
        return SubscriptionKey(
            f"{publisher.host or ''}:{publisher.port or ''}",
            publisher_system or "",
            publisher.database or "",
            self.publication.publication,
            subscription,
        )

    def publisher(self, application: str) -> AbstractContextManager[Publisher]:
        """Open the Publisher. `application` names the session there."""
        from tranrepl.publisher.registry import open_publisher

        return open_publisher(self.publisher_connection, self.publication.publication, application)

    def unused_options(self) -> list[str]:
        """Return a sentence for each connection with options that are not used."""
        from tranrepl.subscriber.registry import dialect_of

        store = self.store_connection
        databases = [it for it in self.connections.values() if it != store]
        unused = {it.connection_id: dialect_of(it).unused_options(it) for it in databases}
        return [
            f"connection {name}: of its extra is not used: {'; '.join(f'{it} ({why})' for it, why in options.items())}"
            for name, options in unused.items()
            if options
        ]

    @property
    def positions(self) -> Positions:
        """What is known of positions in the Publisher's log without asking it."""
        from tranrepl.publisher.registry import publisher_database

        return publisher_database(self.publisher_connection).positions

    def distributor(self) -> DistributionDatabase:
        """Open the distribution database, which connects when it is first asked."""
        return DistributionDatabase(self.distributor_connection, self.store_connection)

    def store(self) -> CommandStore:
        """Return the store that the file names. Raises ConfigurationError where there is none of the kind."""
        return store_at(self.publication.distributor.store, self.store_connection)

    def subscriber(
        self, subscription: str, publisher_system: str | None, application: str
    ) -> AbstractContextManager[Subscriber]:
        """Open a subscription's Subscriber. `application` names the session there; `publisher_system` as for
        `subscription_key`."""
        key = self.subscription_key(subscription, publisher_system)
        return self.dialect(subscription).subscriber(self.subscriber_connection(subscription), key, application)
