"""What is registered, delivered to one Subscriber in order: over one connection, or over several streams."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING

from tranrepl import garbage_collection
from tranrepl.distribution.all_gather_server import AllGatherServer
from tranrepl.distribution.delivery import RESULT_DDL, Delivery
from tranrepl.distribution.latency import RegisteredBatches
from tranrepl.distribution.opening import OpenDistribution, reinitialize_or_stop_articles
from tranrepl.distribution.plan import (
    READ_TOGETHER,
    Group,
    cut_after,
    cut_around,
    deliverable,
    deliverable_again,
    groups,
)
from tranrepl.distribution.recording import ReportedRun, SkippedCommands, watermark_behind
from tranrepl.distribution.stored_batches import (
    Checked,
    Commands,
    batch_errors,
    is_intact,
    stored_commands,
)
from tranrepl.distribution.stored_range import LeftOut, StoredRange, first_at_or_after
from tranrepl.distribution.stream_commands import STREAM_COMMANDS_DDL, Divider
from tranrepl.distribution.streams import StreamDelivery, together
from tranrepl.distributor.database import Batch, RunRow, StoredSchemaChange
from tranrepl.distributor.database.batches import definitions_of
from tranrepl.errors import ConfigurationError, ErrorKind, ErrorReport, InternalError
from tranrepl.jobs.requests import ApplyMode, DistributionRequest
from tranrepl.jobs.results import JobResult, latency_ms
from tranrepl.model.article import RegisteredArticle, newest_definitions
from tranrepl.settings.publication import Apply, CommandOrder, StreamAssignment
from tranrepl.spark.lasting_task import driver_addresses
from tranrepl.spark.without_pandas import map_in_arrow
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.batching.commit_batches import CommitLimits
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.subscription import CommandPlace, UnfinishedBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class DeliveryDraining:
    """One draining of what is registered: its delivery to a Subscriber, up to what there is as it begins."""

    def __init__(
        self,
        spark: SparkSession,
        request: DistributionRequest,
        opened: OpenDistribution,
        row: RunRow,
        record_progress: Callable[[JobResult], None],
        is_to_end: Callable[[], bool],
    ) -> None:
        self._record_progress = record_progress
        self._is_to_end = is_to_end
        self._spark = spark
        self._opened = opened
        self._run = ReportedRun(opened.distributor, row.id)
        self._settings = request.publication.subscription(request.subscription)
        self._limits = CommitLimits(self._settings.commit_batch_size, self._settings.commit_batch_threshold)
        self._skipped = SkippedCommands(opened.distributor, opened.record.publication, request.subscription)
        self._request = request
        wanted = self._settings.subscription_streams if request.mode is ApplyMode.STREAMS else 1
        cores = spark.sparkContext.defaultParallelism
        self._streams = min(wanted, cores)
        self._left_out: dict[str, bytes | None] = {}
        self.notices = (_fewer_streams(request.subscription, wanted, cores),) if cores < wanted else ()
        self.applied_before: CommandPlace | None = None
        """Where the first transaction to deliver is applied in part: up to a schema change."""
        self.tracers = opened.tracers()
        self.schema_changes: tuple[bytes, ...] = ()
        """The transactions (`xact_seqno`) to deliver that change the schema, in order."""
        self.scripts: Collection[bytes] = ()
        """Those that hold a script."""
        self._checked = Checked.LARGE
        self._articles: Mapping[int, RegisteredArticle] = {}
        self._in_force: Sequence[RegisteredArticle] = ()
        """Those of them that are in force."""
        if self._streams > 1:
            opened.subscriber.set_up_streams(self._streams)

    def run(self) -> JobResult:
        """Deliver what is registered; up to an error, which is in the result where a delivery met it, and else
        raised."""
        request, opened = self._request, self._opened
        position = opened.subscriber.position()
        self.leave_out(opened.left_out(deliver_stopped=request.deliver_stopped))
        self.applied_before = position.applied_before
        opened.refuse_incomplete(position.watermark)
        opened.record_arrivals(position.watermark)
        total = JobResult(last_xact_seqno=position.watermark.hex(), notices=self.notices)
        if position.unfinished is not None:
            total = total.plus(self.finish(position.watermark, position.unfinished))
        if total.error is None:
            watermark = bytes.fromhex(total.last_xact_seqno or "")
            registered = opened.database.batches.after(opened.record, watermark)
            self.tracers = opened.tracers()
            stored_changes = opened.database.schema_changes.after(opened.record, watermark)
            self.schema_changes = tuple(sorted({it.xact_seqno for it in stored_changes}))
            self.scripts = opened.database.schema_changes.scripts_after(opened.record, watermark)
            self._read_definitions(_definitions(registered, stored_changes))
            self.leave_out(opened.left_out(deliver_stopped=request.deliver_stopped))
            total = total.warning_of_schema_changes(self.reinitialize_or_stop_articles(stored_changes))
            batches, before = deliverable(registered, request.committed_before, self._first_at_or_after)
            last = None if request.last_xact_seqno is None else bytes.fromhex(request.last_xact_seqno)
            total = self.deliver(*cut_after(batches, before, last), total)
        return total

    @garbage_collection.paused()
    def _read_definitions(self, article_ids: Collection[int] | None = None) -> None:
        """Read these definitions and the others of their tables, or every one that stored commands may have: those of
        batches that were registered meanwhile, too."""
        articles = self._opened.database.articles
        ids = articles.ids_in_force(self._opened.record)
        self._articles = articles.by_id(self._opened.record, self._request.subscription, article_ids)
        self._in_force = [self._articles[it] for it in ids if it in self._articles]
        in_force = {it.source_object_id for it in self._in_force}
        # A table that was renamed and dropped since has left its article's name to another one, as the file has it.
        self._names = {
            number: str(it.source if number in in_force or it.file_names is None else it.file_names.source)
            for number, it in newest_definitions(self._articles.values()).items()
        }
        """By the table's number at the Publisher."""
        self._own_order = _with_own_order(self._request, self._articles)

    def leave_out(self, left_out: Mapping[str, bytes | None]) -> None:
        """Set the commands to leave out, which the snapshots of articles have in them, as `OpenDistribution.left_out`
        says."""
        self._left_out = dict(left_out)

    def reinitialize_or_stop_articles(self, changes: Sequence[StoredSchemaChange]) -> list[str]:
        """Let articles wait for a snapshot whose rows the log does not tell at this Subscriber, and leave them out.
        Return what was done, in words."""
        if not changes:
            return []
        publication, opened = self._request.publication, self._opened
        compared = self._request.deliver_stopped
        done = reinitialize_or_stop_articles(
            publication, opened, changes, self._articles, self._left_out, compared=compared
        )
        if done:
            self.leave_out(opened.left_out(deliver_stopped=compared))
        return done

    def _move_watermark(self, group: Group, total: JobResult) -> JobResult:
        """Set the watermark where a group ended in commands that were left out, or in tracer tokens: nobody else
        does."""
        last, watermark = group.batches[-1].last_xact_seqno, bytes.fromhex(total.last_xact_seqno or "")
        leaves_out = bool(self._left_out)
        to = watermark_behind(self.tracers.pending, watermark, last, group.before, leaves_out=leaves_out)
        if to is not None:
            self._opened.subscriber.move_watermark(watermark, to)
        if self.tracers.pending:
            self._opened.record_arrivals(to or watermark)
        return total if to is None else total.model_copy(update={"last_xact_seqno": to.hex()})

    @cached_property
    def _constraints(self) -> Constraints:
        if self._settings.stream_assignment is not StreamAssignment.DEPENDENCIES:
            return Constraints()
        return self._opened.subscriber.constraints(self._applied_definitions())

    def _applied_definitions(self) -> list[RegisteredArticle]:
        """Return the definitions applied at the Subscriber: schema changes may be on their way to it."""
        recorded = self._opened.subscriber.definitions()
        if not recorded:
            return list(self._in_force)
        return [self._articles[it] for it in recorded.values() if it in self._articles]

    def _delivery(self, watermark: bytes, streams: int) -> Delivery:
        options = ApplierOptions(
            not_for_replication=self._settings.not_for_replication,
            lock_timeout_seconds=self._settings.lock_timeout if streams > 1 else None,
            # Several streams would each see a part of the order: the retry over one connection knows what to skip.
            skip_errors=frozenset(map(str, self._settings.skip_errors if streams == 1 else ())),
            apply=self._settings.apply,
        )
        opened = self._opened
        return Delivery(
            opened.connection,
            opened.key,
            self._articles,
            watermark,
            self._limits,
            options,
            self._skipped,
            own_order=self._own_order,
            run=self._run,
            tracers=self.tracers if self.tracers.pending else None,
        )

    def over_one_connection(self, watermark: bytes) -> Delivery:
        """Return the delivery of what comes after the watermark, over one connection and without any commands. It has
        every definition: which ones come is not known."""
        self._read_definitions()
        return replace(self._delivery(watermark, 1), run=None, tracers=None)

    def deliver(self, batches: Sequence[Batch], before: bytes | None, total: JobResult) -> JobResult:
        """Deliver batches, of which transactions before `before`; up to an error, which is in the result."""
        total = self._deliver_in_turn(batches, before, total)
        if total.error is None or not total.error.damaged_batch:
            return total
        # Clean-up may have put it together with others. Where it is damaged, what comes before is delivered.
        self._checked = Checked.EVERY
        watermark = bytes.fromhex(total.last_xact_seqno or "")
        registered = self._opened.database.batches.after(self._opened.record, watermark)
        left = deliverable_again(registered, batches, before)
        return self._deliver_in_turn(*left, total.model_copy(update={"error": None}))

    def _deliver_in_turn(self, batches: Sequence[Batch], before: bytes | None, total: JobResult) -> JobResult:
        record = self._opened.record
        together = groups(batches, before, READ_TOGETHER, partial(is_intact, record, self._checked))
        for group in chain.from_iterable(map(self._divided, together)):
            if self._is_to_end():
                return total
            try:
                total = total.plus(self._deliver(group, bytes.fromhex(total.last_xact_seqno or "")))
            except ConfigurationError as error:
                if self._checked is Checked.EVERY or not error.report.damaged_batch:
                    raise
                return total.model_copy(update={"error": error.report})
            if total.error is not None:
                return self._deliver_before(total.error, group, total)
            if group.batches[-1].log_bytes:
                # Of a change that setup stored, the time is that of the transaction before.
                total = total.model_copy(update={"latency_ms": latency_ms(group.batches[-1].last_commit_time)})
            total = self._move_watermark(group, total)
            self._record_progress(total)
        return total

    def _divided(self, group: Group) -> Iterator[Group]:
        """Divide a group into what one session can deliver. One connection goes on over schema changes, but not with
        the settings that a script may leave behind."""
        return cut_around(group, self.scripts if self._streams == 1 else {*self.scripts, *self.schema_changes})

    def _deliver(self, group: Group, watermark: bytes) -> JobResult:
        """Deliver the group's commands after the watermark."""
        streams = 1 if group.alone else self._streams
        delivery = self._measured(self._delivery(watermark, streams), group)
        delivery = replace(delivery, schema_changes=self._schema_changes_of(group))
        if group.alone:
            # What may go in bulk was found out with the tables as they were before.
            delivery = replace(delivery, options=replace(delivery.options, apply=Apply.SERIAL))
            self.__dict__.pop("_constraints", None)
        commands = self._commands(group, watermark, group.batches[-1].last_xact_seqno)
        with batch_errors():
            if streams == 1:
                return self._recorded(deliver_over_one_connection(commands, delivery))
            with AllGatherServer(*driver_addresses(self._spark), streams) as gathering:
                divided = StreamDelivery(delivery, streams, gathering.address)
                return self._recorded(deliver_over_streams(commands, self._divider(), divided))

    def _measured(self, delivery: Delivery, group: Group) -> Delivery:
        """Let the delivery measure how long the group's commands take."""
        return replace(delivery, registered=RegisteredBatches.of(self._opened.distributor, group.batches))

    def _recorded(self, result: JobResult) -> JobResult:
        """Record what was committed in each minute, and how long it took."""
        self._opened.database.deliveries.record(self._opened.record, self._opened.subscription, result.minutes)
        return result.recorded()

    def _schema_changes_of(self, group: Group) -> tuple[bytes, ...]:
        first, last = group.batches[0].first_xact_seqno, group.batches[-1].last_xact_seqno
        return tuple(it for it in self.schema_changes if first <= it <= last)

    def _deliver_before(self, error: ErrorReport, group: Group, total: JobResult) -> JobResult:
        """Deliver what shares a commit batch with the transaction that failed, and comes before it: then it is the next
        one and can be skipped. Not over several streams, after which a single connection decides."""
        if self._streams > 1 or error.kind is not ErrorKind.DATA or error.xact_seqno is None:
            return total
        failed = bytes.fromhex(error.xact_seqno)
        batches = tuple(batch for batch in group.batches if batch.first_xact_seqno < failed)
        if not batches:
            return total
        done = self._deliver(Group(batches, failed), bytes.fromhex(total.last_xact_seqno or ""))
        return total.plus(done).model_copy(update={"error": error})

    def _divider(self) -> Divider:
        assignment = self._settings.stream_assignment
        return Divider(self._articles, self._streams, assignment, self._constraints, self._limits)

    def finish(self, watermark: bytes, unfinished: UnfinishedBatch) -> JobResult:
        """Deliver what is missing of a commit batch of which some streams had committed when their job was killed."""
        last = unfinished.record.last
        batches = self._opened.database.batches.after(self._opened.record, watermark)
        group = Group(tuple(batch for batch in batches if batch.first_xact_seqno <= last))
        if not group.batches:
            raise InternalError("the stored commands of an unfinished commit batch are gone")
        self._read_definitions(definitions_of(group.batches))
        log.info("finishing a commit batch that streams %s had committed", sorted(unfinished.committed))
        # As the streams applied it: what they could in bulk, the order of the log may not allow.
        delivery = replace(self._measured(self._delivery(watermark, 1), group), finishing=unfinished)
        commands = self._commands(group, watermark, last)
        with batch_errors():
            return self._recorded(deliver_over_one_connection(commands, delivery))

    def _commands(self, group: Group, after: bytes, last: bytes) -> Commands:
        """Return the group's commands after one transaction and up to another, in order."""
        left_out = self.left_out_after(after)
        stored = StoredRange(
            self._opened.record, group.batches, after, last, group.before, left_out, self.applied_before
        )
        return stored_commands(self._spark, stored, self._checked)

    def left_out_after(self, after: bytes) -> tuple[LeftOut, ...]:
        """Return which commands after a transaction are left out."""
        names = {number: self._names[it.source_object_id] for number, it in self._articles.items()}
        return tuple(
            LeftOut(tuple(number for number, name in names.items() if name == source), last)
            for source, last in self._left_out.items()
            if last is None or last > after
        )

    def _first_at_or_after(self, batch: Batch, bound: datetime) -> bytes:
        first = first_at_or_after(self._opened.record, batch, bound)
        if first is None:
            raise InternalError(
                f"batch {batch.folder} has no transaction at or after {bound}, though it is registered so"
            )
        return first


