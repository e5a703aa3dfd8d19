"""What Replication Monitor needs to know of a publication.

Its log reader's task carries it in the serialized DAG, since the API server may have no settings file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict

from tranrepl.settings.publication import Publication, SyncType

if TYPE_CHECKING:
    from tranrepl.admin.status.state import Thresholds

MONITORED = "monitored"
"""The field of the log reader's task."""


class MonitoredSubscription(BaseModel):
    """A subscription of the file: where its Subscriber is, and whether a snapshot can give it its rows."""

    model_config = ConfigDict(frozen=True)

    name: str
    connection: str
    takes_snapshots: bool


class MonitoredPublication(BaseModel):
    """Where a publication's servers are, by connection id, and when somebody should look."""

    model_config = ConfigDict(frozen=True)

    publication: str
    publisher: str
    distributor: str
    latency_threshold: float | None
    max_distretention: float
    """Hours."""
    subscriptions: tuple[MonitoredSubscription, ...] = ()
    """Empty where an earlier version parsed the file, as are the articles."""
    articles: tuple[str, ...] = ()
    """Their source tables."""

    @classmethod
    def of(cls, publication: Mapping[str, Any]) -> Self:
        """Return that of a publication's settings."""
        settings = Publication.model_validate(publication)
        return cls(
            publication=settings.publication,
            publisher=settings.publisher.connection,
            distributor=settings.distributor.connection,
            latency_threshold=settings.latency_threshold,
            max_distretention=settings.distributor.max_distretention,
            subscriptions=tuple(
                MonitoredSubscription(
                    name=it.name, connection=it.connection, takes_snapshots=it.sync_type is SyncType.AUTOMATIC
                )
                for it in settings.subscriptions
            ),
            articles=tuple(str(it.source) for it in settings.articles),
        )

    @property
    def thresholds(self) -> Thresholds:
        # Imported here: database drivers are not for whoever parses a DAG file.
        from tranrepl.admin.status.state import Thresholds

        return Thresholds(self.latency_threshold, self.max_distretention * 3600)
