"""The articles that a publication's file means, as check and setup see them: the tables of its patterns, and names of
now in the place of those before a schema change."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.publisher.publisher import Publisher
from tranrepl.settings.publication import Publication
from tranrepl.settings.registered_names import file_sources
from tranrepl.topology import Topology


def registered_articles(topology: Topology, database: DistributionDatabase) -> list[RegisteredArticle]:
    """Return the articles in force; none where nothing is registered yet, or nobody answers."""
    try:
        if not database.is_current():
            return []
        record = database.publications.find(topology.publication.publication)
        return [] if record is None else database.articles.registered(record)
    except ReplicationError:
        return []


def with_tables(publication: Publication, publisher: Publisher, registered: Sequence[RegisteredArticle]) -> Publication:
    """Return the publication with an article for each table at the Publisher that its patterns mean, by the name that
    the file has for it. Raises ConfigurationError where two of them would have one destination."""
    if not publication.has_patterns:
        return publication
    there = publisher.tables_in({it.source.schema for it in publication.articles if it.pattern is not None})
    known = {it.source_object_id: it for it in registered}
    # A table that has left the schema is published as before; one that was dropped is not.
    elsewhere = publisher.table_names(known.keys() - set(there.values()))
    published = {*there.values(), *elsewhere}
    renamed = file_sources(publication, [it for number, it in known.items() if number in published])
    named = publication.of_tables([*renamed, *(name for name, number in there.items() if number not in known)])
    named.require_own_destinations()
    return named
