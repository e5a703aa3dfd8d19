"""`tranrepl check`: everything that would keep a publication from running, found before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tranrepl.catalogue import TableDescription
from tranrepl.connections import Connection
from tranrepl.distribution.opening import subscription_key
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.java import require_java
from tranrepl.postgres import connect
from tranrepl.publisher.postgres import PostgresPublisher
from tranrepl.settings import Article, Publication
from tranrepl.subscriber.postgres import PostgresSubscriber
from tranrepl.subscriber.postgres_procedures import LONGEST_NAME
from tranrepl.subscriber.procedure_names import shared_names


@dataclass(slots=True)
class Checked:
    """The problems found, and the published tables as the Publisher describes them."""

    problems: list[ReplicationError] = field(default_factory=list)
    tables: list[tuple[Article, TableDescription]] = field(default_factory=list)

    def collect(self, problems: Callable[[], Iterator[ReplicationError]]) -> None:
        """Take every problem; one that is raised ends this part of the check only."""
        try:
            self.problems.extend(problems())
        except ReplicationError as error:
            self.problems.append(error)


def check(publication: Publication, connections: Mapping[str, Connection]) -> Checked:
    """Look at all that the publication needs, and change nothing."""
    checked = Checked()
    checked.collect(_java)
    checked.collect(lambda: store_problems(publication.distributor.store))
    checked.collect(lambda: shared_names(publication.articles, LONGEST_NAME))
    checked.collect(lambda: _publisher(checked, publication, connections))
    checked.collect(lambda: _distributor(publication, connections))
    for subscription in publication.subscriptions:
        checked.collect(lambda name=subscription.name: _subscriber(checked, publication, connections, name))  # type: ignore[misc]
    return checked


def _java() -> Iterator[ReplicationError]:
    require_java()
    yield from ()


def store_problems(store: str) -> Iterator[ConfigurationError]:
    """Whether a local store can be written. Another path shows it when a job writes there."""
    parts = urlsplit(store)
    if parts.scheme not in ("", "file"):
        return
    path = Path(parts.path)
    if not path.is_absolute():
        yield ConfigurationError(
            f"distributor.store: {store!r} is relative", remedy="allowed: an absolute path or a URL"
        )
        return
    # Not Path.exists: it raises where a folder on the way may not be entered.
    nearest = next((parent for parent in (path, *path.parents) if os.path.exists(parent)), Path("/"))  # noqa: PTH110
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        what = "is not a folder" if not nearest.is_dir() else "is not writable for this user"
        yield ConfigurationError(
            f"distributor.store: {store!r}: {nearest} {what}", remedy="allowed: a path to write to"
        )


def _publisher(
    checked: Checked, publication: Publication, connections: Mapping[str, Connection]
) -> Iterator[ReplicationError]:
    with connect(connections[publication.publisher.connection], "tranrepl check", autocommit=True) as session:
        publisher = PostgresPublisher(session, publication.publication)
        yield from publisher.problems()
        for article in publication.articles:
            table = publisher.describe(article.source)
            if table is None:
                yield ConfigurationError(
                    f"article {article.source}: {publisher.where} has no such table",
                    remedy="names are case-sensitive; allowed: schema.table as the catalogue spells it",
                )
                continue
            problems = list(publisher.article_problems(article, table))
            yield from problems
            if not problems:
                checked.tables.append((article, table))


def _distributor(publication: Publication, connections: Mapping[str, Connection]) -> Iterator[ReplicationError]:
    database = DistributionDatabase(connections[publication.distributor.connection])
    try:
        database.ping()
    finally:
        database.close()
    yield from ()


def _subscriber(
    checked: Checked, publication: Publication, connections: Mapping[str, Connection], name: str
) -> Iterator[ReplicationError]:
    key = subscription_key(publication, connections[publication.publisher.connection], name)
    connection = connections[publication.subscription(name).connection]
    with connect(connection, "tranrepl check", autocommit=True) as session:
        subscriber = PostgresSubscriber(session, key)
        for article, table in checked.tables:
            yield from subscriber.article_problems(article, table)
