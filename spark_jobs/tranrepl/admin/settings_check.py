"""Checks of the settings alone, before any server is asked."""

from __future__ import annotations

from collections.abc import Iterator

from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.model.commands import Method
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Publication
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.capabilities import Capabilities
from tranrepl.subscriber.procedure_names import shared_names, shared_tables
from tranrepl.topology import Topology


def not_propagated(publication: Publication) -> Iterator[str]:
    """Yield a warning for each article whose UPDATEs may meet rows that were never sent. Source: `sp_addarticle`, the
    caution at NONE."""
    for article in publication.articles:
        for option, command in (("ins_cmd", article.ins_cmd), ("del_cmd", article.del_cmd)):
            if command.method is Method.NONE and article.upd_cmd.method is not Method.NONE:
                half = "INSERT" if option == "ins_cmd" else "DELETE"
                yield (
                    f"article {article.source}: {option}: NONE also drops the {half} of an UPDATE that is sent as "
                    "DELETE and INSERT, or that moves a row across the row filter"
                )


def large_objects(tables: PublishedTables) -> Iterator[str]:
    """Yield a warning for each article with columns that may name large objects: what those hold is in no table."""
    for article, table in tables:
        named = [it.name for it in table.published(article.columns) if it.base_type_name == "oid"]
        if named:
            yield (
                f"article {article.source}: {', '.join(named)}: where a value is the number of a large object, its "
                "contents stay at the Publisher"
            )


def clashes(topology: Topology) -> Iterator[ReplicationError]:
    """Yield an error for each pair of articles that would share a procedure or a table at a Subscriber, each pair
    once."""
    seen: set[str] = set()
    for subscription in topology.publication.subscriptions:
        there = topology.publication.at(subscription.name)
        for problem in _clashes_at(there, topology.dialect(subscription.name).capabilities):
            if problem.message not in seen:
                seen.add(problem.message)
                yield problem
    yield from _shared_databases(topology)


def _clashes_at(publication: Publication, able: Capabilities) -> Iterator[ConfigurationError]:
    if able.procedures:
        yield from shared_names(publication.articles, able.procedure_names, able.name_case)
    if not able.schemas:
        yield from shared_tables(publication.articles, able.title)


def _shared_databases(topology: Topology) -> Iterator[ConfigurationError]:
    """Yield an error for each table that subscriptions of one database would fill from several articles."""
    owners: dict[tuple[object, ...], tuple[str, TableName]] = {}
    for subscription in topology.publication.subscriptions:
        place = topology.subscriber_connection(subscription.name).place
        for article in topology.publication.at(subscription.name).articles:
            table = (*place, article.destination_table)
            other, source = owners.setdefault(table, (subscription.name, article.source))
            if source != article.source:
                yield ConfigurationError(
                    f"articles {source} (subscription {other}) and {article.source} (subscription {subscription.name}) "
                    f"would share table {article.destination_table} of one database",
                    remedy="give one of them another destination",
                )
