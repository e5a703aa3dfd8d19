"""Questions to a publication's distribution database and its store, which a page waits for up to a deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tranrepl.admin.status.server_answers import PendingAnswer
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ReplicationError
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitored import MonitoredPublication

STORE = "the distribution database, or the store,"
_PATIENCE_SECONDS = 20.0

Answer = TypeVar("Answer")


def ask_store(
    publication: MonitoredPublication, question: Callable[[DistributionDatabase], Answer]
) -> Answer | ReplicationError:
    """Return the answer, or the error that stands for it. Raises what is a bug."""

    def asked() -> Answer:
        connection_id = publication.distributor
        connections = resolve_connections([connection_id])
        with DistributionDatabase(connections.by_id[connection_id]) as database:
            return question(database)

    return PendingAnswer(STORE, asked, _PATIENCE_SECONDS).answer()
