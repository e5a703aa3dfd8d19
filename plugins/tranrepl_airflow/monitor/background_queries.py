"""Queries that no page waits for: how much log a Publisher keeps for its slot, and how large a store is. They run in
threads, and the last answers are cached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tranrepl.connections import Connection
from tranrepl.distributor.command_store import StoreSpace
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.store import store_at
from tranrepl.errors import ReplicationError
from tranrepl.model.position import Position
from tranrepl.publisher.publisher import RetainedLog
from tranrepl.publisher.registry import open_publisher
from tranrepl.settings.publication import Publication
from tranrepl_airflow.job_connections import resolve_connections

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")

_LOG_CACHED_SECONDS = 10.0
_STORE_CACHED_SECONDS = 60.0
_AWAITED_SECONDS = 60.0
"""A query that hangs for longer is sent again, in another thread."""
_APPLICATION = "tranrepl monitor"


@dataclass(slots=True)
class _Query(Generic[Answer]):
    sent: float
    answer: Answer | None = None
    pending: bool = True


class CachedQuery(Generic[Key, Answer]):
    """The last answers to a query, in one process of the API server. `ask` raises nothing."""

    def __init__(self, ask: Callable[[Key], Answer], cached_seconds: float) -> None:
        self._ask = ask
        self._cached_seconds = cached_seconds
        self._queries: dict[Key, _Query[Answer]] = {}
        self._lock = threading.Lock()

    def last(self, key: Key) -> Answer | None:
        """Return the last answer, None before the first. One that is old is asked for again, in a thread."""
        now = time.monotonic()
        with self._lock:
            known = self._queries.get(key)
            if known is not None and now - known.sent <= (_AWAITED_SECONDS if known.pending else self._cached_seconds):
                return known.answer
            query = _Query(now, None if known is None else known.answer)
            self._queries[key] = query
        threading.Thread(target=self._answer, args=(key, query), daemon=True).start()
        return query.answer

    def _answer(self, key: Key, query: _Query[Answer]) -> None:
        try:
            query.answer = self._ask(key)
        finally:
            query.pending = False


@dataclass(frozen=True, slots=True)
class PublisherAnswer:
    """What a Publisher said last."""

    retained: RetainedLog | None = None
    """None where nothing is kept."""
    problem: str | None = None
    """Why it gave no answer."""


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """What a store takes, and what room its disk has."""

    bytes: int | None
    """None where it cannot be reached from the API server."""
    space: StoreSpace | None
    """None where its disk is not ours to ask."""


def _ask_publisher(key: tuple[str, str, str]) -> PublisherAnswer:
    connection_id, publication, distributor_id = key
    try:
        connections = resolve_connections([connection_id, distributor_id]).by_id
        registered_to = _registered_to(connections[distributor_id], publication)
        with open_publisher(connections[connection_id], publication, _APPLICATION) as publisher:
            return PublisherAnswer(publisher.health(registered_to).retained)
    except ReplicationError as error:
        return PublisherAnswer(problem=error.message)
    except Exception as error:  # noqa: BLE001 - a thread has nobody else to report to
        return PublisherAnswer(problem=f"{type(error).__name__}")


def _registered_to(distributor: Connection, publication: str) -> Position | None:
    """Return up to where the log is registered; None where that is not known."""
    with suppress(ReplicationError), DistributionDatabase(distributor) as database:
        record = database.publications.find(publication)
        return None if record is None else record.registered_to
    return None


def _ask_store(key: tuple[str, str | None]) -> StoreAnswer:
    store, connection_id = key
    size = space = None
    with suppress(ReplicationError):
        ids = [] if connection_id is None else [connection_id]
        found = store_at(store, *resolve_connections(ids).by_id.values())
        space = found.space()
        size = sum(it.bytes for it in found.folders())
    return StoreAnswer(size, space)


@dataclass(frozen=True, slots=True)
class BackgroundQueries:
    """The last answers of all Publishers and stores, in one process of the API server."""

    _publishers: CachedQuery[tuple[str, str, str], PublisherAnswer] = field(
        default_factory=lambda: CachedQuery(_ask_publisher, _LOG_CACHED_SECONDS)
    )
    _stores: CachedQuery[tuple[str, str | None], StoreAnswer] = field(
        default_factory=lambda: CachedQuery(_ask_store, _STORE_CACHED_SECONDS)
    )

    def publisher(self, publication: Publication) -> PublisherAnswer | None:
        """Return what the publication's Publisher said last; None before its first answer."""
        ends = publication.publisher.connection, publication.publication, publication.distributor.connection
        return self._publishers.last(ends)

    def store(self, url: str, connection_id: str | None) -> StoreAnswer | None:
        """Return what was last known of a store; None before the first look."""
        return self._stores.last((url, connection_id))
