"""A sync point: the Publisher in an exported snapshot, the Subscriber with all that it shows and no more."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tranrepl.connections import Connection
from tranrepl.distribution import job as distribution_job, without_spark as distribution_without_spark
from tranrepl.distribution.opening import OpenDistribution
from tranrepl.errors import ErrorKind, ErrorReport, FencedError, TransientError
from tranrepl.jobs.requests import ApplyMode, DistributionRequest, ValidationRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import deliver_with_retry
from tranrepl.log_reader.continuity import find_break
from tranrepl.log_reader.reading_past import read_log_past
from tranrepl.model.article import RegisteredArticle
from tranrepl.publisher.snapshot import Snapshot
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.base.applier import Applier
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_TRIES = 8
_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class HeldSyncPoint:
    """The Subscriber is at `watermark`: it has what the snapshot shows. Nothing is delivered while the transaction
    of `applier`, which holds the fence, is open."""

    snapshot: Snapshot
    watermark: bytes
    applier: Applier


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """Bring the Publisher and the Subscriber to one transaction, and hold them there."""

    spark: SparkSession
    request: ValidationRequest
    opened: OpenDistribution
    topology: Topology
    delivered: list[JobResult] = field(default_factory=list)
    """What each delivery up to a sync point did."""

    @property
    def publisher(self) -> Connection:
        return self.topology.publisher_connection

    @contextmanager
    def held(self, articles: Mapping[int, RegisteredArticle]) -> Iterator[HeldSyncPoint]:
        """Bring both ends to one transaction and hold them there; `articles` are what the applier can apply, by
        article_id.

        Raises TransientError where other deliveries were faster every time.
        """
        settings = self.request.publication.subscription(self.request.subscription)
        options = ApplierOptions(not_for_replication=settings.not_for_replication)
        dialect = self.topology.dialect(self.request.subscription)
        timeout = self.request.publication.publisher.snapshot_timeout
        self._refuse_broken_log()
        for _ in range(_TRIES):
            with ExitStack() as stack:
                # What a continuous delivery has at hand is registered by now: the snapshot shows it.
                stack.enter_context(self.opened.database.delivery_states.paused(self.opened.subscription))
                publisher = stack.enter_context(self.topology.publisher("tranrepl validation"))
                snapshot = stack.enter_context(publisher.snapshot(timeout, log.warning))
                read_log_past(self.spark, self.topology, self.opened.database, snapshot.position)
                watermark = self._deliver_up_to(snapshot)
                if watermark is None:
                    time.sleep(_PAUSE)
                    continue
                applier = stack.enter_context(
                    dialect.applier(self.opened.connection, self.opened.key, articles, options)
                )
                if not _begun(applier, watermark):
                    continue
                yield HeldSyncPoint(snapshot, watermark, applier)
                return
        raise TransientError(
            f"Subscriber {self.request.subscription}: {_TRIES} times, other deliveries went past the transaction at "
            "which both ends were to be compared",
            remedy="try again, or while no other job delivers",
        )

    def _refuse_broken_log(self) -> None:
        """Raise an error where the log went back: what is registered may be past the snapshot, and no log reader would
        say so."""
        record = self.opened.database.publications.get(self.request.publication.publication)
        with self.topology.publisher("tranrepl validation") as publisher:
            problem = find_break(publisher, self.opened.database, record)
        if problem is not None:
            raise problem

    def _deliver_up_to(self, snapshot: Snapshot) -> bytes | None:
        """Deliver up to the snapshot; return the Subscriber's watermark, None where it has more than the snapshot
        shows."""
        error = deliver_with_retry(lambda mode: self._deliver(snapshot, mode), _warn_of_failed_batch).error
        if error is not None and error.kind is not ErrorKind.FENCED:
            raise error.to_exception()
        watermark = self.opened.subscriber.watermark()
        return None if error is not None or watermark > snapshot.xact_seqno else watermark

    def _deliver(self, snapshot: Snapshot, mode: ApplyMode) -> JobResult:
        request = DistributionRequest(
            publication=self.request.publication,
            subscription=self.request.subscription,
            last_xact_seqno=snapshot.xact_seqno.hex(),
            mode=mode,
            deliver_stopped=True,
        )
        idle = distribution_without_spark.run_without_spark(request, self.topology)
        result = idle or distribution_job.run(self.spark, request, self.topology.connections)
        self.delivered.append(result)
        return result


def _warn_of_failed_batch(error: ErrorReport) -> None:
    log.warning("a batch failed (%s), trying again over a single connection", error.message)


def _begun(applier: Applier, watermark: bytes) -> bool:
    try:
        applier.begin(watermark)
    except FencedError:
        return False
    return True
