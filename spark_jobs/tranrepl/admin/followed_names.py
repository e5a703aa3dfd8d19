"""A publication whose file names things as they were before a schema change, as check and setup see it."""

from __future__ import annotations

from dataclasses import replace

from tranrepl.errors import ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.settings.following import follow
from tranrepl.topology import Topology


def registered_articles(topology: Topology) -> list[RegisteredArticle]:
    """Return the articles in force; none where nothing is registered yet, or nobody answers."""
    try:
        with topology.distributor() as database:
            if not database.is_current():
                return []
            record = database.publications.find(topology.publication.publication)
            return [] if record is None else database.articles.registered(record)
    except ReplicationError:
        return []


def following(topology: Topology) -> Topology:
    """Return the same publication with the names of now."""
    registered = registered_articles(topology)
    return replace(topology, publication=follow(topology.publication, registered)) if registered else topology
