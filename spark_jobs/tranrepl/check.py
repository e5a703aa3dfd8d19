"""`tranrepl check`: everything that would keep a publication from running, found before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tranrepl.catalogue import TableDescription
from tranrepl.commands import Method
from tranrepl.connections import Connection
from tranrepl.distribution.opening import subscription_key
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ConfigurationError, CustomProcedureError, ReplicationError
from tranrepl.java import require_java
from tranrepl.postgres import connect
from tranrepl.publisher.postgres import PostgresPublisher
from tranrepl.registration import registered_article
from tranrepl.settings import Article, Publication
from tranrepl.subscriber.dialect import Capabilities
from tranrepl.subscriber.dialects import dialect_of
from tranrepl.subscriber.procedure_names import shared_names, shared_tables


@dataclass(slots=True)
class Checked:
    """Problems, what is allowed but may surprise, and the published tables as the Publisher describes them."""

    problems: list[ReplicationError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    tables: list[tuple[Article, TableDescription]] = field(default_factory=list)

    @property
    def blocking(self) -> list[ReplicationError]:
        """Problems that setup cannot work with."""
        return [it for it in self.problems if not isinstance(it, CustomProcedureError)]

    @property
    def custom_procedures(self) -> list[ReplicationError]:
        """Custom procedures that need attention: setup leaves them alone, and a delivery fails without them."""
        return [it for it in self.problems if isinstance(it, CustomProcedureError)]

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
    checked.warnings.extend(_not_propagated(publication))
    checked.collect(lambda: _clashes(publication, connections))
    checked.collect(lambda: _publisher(checked, publication, connections))
    checked.collect(lambda: _distributor(publication, connections))
    for subscription in publication.subscriptions:
        checked.collect(lambda name=subscription.name: _subscriber(checked, publication, connections, name))  # type: ignore[misc]
    return checked


def _not_propagated(publication: Publication) -> Iterator[str]:
    """Source: `sp_addarticle`, the caution at NONE."""
    for article in publication.articles:
        for option, command in (("ins_cmd", article.ins_cmd), ("del_cmd", article.del_cmd)):
            if command.method is Method.NONE and article.upd_cmd.method is not Method.NONE:
                half = "INSERT" if option == "ins_cmd" else "DELETE"
                yield (
                    f"article {article.source}: {option}: NONE also drops the {half} of an UPDATE that goes out as "
                    "DELETE and INSERT, or that moves a row across the row filter"
                )


def check_publisher(publication: Publication, connections: Mapping[str, Connection]) -> Checked:
    """Look at the Publisher and its tables only."""
    checked = Checked()
    checked.collect(lambda: _publisher(checked, publication, connections))
    return checked


def _clashes(publication: Publication, connections: Mapping[str, Connection]) -> Iterator[ReplicationError]:
    """Articles that would share a procedure or a table, at any Subscriber; each pair once."""
    seen: set[str] = set()
    for subscription in publication.subscriptions:
        for problem in _clashes_at(publication, dialect_of(connections[subscription.connection]).capabilities):
            if problem.message not in seen:
                seen.add(problem.message)
                yield problem


def _clashes_at(publication: Publication, able: Capabilities) -> Iterator[ConfigurationError]:
    if able.procedures:
        yield from shared_names(publication.articles, able.longest_name, able.name_case)
    if not able.schemas:
        yield from shared_tables(publication.articles, able.title)


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
    with dialect_of(connection).subscriber(connection, key, "tranrepl check") as subscriber:
        yield from subscriber.subscription_problems(publication.subscription(name))
        for article, table in checked.tables:
            problems = list(subscriber.article_problems(article, table))
            yield from problems
            if not problems:
                yield from subscriber.custom_problems(registered_article(article, table), table)
