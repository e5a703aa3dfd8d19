"""How much log a Publisher keeps for its slot, and how large a store is. No page waits for either."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from tranrepl.distributor.store_folders import StoreFolders
from tranrepl.distributor.store_space import StoreSpace, store_space
from tranrepl.errors import ReplicationError
from tranrepl.publisher.publisher import RetainedLog
from tranrepl.publisher.registry import open_publisher
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitor.kept_answers import KeptAnswers
from tranrepl_airflow.monitored import MonitoredPublication

_LOG_KEPT_SECONDS = 10.0
_STORE_KEPT_SECONDS = 60.0
_APPLICATION = "tranrepl monitor"


@dataclass(frozen=True, slots=True)
class PublisherAnswer:
    """What a Publisher said last."""

    retained: RetainedLog | None = None
    """None where there is no slot."""
    problem: str | None = None
    """Why it gave no answer."""


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """What a store takes, and what room its disk has."""

    bytes: int | None
    """None where it cannot be reached from the API server."""
    space: StoreSpace | None
    """None where its disk is not ours to ask."""


def _ask_publisher(publication: MonitoredPublication) -> PublisherAnswer:
    try:
        connection = resolve_connections([publication.publisher]).by_id[publication.publisher]
        with open_publisher(connection, publication.publication, _APPLICATION) as publisher:
            return PublisherAnswer(publisher.health().retained)
    except ReplicationError as error:
        return PublisherAnswer(problem=error.message)
    except Exception as error:  # noqa: BLE001 - a thread has nobody else to tell
        return PublisherAnswer(problem=f"{type(error).__name__}")


def _ask_store(store: str) -> StoreAnswer:
    size = None
    with suppress(ReplicationError):
        size = StoreFolders(store).size()
    return StoreAnswer(size, store_space(store))


@dataclass(frozen=True, slots=True)
class AskedBeside:
    """The last answers of all Publishers and stores, in one process of the API server."""

    publishers: KeptAnswers[MonitoredPublication, PublisherAnswer] = field(
        default_factory=lambda: KeptAnswers(_ask_publisher, _LOG_KEPT_SECONDS)
    )
    stores: KeptAnswers[str, StoreAnswer] = field(default_factory=lambda: KeptAnswers(_ask_store, _STORE_KEPT_SECONDS))
