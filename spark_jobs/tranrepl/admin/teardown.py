"""`tranrepl teardown`: remove what setup made for a publication, everywhere. It may be interrupted and run again.

All is looked at, and what stands in the way is reported, before anything is changed. The slot goes first, so that the
Publisher keeps no log; the rows that say what else is ours go last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tranrepl.admin.airflow_pools import find_pools, remove_pools
from tranrepl.distributor.store_folders import StoreFolders
from tranrepl.distributor.teardown import Inventory, remove_empty_tables, remove_publication, take_inventory
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.subscriber.teardown import Destinations
from tranrepl.topology import Topology

Say = Callable[[str], None]
_NAME = "tranrepl teardown"
_NOT_KNOWN = "what it was before setup is not known: an earlier version set it up, or nothing is registered any more"


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


def plan_teardown(topology: Topology, left: Collection[str] = ()) -> Teardown:
    """Look at every place; nothing is changed. `left`: subscriptions whose Subscribers are not looked at.

    Raises ReplicationError where a server is away, an agent is running, or a right is missing.
    """
    publication = topology.publication
    with topology.distributor() as database:
        inventory = take_inventory(database, publication.publication)
    system = inventory.registered.record.publisher_system if inventory.registered else None
    at_publisher, found_system, warnings = _at_publisher(topology, inventory)
    parts = [at_publisher]
    for it in publication.subscriptions:
        if it.name in left:
            warnings.append(f"subscription {it.name}: its Subscriber is left as it is")
        else:
            parts.append(_at_subscriber(topology, it.name, system or found_system, inventory.others))
    named = [it.name for it in publication.subscriptions]
    forgotten = [it for it in inventory.subscriptions if it not in named]
    for name in forgotten:
        warnings.append(f"subscription {name}, which the file does not name: its Subscriber is left as it is")
    parts += _in_store(inventory)
    parts += _in_distribution_database(topology, inventory)
    pools, unasked = _pools(publication.publication, [*named, *forgotten])
    return Teardown((*parts, *pools), (*warnings, *unasked))


def tear_down(teardown: Teardown, say: Say) -> None:
    """Remove it. `say` reports each thing done. Raises ReplicationError where something stands in the way."""
    for part in teardown.parts:
        if part.removed:
            part.remove(say)


def _at_publisher(topology: Topology, inventory: Inventory) -> tuple[Part, str, list[str]]:
    """Return what teardown removes at the Publisher, the server's system identifier, and warnings."""
    registered = inventory.registered
    warnings: list[str] = []
    object_ids = registered.object_ids if registered else frozenset()
    identities = registered.identities if registered else {}
    with topology.publisher(_NAME) as publisher:
        where, system = publisher.where, publisher.identity().system
        if registered is not None and registered.record.publisher_system not in (None, system):
            record = registered.record
            warnings.append(publisher.abandoned(record.publisher_system, record.slot_name, whole=True))
            # Its tables have other numbers here.
            object_ids = frozenset()
        if registered is not None and registered.may_be_reading:
            publisher.require_no_reader()
        removal = publisher.find_removal(object_ids, identities, _NOT_KNOWN)

    def remove(say: Say) -> None:
        with topology.publisher(_NAME) as publisher:
            publisher.remove(removal, say)

    return Part(where, remove, removal.removed, removal.stays), system, warnings


def _at_subscriber(topology: Topology, name: str, publisher_system: str, others: Destinations) -> Part:
    dialect, connection = topology.dialect(name), topology.subscriber_connection(name)
    key = topology.subscription_key(name, publisher_system)
    with ExitStack() as stack:
        try:
            subscriber = stack.enter_context(dialect.teardown(connection, key, _NAME))
        except ReplicationError as error:
            raise type(error)(
                f"Subscriber {name}: {error.message}",
                number=error.report.number,
                remedy=f"{error.report.remedy or 'mend that'}; or leave it as it is: --leave {name}",
            ) from error
        found = subscriber.find(others)
        where, stays = subscriber.where, found.stays(subscriber.drop_statement)

    def remove(say: Say) -> None:
        with dialect.teardown(connection, key, _NAME) as subscriber:
            subscriber.remove(found)
        for it in found.removed:
            say(f"{it} at {where}")

    return Part(where, remove, found.removed, stays)


def _in_store(inventory: Inventory) -> Iterator[Part]:
    """Yield the store's part: the folders that are registered as the publication's, and nothing else."""
    registered = inventory.registered
    if registered is None or not registered.folders:
        return
    store = registered.record.store
    folders, count = StoreFolders(store), len(registered.folders)
    what = f"{count} {'folder' if count == 1 else 'folders'} of stored commands"

    def remove(say: Say) -> None:
        for folder in registered.folders:
            folders.remove(folder)
        say(f"{what} in {store}")

    yield Part(f"Store {store}", remove, (what,))


def _in_distribution_database(topology: Topology, inventory: Inventory) -> Iterator[Part]:
    registered, name = inventory.registered, topology.publication.publication
    if not inventory.has_tables:
        return
    what = [f"registration, subscriptions, history and errors of publication {name}"] if registered else []
    stays = []
    if inventory.is_last and inventory.owned:
        what.append("all tables of ours: no other publication is registered")
    elif inventory.is_last:
        stays.append("all tables of ours, empty: only their owner may drop them")

    def remove(say: Say) -> None:
        with topology.distributor() as database:
            if registered is not None:
                remove_publication(database, registered.record)
                say(f"{what[0]} in {database.where}")
            if inventory.is_last and inventory.owned and remove_empty_tables(database):
                say(f"all tables of ours in {database.where}")

    with topology.distributor() as database:
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
