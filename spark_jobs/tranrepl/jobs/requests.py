"""Requests to Spark jobs: a JSON file of mode 0600, without secrets. Connections travel in the environment."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from tranrepl.settings.publication import Publication


class ApplyMode(StrEnum):
    """How a distribution job connects: the first attempt, and the retry over a single connection."""

    STREAMS = "streams"
    SINGLE_CONNECTION = "single_connection"


class LogReaderRequest(BaseModel):
    """Drain the Publisher's log into the store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: Literal["log_reader"] = "log_reader"
    publication: Publication
    continuous_until: AwareDatetime | None = None
    """Go on until then, or until a shutdown is asked for, and read what is committed meanwhile. None: end once the log
    is drained."""

    def connection_ids(self) -> list[str]:
        """Return the connections that this job needs, each once."""
        return list(
            dict.fromkeys([self.publication.publisher.connection, *self.publication.distributor.connection_ids])
        )


class _SubscriptionRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    publication: Publication
    subscription: str

    def connection_ids(self) -> list[str]:
        """Return the connections that this job needs, each once. A distribution's Publisher only names the
        subscription."""
        subscriber = self.publication.subscription(self.subscription).connection
        publication = self.publication
        return list(
            dict.fromkeys([publication.publisher.connection, *publication.distributor.connection_ids, subscriber])
        )


class DistributionRequest(_SubscriptionRequest):
    """Deliver stored commands to one subscription."""

    job: Literal["distribution"] = "distribution"
    committed_before: datetime | None = None
    """Deliver no transaction from the first one on that was committed at or after this time. None: deliver all."""
    last_xact_seqno: str | None = None
    """Deliver transactions up to and with this one, in hexadecimal, and none after it. None: deliver all."""
    mode: ApplyMode = ApplyMode.STREAMS
    deliver_stopped: bool = False
    """Whether to deliver also where an article is stopped, so that a validation can compare its rows."""
    continuous_until: AwareDatetime | None = None
    """Go on until then, or until a shutdown is asked for, deliver what is registered meanwhile, and at the end what is
    registered by then. None: end once all is delivered."""


class SnapshotRequest(_SubscriptionRequest):
    """Give one subscription the Publisher's rows as of one point of the log."""

    job: Literal["snapshot"] = "snapshot"
    articles: tuple[str, ...] = ()
    """Only these of the articles that wait for a snapshot, by source. Empty: all of them."""


class Repair(StrEnum):
    """What a validation does about rows that differ."""

    NONE = "none"
    APPLY = "apply"
    SCRIPT = "script"


class ValidationRequest(_SubscriptionRequest):
    """Compare one subscription's tables with the Publisher's, at one transaction."""

    job: Literal["validation"] = "validation"
    articles: tuple[str, ...] = ()
    """Source tables of the only articles to compare. Empty: all."""
    rowcount_only: bool = False
    repair: Repair = Repair.NONE
    repair_script: Path | None = None
    """Where statements are appended that would make the Subscriber equal, for `Repair.SCRIPT`."""
