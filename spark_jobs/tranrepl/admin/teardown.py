"""`tranrepl teardown`: remove what setup made for a publication, everywhere. It may be interrupted and run again.

All is looked at, and an obstacle is reported, before anything is changed. The slot goes first, so that the
Publisher keeps no log; the rows that say what else is ours go last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tranrepl.admin.airflow_pools import find_pools, remove_pools
from tranrepl.admin.publication_ends import LEFT_NOTHING, Left, PublicationEnds, ends_of
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.store_mark import MARK, has_own_mark
from tranrepl.distributor.teardown import (
    Inventory,
    Registered,
    remove_empty_tables,
    remove_publication,
    remove_subscription,
    take_inventory,
)
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.publisher.registry import open_publisher, publisher_databases
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.teardown import statements_left
from tranrepl.topology import Topology

Say = Callable[[str], None]
APPLICATION = "tranrepl teardown"
_NOT_KNOWN = "its former value is unknown: nothing is registered any more"


@dataclass(frozen=True, slots=True)
class Part:
    """What goes in one place, and what stays there, in words; and how it goes."""

    where: str
    remove: Callable[[Say], None]
    removed: tuple[str, ...]
    stays: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Teardown:
    """What there is to remove, place by place, in the order in which it goes."""

    parts: tuple[Part, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def is_empty(self) -> bool:
        return not any(part.removed for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Identity:
    """The Publisher as Subscribers name it."""

    system: str
    database: str


def plan_teardown(topology: Topology, left: Left = LEFT_NOTHING) -> Teardown:
    """Look at every place of a publication that a file describes, as `plan_teardown_at` does."""
    return plan_teardown_at(ends_of(topology, left), left)


def plan_teardown_at(ends: PublicationEnds, left: Left = LEFT_NOTHING) -> Teardown:
    """Look at every place; nothing is changed.

    Raises ReplicationError where a server is away, an agent is running, or a right is missing.
    """
    with DistributionDatabase(ends.distributor, ends.store) as database:
        inventory = take_inventory(database, ends.publication)
    parts, identity, warnings = _at_publisher(ends, inventory)
    for named in _by_database(ends.subscribers):
        parts.append(_at_subscriber(ends, named, identity, inventory))
    forgotten = [it for it in inventory.subscriptions if it not in ends.subscribers]
    for name in dict.fromkeys([*sorted(left.subscribers), *forgotten]):
        warnings.append(_left_subscriber(ends, name, identity, named=name in left.subscribers))
    pools, unasked = _pools(ends.publication, [*ends.subscribers, *forgotten])
    # The rows that say what else is ours go last.
    parts += [*_in_store(ends, inventory), *pools, *_in_distribution_database(ends, inventory)]
    return Teardown(tuple(parts), (*warnings, *unasked))


def tear_down(teardown: Teardown, say: Say) -> None:
    """Remove it. `say` reports each thing done. Raises ReplicationError where there is an obstacle."""
    for part in teardown.parts:
        if part.removed:
            part.remove(say)


def _at_publisher(ends: PublicationEnds, inventory: Inventory) -> tuple[list[Part], _Identity, list[str]]:
    """Return what teardown removes at the Publisher, which server it is, and warnings."""
    registered, connection = inventory.registered, ends.publisher
    if connection is None:
        return [], _registered_identity(registered), _left_publisher(registered)
    warnings: list[str] = []
    object_ids = registered.object_ids if registered else frozenset()
    identities = registered.identities if registered else {}
    partitions = registered.partitions if registered else {}
    with open_publisher(connection, ends.publication, APPLICATION) as publisher:
        where, system, database = publisher.where, publisher.identity().system, publisher.database
        if registered is not None and registered.record.publisher_system not in (None, system):
            record = registered.record
            warnings.append(publisher.abandoned(record.publisher_system, record.log_name, whole=True))
            # Its tables have other numbers here.
            object_ids, partitions = frozenset(), {}
        if registered is not None and registered.may_be_reading:
            publisher.require_no_reader()
        removal = publisher.find_removal(object_ids, identities, _NOT_KNOWN, partitions)

    def remove(say: Say) -> None:
        with open_publisher(connection, ends.publication, APPLICATION) as publisher:
            publisher.remove(removal, say)

    known = registered.record.publisher_system if registered else None
    return [Part(where, remove, removal.removed, removal.stays)], _Identity(known or system, database), warnings


def _registered_identity(registered: Registered | None) -> _Identity:
    if registered is None:
        return _Identity("", "")
    return _Identity(registered.record.publisher_system or "", registered.publisher_db)


def _left_publisher(registered: Registered | None) -> list[str]:
    """Say what removes the publication at a Publisher that is left as it is."""
    if registered is None:
        return ["no publication is registered: nothing is known of what is left at a Publisher or a Subscriber"]
    place = f"database {registered.publisher_db} of the server {registered.record.publisher_system}"
    statements = [
        it
        for kind in publisher_databases()
        for it in kind.statements_left(registered.record.log_name, registered.tables)
    ]
    return [f"the Publisher, {place}, is left as it is; where it is still used, run there:\n" + "\n".join(statements)]


def _left_subscriber(ends: PublicationEnds, name: str, identity: _Identity, *, named: bool) -> str:
    """Say what removes the publication at a Subscriber that is left as it is."""
    unnamed = "" if named else ", which the file does not name"
    key = ends.subscription_key(name, identity.system, identity.database)
    statements = "\n".join(statements_left(key))
    return (
        f"subscription {name}{unnamed}: its Subscriber is left as it is; where that is still used, run there:\n"
        f"{statements}"
    )


def _by_database(subscribers: Mapping[str, Connection]) -> list[dict[str, Connection]]:
    """Return subscriptions with their connections, those of one database together: all of a publication goes there at
    once."""
    found: dict[tuple[object, ...], dict[str, Connection]] = {}
    for name, it in subscribers.items():
        found.setdefault(it.place, {})[name] = it
    return list(found.values())


def _at_subscriber(
    ends: PublicationEnds, named: Mapping[str, Connection], identity: _Identity, inventory: Inventory
) -> Part:
    """Return what teardown removes at the Subscriber of subscriptions that share a database."""
    name, connection = next(iter(named.items()))
    dialect = dialect_of(connection)
    key = ends.subscription_key(name, identity.system, identity.database)
    destinations = inventory.registered.destinations(named) if inventory.registered else {}
    with ExitStack() as stack:
        try:
            subscriber = stack.enter_context(dialect.teardown(connection, key, APPLICATION))
        except ReplicationError as error:
            options = " ".join(f"--leave {it}" for it in named)
            raise type(error)(
                f"Subscriber {name}: {error.message}",
                number=error.report.number,
                remedy=f"{error.report.remedy or 'mend that'}; or leave it as it is: {options}",
            ) from error
        found = subscriber.find(inventory.others)
        where, stays = subscriber.where, found.stays(subscriber.drop_statement, destinations)

    def remove(say: Say) -> None:
        with dialect.teardown(connection, key, APPLICATION) as subscriber:
            subscriber.remove(found)
        for it in found.removed:
            say(f"{it} at {where}")
        if inventory.registered is not None:
            # Where the file is gone, what is there says where the Subscriber is.
            with DistributionDatabase(ends.distributor, ends.store) as database:
                for it in named:
                    remove_subscription(database, inventory.registered.record, it)

    return Part(where, remove, found.removed, stays)


def _in_store(ends: PublicationEnds, inventory: Inventory) -> Iterator[Part]:
    """Yield the store's part: the folders that are registered as the publication's, and the mark of whose the store is,
    where no other publication of the distribution database has it."""
    registered = inventory.registered
    if registered is None:
        return
    store = registered.record.store
    count = len(registered.folders)
    with DistributionDatabase(ends.distributor, ends.store) as database:
        marked = has_own_mark(database, store) and not registered.shares_store
    what = [f"{count} {'folder' if count == 1 else 'folders'} of stored commands"] if count else []
    what += ["the mark of its distribution database"] if marked else []

    def remove(say: Say) -> None:
        store.remove(registered.folders)
        if marked:
            store.remove_text(MARK)
        for it in what:
            say(f"{it} in {store.url}")

    if what:
        yield Part(f"Store {store.url}", remove, tuple(what))


def _in_distribution_database(ends: PublicationEnds, inventory: Inventory) -> Iterator[Part]:
    registered, name = inventory.registered, ends.publication
    if not inventory.has_tables:
        return
    what = [f"registration, subscriptions, history and errors of publication {name}"] if registered else []
    stays = []
    if inventory.is_last and inventory.owned:
        what.append("all tables of tranrepl: no other publication is registered")
    elif inventory.is_last:
        stays.append("all tables of tranrepl, empty: only their owner may drop them")

    def remove(say: Say) -> None:
        with DistributionDatabase(ends.distributor, ends.store) as database:
            if registered is not None:
                remove_publication(database, registered.record)
                say(f"{what[0]} in {database.where}")
            if inventory.is_last and inventory.owned and remove_empty_tables(database):
                say(f"all tables of tranrepl in {database.where}")

    with DistributionDatabase(ends.distributor, ends.store) as database:
        where = database.where
    yield Part(where[0].upper() + where[1:], remove, tuple(what), tuple(stays))


def _pools(publication: str, subscriptions: Sequence[str]) -> tuple[list[Part], list[str]]:
    """Return the parts that are Airflow's pools, and a warning where Airflow does not answer."""
    try:
        pools = find_pools(publication, subscriptions)
    except ConfigurationError as error:
        return [], [str(error)]

    def remove(say: Say) -> None:
        remove_pools(pools)
        for name in pools:
            say(f"pool {name} in Airflow")

    return [Part("Airflow", remove, tuple(f"pool {name}" for name in pools))], []
