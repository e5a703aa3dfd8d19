"""Queries to a publication's distribution database and store, which a page waits for up to a deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import sqlalchemy as sa
from fastapi import HTTPException, status

from tranrepl.admin.status.server_answers import PendingAnswer, error_line
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.monitoring.publication import MonitoredRecord, find_publication
from tranrepl.errors import ReplicationError
from tranrepl.remedies import Place, named
from tranrepl.settings.publication import Publication
from tranrepl.settings.registered_names import with_registered
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitor.overview import NOT_SET_UP
from tranrepl_airflow.monitor.publications import MonitoredPublication

STORE = "the distribution database, or the store,"
_PATIENCE_SECONDS = 3.0
_STORE_PATIENCE_SECONDS = 20.0

Answer = TypeVar("Answer")
Query = Callable[[sa.Connection, MonitoredRecord], Answer]


class PendingPart(Generic[Answer]):
    """A query on its way to the distribution database, which may not answer."""

    def __init__(self, publication: Publication, query: Query[Answer]) -> None:
        def ask() -> Answer | _NotSetUp:
            with _distribution_database(publication) as database, database.transaction() as connection:
                record = find_publication(connection, publication.publication)
                return _NotSetUp() if record is None else query(connection, record)

        where = f"connection {publication.distributor.connection}"
        self._pending = PendingAnswer(where, ask, _PATIENCE_SECONDS)

    def answer(self) -> Answer:
        """Return the answer. Raises HTTPException: 404 where the publication is not set up, 503 where the database
        gives none."""
        answer = self._pending.answer()
        if isinstance(answer, ReplicationError):
            line = error_line("the distribution database", answer)
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, f"{line.rstrip('.')}.")
        if isinstance(answer, _NotSetUp):
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"{NOT_SET_UP}.")
        return answer


class _NotSetUp:
    pass


def query_store(publication: Publication, query: Callable[[DistributionDatabase], Answer]) -> Answer | ReplicationError:
    """Return the answer of a publication's distribution database and its store, or the error in its place. Raises
    what is a bug."""

    def ask() -> Answer:
        with _distribution_database(publication) as database:
            return query(database)

    return PendingAnswer(STORE, ask, _STORE_PATIENCE_SECONDS).answer()


def store_problem(publication: MonitoredPublication, error: ReplicationError, subscription: str = "") -> str:
    """Return why `query_store` has no answer, with commands that name the publication's file."""
    return named(error_line(STORE, error), Place(publication.settings_file, subscription))


def article_names(publication: Publication) -> list[str]:
    """Return the articles to choose from: those of the file, and the registered ones that its patterns mean."""

    def ask(database: DistributionDatabase) -> Publication:
        record = database.publications.get(publication.publication)
        return with_registered(publication, database.articles.registered(record))

    found = query_store(publication, ask) if publication.has_patterns else publication
    articles = [] if isinstance(found, ReplicationError) else found.articles
    return [str(it.source) for it in articles]


def _distribution_database(publication: Publication) -> DistributionDatabase:
    connections = resolve_connections(publication.distributor.connection_ids).by_id.values()
    return DistributionDatabase(*connections)
