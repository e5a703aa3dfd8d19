"""The ends of a publication: from its file or, where the file is gone, as they are registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.object_store import KINDS as KINDS_OF_STORES
from tranrepl.distributor.store import store_at
from tranrepl.distributor.store_mark import has_own_mark
from tranrepl.distributor.teardown import Registered, take_inventory
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.publisher.registry import KINDS, open_publisher
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.topology import Topology


@dataclass(frozen=True, slots=True)
class Left:
    """Which ends are left as they are, without a look at them."""

    publisher: bool = False
    subscribers: frozenset[str] = frozenset()
    """Names of subscriptions."""


LEFT_NOTHING = Left()


@dataclass(frozen=True, slots=True)
class PublicationEnds:
    """Connections to a publication's servers."""

    publication: str
    distributor: Connection
    publisher: Connection | None
    """None where it is left as it is."""
    subscribers: Mapping[str, Connection]
    """By subscription, without those that are left as they are."""
    store: Connection | None = None
    """The store's, where it has one."""

    def subscription_key(self, subscription: str, system: str, publisher_db: str) -> SubscriptionKey:
        """Return how a subscription's rows at the Subscriber are named."""
        it = self.publisher
        address = f"{it.host or ''}:{it.port or ''}" if it is not None else ""
        return SubscriptionKey(address, system, publisher_db, self.publication, subscription)


def ends_of(topology: Topology, left: Left = LEFT_NOTHING) -> PublicationEnds:
    """Return the ends that the file names."""
    publication = topology.publication
    return PublicationEnds(
        publication.publication,
        topology.distributor_connection,
        None if left.publisher else topology.publisher_connection,
        {
            it.name: topology.subscriber_connection(it.name)
            for it in publication.subscriptions
            if it.name not in left.subscribers
        },
        topology.store_connection,
    )


def find_ends(
    publication: str,
    distributor: Connection,
    connections: Sequence[Connection],
    left: Left,
    application: str,
) -> PublicationEnds:
    """Find the ends of a registered publication among connections: the Publisher by its database and its server's
    system identifier, a Subscriber by its database and the subscription's rows there.

    Where no publication is registered any more, only what is left of the distribution database is found. Raises
    ConfigurationError where others are, but not this one, or where an end is not found.
    """
    with DistributionDatabase(distributor) as database:
        inventory, where = take_inventory(database, publication), database.where
    registered = inventory.registered
    if registered is None and inventory.publications:
        raise ConfigurationError(
            f"{where}: publication {publication} is not registered",
            remedy=f"registered: {', '.join(inventory.publications)}",
        )
    ends = PublicationEnds(publication, distributor, None, {})
    if registered is None:
        return ends
    search = _Search(ends, registered, connections, application)
    if not left.publisher:
        search = _Search(search.publisher(), registered, connections, application)
    subscribers = search.subscribers([it for it in inventory.subscriptions if it not in left.subscribers])
    store = _store_connection(distributor, registered.record.store.url, connections)
    return PublicationEnds(publication, distributor, search.ends.publisher, subscribers, store)


def _store_connection(distributor: Connection, url: str, connections: Sequence[Connection]) -> Connection | None:
    """Return the connection that reads this distribution database's mark in the store; None where none does, or none
    is needed."""
    kind = KINDS_OF_STORES.get(urlsplit(url).scheme)
    with DistributionDatabase(distributor) as database:
        for it in connections:
            with suppress(ReplicationError):
                if it.kind == kind and has_own_mark(database, store_at(url, it)):
                    return it
    return None


@dataclass(frozen=True, slots=True)
class _Search:
    ends: PublicationEnds
    registered: Registered
    connections: Sequence[Connection]
    application: str

    def publisher(self) -> PublicationEnds:
        """Return the ends with the Publisher."""
        database, system = self.registered.publisher_db, self.registered.record.publisher_system
        answers: list[str] = []
        for it in self.connections:
            if it.kind not in KINDS or it.database != database:
                continue
            try:
                with open_publisher(it, self.ends.publication, self.application) as publisher:
                    found = publisher.identity().system
                    # A standby has the same identifier; nothing is removed there.
                    publisher.end_of_log()
            except ReplicationError as error:
                answers.append(f"{it.connection_id}: {error.message}")
                continue
            if system in (None, found):
                return PublicationEnds(self.ends.publication, self.ends.distributor, it, {})
            answers.append(f"{it.connection_id} is another server, {found}")
        raise ConfigurationError(
            f"the Publisher, database {database} of the server with system identifier {system}, is not found among "
            f"the connections AIRFLOW_CONN_…{_asked(answers)}",
            remedy=f"define a connection to it, as in AIRFLOW_CONN_PUBLISHER=postgres://user:password@host:5432/"
            f"{database}; where it is gone for good: --leave-publisher",
        )

    def subscribers(self, subscriptions: Sequence[str]) -> dict[str, Connection]:
        """Return the Subscribers of the subscriptions. Raises one ConfigurationError for all that are not found."""
        found: dict[str, Connection] = {}
        problems: list[ConfigurationError] = []
        for name in subscriptions:
            try:
                found[name] = self._subscriber(name)
            except ConfigurationError as error:
                problems.append(error)
        if problems:
            raise ConfigurationError(
                "\n".join(it.message for it in problems), remedy="\n".join(it.report.remedy or "" for it in problems)
            )
        return found

    def _subscriber(self, name: str) -> Connection:
        database = self.registered.subscriber_dbs[name]
        answers: list[str] = []
        for it in self.connections:
            if (it.database or "") != database:
                continue
            try:
                if self._is_there(it, name):
                    return it
                answers.append(f"{it.connection_id}: the subscription is not set up there")
            except ReplicationError as error:
                answers.append(f"{it.connection_id}: {error.message}")
        raise ConfigurationError(
            f"the Subscriber of subscription {name}, database {database}, is not found among the connections "
            f"AIRFLOW_CONN_…{_asked(answers)}",
            remedy=f"define a connection to it, as setup had it; where it is gone for good: --leave {name}",
        )

    def _is_there(self, connection: Connection, name: str) -> bool:
        """Return whether rows of the subscription are there, or what an interrupted teardown has left of them."""
        record, dialect = self.registered.record, dialect_of(connection)
        key = self.ends.subscription_key(name, record.publisher_system or "", self.registered.publisher_db)
        with dialect.subscriber(connection, key, self.application) as subscriber:
            if subscriber.find_watermark() is not None:
                return True
        with dialect.teardown(connection, key, self.application) as teardown:
            return bool(teardown.find({}).procedures)


def _asked(answers: Sequence[str]) -> str:
    return f" ({'; '.join(answers)})" if answers else ": none names a database of that name"
