"""The validation job: one subscription's tables compared with the Publisher's at one transaction, and repaired."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from tranrepl.connections import Connection
from tranrepl.distribution.opening import OpenDistribution, open_distribution
from tranrepl.distributor.tables import WITHOUT_SNAPSHOT
from tranrepl.errors import VALIDATION_FAILED, ConfigurationError, ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.requests import Repair, ValidationRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.validation_report import ArticleValidation, SubscriptionValidation
from tranrepl.model.article import RegisteredArticle
from tranrepl.publisher.snapshot import SnapshotSession, needing_registered_tables
from tranrepl.schema.redefinition import DESTINATION_CHANGED
from tranrepl.snapshot.definitions import require_labels
from tranrepl.subscriber.batching.steps import SerialStep
from tranrepl.subscriber.comparison import SubscriberComparison, by_statements
from tranrepl.subscriber.registry import dialect_of
from tranrepl.topology import Topology
from tranrepl.validation.comparison_targets import open_comparison_targets
from tranrepl.validation.differences import Found, compare, rows_of
from tranrepl.validation.repair import command_table, corrections, not_repairable, refuse_too_many, write_script
from tranrepl.validation.sync_point import HeldSyncPoint, SyncPoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def run(spark: SparkSession, request: ValidationRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Compare, and repair where that is asked for. The result is in the history; it has error 20574 where rows differ
    and were not repaired."""
    clock = time.perf_counter()
    topology = Topology(request.publication, connections)
    with open_distribution(topology, request.subscription) as opened:
        job = _Validation(SyncPoint(spark, request, opened, topology))
        try:
            result = job.run()
        except ReplicationError as error:
            result = JobResult(error=error.report)
        result = _with_delivered(result, job.sync_point.delivered, time.perf_counter() - clock)
        opened.database.history.record_validation(opened.record, opened.subscription, result)
    for notice in result.notices:
        log.warning("%s", notice)
    return result


def _with_delivered(result: JobResult, delivered: Sequence[JobResult], seconds: float) -> JobResult:
    """Add what was delivered on the way to the sync point to the validation's result."""
    total = reduce(JobResult.plus, delivered, JobResult())
    counts = {"transactions", "commands", "commands_by_article", "last_xact_seqno"}
    return result.model_copy(update={**total.model_dump(include=counts), "seconds": seconds})