def _definitions(batches: Sequence[Batch], changes: Sequence[StoredSchemaChange]) -> Collection[int] | None:
    """Return the definitions that commands of the batches have, and those that schema changes lead to; None where they
    are many, or not known."""
    found = definitions_of(batches)
    changed = [number for it in changes for number in (it.change.article_id, it.change.new_article_id)]
    return None if found is None else found.union(it for it in changed if it is not None)


def _with_own_order(request: DistributionRequest, articles: Mapping[int, RegisteredArticle]) -> frozenset[int]:
    entries = {it.source: it for it in request.publication.articles}
    names = {name for it in articles.values() for name in (it.source, it.file_names.source)}
    found = {name: entries.get(name) or request.publication.pattern_of(name) for name in names}
    own = {name for name, it in found.items() if it is not None and it.order is CommandOrder.OWN_ARTICLE}
    # Definitions of several versions: each is of the article that the file names, whatever its table is called by then.
    return frozenset(number for number, it in articles.items() if own & {it.source, it.file_names.source})


def _fewer_streams(subscription: str, wanted: int, cores: int) -> str:
    return (
        f"subscription {subscription}: subscription_streams is {wanted}, but Spark has {cores} cores: {cores} are used"
    )


def deliver_over_one_connection(commands: Commands, delivery: Delivery) -> JobResult:
    """Deliver by one task, and return its result."""
    (result,) = _results(commands.delivered(delivery), 1)
    return result


def deliver_over_streams(commands: Commands, divider: Divider, delivery: StreamDelivery) -> JobResult:
    """Deliver by a task for each stream, all at once, and return their results as one."""
    from pyspark.sql import functions as F  # noqa: N812

    divided = (
        commands.mapped(divider, STREAM_COMMANDS_DDL)
        .repartitionById(delivery.streams, F.col("stream"))
        .sortWithinPartitions("xact_seqno", "command_id")
    )
    delivered = map_in_arrow(divided, delivery, RESULT_DDL, barrier=True).collect()
    return together(_results([row["result"] for row in delivered], delivery.streams))


def _results(delivered: Sequence[str], connections: int) -> list[JobResult]:
    """Return the result of each connection."""
    if len(delivered) != connections:
        raise InternalError(f"a delivery over {connections} connections gave {len(delivered)} results")
    return [JobResult.model_validate_json(result) for result in delivered]
