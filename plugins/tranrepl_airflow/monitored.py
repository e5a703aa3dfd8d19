"""What Replication Monitor needs to know of a publication.

Its log reader's task carries it in the serialized DAG, as the task's documentation in JSON (`doc_json`), since the API
server may have no settings file. No other field would do: Airflow renders the others as templates, so that a table's
name would be evaluated, and cuts those that are long.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tranrepl.settings.publication import Publication, SyncType

if TYPE_CHECKING:
    from tranrepl.admin.status.state import Thresholds

_KEPT = 256
"""Settings of so many files are read once: hundreds of articles take some milliseconds."""


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
    file_settings: str | None = None
    """The file's settings but the alerts, as JSON; None where an earlier version serialized the DAG."""

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
            file_settings=_dumped(settings),
        )

    @property
    def settings(self) -> Publication | None:
        """The file's settings as Airflow parsed them last; None where they are not known, or another version's."""
        return None if self.file_settings is None else _read(self.file_settings)

    @property
    def is_continuous(self) -> bool:
        """Whether scheduled runs are of continuous agents."""
        return self.settings is not None and self.settings.is_continuous

    @property
    def thresholds(self) -> Thresholds:
        # Imported here: parsing a DAG file loads no database driver.
        from tranrepl.admin.status.state import Thresholds

        return Thresholds(self.latency_threshold, self.max_distretention * 3600)


def _dumped(settings: Publication) -> str:
    # Alerts' arguments may hold what not every reader of the monitor is to see.
    return settings.model_dump_json(exclude={"alerts"}, exclude_defaults=True)


@lru_cache(_KEPT)
def _read(settings: str) -> Publication | None:
    try:
        return Publication.model_validate_json(settings)
    except ValidationError:
        return None
