"""A publication whose file names things as they were before a schema change, as check and setup see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.settings.following import follow
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


def following(topology: Topology, registered: Sequence[RegisteredArticle]) -> Topology:
    """Return the same publication with the names of the articles in force."""
    return replace(topology, publication=follow(topology.publication, registered)) if registered else topology