@dataclass(frozen=True, slots=True)
class _Validation:
    sync_point: SyncPoint

    @property
    def request(self) -> ValidationRequest:
        return self.sync_point.request

    @property
    def opened(self) -> OpenDistribution:
        return self.sync_point.opened

    def run(self) -> JobResult:
        chosen, started = self._articles(), time.perf_counter()
        left_out = self.opened.left_out(deliver_stopped=True)
        waiting = {article for article, since in left_out.items() if since is None}
        articles = [it for it in chosen if str(it.source) not in waiting]
        with (
            needing_registered_tables(replicate_ddl=self.request.publication.replicate_ddl),
            self.sync_point.held({it.article_id: by_statements(it) for it in articles}) as point,
            ExitStack() as stack,
        ):
            waiting |= self._moved()
            articles = [it for it in articles if str(it.source) not in waiting]
            passed = tuple(f"article {it} still waits for its snapshot, and was not compared" for it in sorted(waiting))
            targets = stack.enter_context(open_comparison_targets(self.sync_point, point, articles))
            point.applier.rollback()
            self._require_same_labels(registered := self._registered(articles))
            met = time.perf_counter()
            found = compare(targets.reader, targets.compared, rowcount_only=self.request.rowcount_only)
            self._require_same_labels(registered)
            compared = time.perf_counter()
            scripted = self._script(point, targets.subscriber, found)
        reports = [self._report(it, scripted) for it in found]
        repaired = self._repair(found) if self.request.repair is Repair.APPLY else {}
        validation = SubscriptionValidation(
            xact_seqno=point.snapshot.xact_seqno.hex(),
            rowcount_only=self.request.rowcount_only,
            articles=tuple(it.model_copy(update={"repaired": repaired.get(it.article)}) for it in reports),
        )
        left = [it for it in validation.articles if not it.settled]
        resumed = self._resume([it.article for it in validation.articles if it.settled])
        phases = {"meet": met - started, "compare": compared - met, "repair": time.perf_counter() - compared}
        return JobResult(
            validation=validation,
            phases=phases,
            notices=(*passed, *targets.notices, *resumed),
            error=_failed(self.request, left),
        )

    def _moved(self) -> set[str]:
        """Return the articles that the way to the sync point let wait: their table is another one from there on."""
        states = self.opened.database.snapshots.article_states(self.opened.subscription).items()
        return {it for it, state in states if state.status in WITHOUT_SNAPSHOT and state.reason == DESTINATION_CHANGED}

    def _resume(self, settled: Sequence[str]) -> list[str]:
        """Resume articles that were stopped because nobody knew whether their rows are right; return them."""
        if self.request.rowcount_only:
            return []
        resumed = [it for it in self.opened.stopped_articles() if it in settled]
        self.opened.database.snapshots.resume_articles(self.opened.subscription, resumed)
        return [f"article {it} was stopped; its rows are the Publisher's, and its delivery resumes" for it in resumed]

    def _articles(self) -> list[RegisteredArticle]:
        registered = self.opened.database.articles.active(
            self.request.publication, self.opened.record, self.request.subscription
        )
        sources = [str(it.source) for it in registered]
        for name in self.request.articles:
            if name not in sources:
                raise ConfigurationError(
                    f"publication {self.request.publication.publication} has no article {name!r}",
                    remedy=f"allowed: {', '.join(sources)}",
                )
        return [it for it in registered if str(it.source) in (self.request.articles or sources)]

    def _script(self, point: HeldSyncPoint, subscriber: SubscriberComparison, found: Sequence[Found]) -> dict[str, int]:
        """Write the repair script; return the rows for which statements were written, by article."""
        if self.request.repair is not Repair.SCRIPT or self.request.repair_script is None:
            return {}
        chosen = self._repairable(found)
        with self._publisher_rows(point, chosen) as session:
            write_script(self.request, subscriber, point, corrections(session, chosen))
        return {str(it.compared.article.source): len(it.rows) for it in chosen}

    def _repair(self, found: Sequence[Found]) -> dict[str, int]:
        """Repair the Subscriber's rows; return how many were corrected, by article."""
        chosen = self._repairable(found)
        if not chosen:
            return {}
        articles = [it.compared.article for it in chosen]
        with self.sync_point.held({it.article_id: by_statements(it) for it in articles}) as point:
            self._require_same_labels(registered := self._registered(articles))
            with open_comparison_targets(self.sync_point, point, articles) as targets:
                for it, compared in zip(chosen, targets.compared, strict=True):
                    it.rows = rows_of(targets.reader, compared, [row.number for row in it.rows])
            self._apply(point, chosen, registered)
        return {str(it.compared.article.source): len(it.rows) for it in chosen}

    def _apply(self, point: HeldSyncPoint, found: Sequence[Found], registered: Sequence[RegisteredArticle]) -> None:
        command_id = 1
        with self._publisher_rows(point, found) as session:
            for some in corrections(session, found):
                point.applier.apply([SerialStep(command_table(point.watermark, command_id, some))])
                command_id += len(some)
        self._require_same_labels(registered)
        point.applier.ready()
        point.applier.commit(point.watermark)
        point.applier.flush()
        log.info("repaired %d rows", sum(len(it.rows) for it in found))

    def _registered(self, articles: Sequence[RegisteredArticle]) -> list[RegisteredArticle]:
        """Return the articles as they are registered now: more may have been read on the way to the sync point."""
        tables = {it.source_object_id for it in articles}
        active = self.opened.database.articles.active(
            self.request.publication, self.opened.record, self.request.subscription
        )
        return [it for it in active if it.source_object_id in tables]

    def _require_same_labels(self, articles: Sequence[RegisteredArticle]) -> None:
        """Raise TransientError where labels were renamed meanwhile: the Publisher shows those of now, whatever snapshot
        a row is of."""
        if self.request.publication.replicate_ddl:
            with self.sync_point.topology.publisher("tranrepl validation") as publisher:
                require_labels(publisher, articles)

    def _repairable(self, found: Sequence[Found]) -> list[Found]:
        """Return the articles that differ and may be corrected. Raises ConfigurationError where too much differs."""
        chosen = [it for it in found if it.rows and self._not_repairable(it) is None]
        for it in chosen:
            refuse_too_many(it.report())
        return chosen

    def _report(self, found: Found, scripted: Mapping[str, int]) -> ArticleValidation:
        report = found.report()
        reason = None if report.equal else self._not_repairable(found)
        return report.model_copy(update={"not_repaired": reason, "scripted": scripted.get(report.article, 0)})

    def _not_repairable(self, found: Found) -> str | None:
        able = dialect_of(self.opened.connection).capabilities
        return not_repairable(found.compared.article, self.opened.subscriber.claims(), schemas=able.schemas)

    @contextmanager
    def _publisher_rows(self, point: HeldSyncPoint, found: Sequence[Found]) -> Iterator[SnapshotSession]:
        with point.snapshot.source.session("tranrepl validation") as session:
            session.hold([it.compared.article for it in found])
            yield session


def _failed(request: ValidationRequest, unequal: Sequence[ArticleValidation]) -> ErrorReport | None:
    if not unequal:
        return None
    first = next((row for it in unequal for row in it.rows), None)
    key = None if first is None else first.key_in_words()
    repaired = (
        f"look at the rows that differ; `tranrepl validate FILE -s {request.subscription} --repair` corrects them"
    )
    reasons = dict.fromkeys(f"{it.article}: {it.not_repaired}" for it in unequal if it.not_repaired is not None)
    by_hand = (
        f"correct by hand, or leave as they are, the rows of articles that are not repaired ({'; '.join(reasons)}); "
        "`tranrepl status FILE --acknowledge` stops counting the error"
    )
    ways = [repaired] if any(it.not_repaired is None for it in unequal) else []
    return ErrorReport(
        kind=ErrorKind.DATA,
        message=f"Subscriber {request.subscription}: data validation failed: "
        + "; ".join(it.summary() for it in unequal),
        remedy="; ".join([*ways, *([by_hand] if reasons else [])]),
        number=VALIDATION_FAILED,
        article=unequal[0].article,
        key=key,
    )
