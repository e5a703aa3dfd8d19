"""A delivery over one connection: commands in, committed commit batches out, with the watermark in every commit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.connections import Connection
from tranrepl.distribution.latency import LatencyMeter, RegisteredBatches
from tranrepl.distribution.planning_ahead import Planned, Planner, ahead
from tranrepl.distribution.recording import ReportedRun, SkippedCommands, TracerArrivals, reporting_progress
from tranrepl.distribution.stream_commands import left_over
from tranrepl.errors import ErrorDetails, ErrorReport, ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.jobs.results import MOST_NOTICES, MOST_SKIPPED_REPORTED, JobResult, TableChange
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import NO_ARTICLE_ID, Operation
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.script import Script
from tranrepl.schema.words import change_in_words, effects_in_words
from tranrepl.subscriber.applier_options import AS_CONFIGURED, Applied, ApplierOptions
from tranrepl.subscriber.base.applier import Applier
from tranrepl.subscriber.batching.commit_batches import FIRST_PIECE_COMMANDS, CommitLimits, Piece, commit_batches
from tranrepl.subscriber.batching.steps import Bulkable, SchemaStep, Steps
from tranrepl.subscriber.command_text import command_key, command_text, script_text
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import SubscriptionKey, UnfinishedBatch

RESULT_SCHEMA = pa.schema([pa.field("result", pa.string())])
RESULT_DDL = "result string"
PHASES = ("read", "plan", "stage", "apply", "commit")
"""The phases of a delivery in the result's seconds. The first two go on while earlier commands are applied."""
_LONGEST_COMMAND = 4000
"""Characters of a command that are kept with its error."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a stream needs to know. It travels pickled inside the function that Spark runs, password and all."""

    connection: Connection
    key: SubscriptionKey
    articles: Mapping[int, RegisteredArticle]
    watermark: bytes
    """Where the Subscriber must stand when the first commit batch is applied."""
    limits: CommitLimits
    options: ApplierOptions = AS_CONFIGURED
    skipped: SkippedCommands | None = None
    """Where commands are recorded that `options` let be skipped."""
    finishing: UnfinishedBatch | None = None
    """The commands are those of a commit batch that other connections have applied in part."""
    own_order: frozenset[int] = frozenset()
    """Articles whose commands keep their order among themselves only, where they go serially."""
    run: ReportedRun | None = None
    """The stream whose progress is reported."""
    tracers: TracerArrivals | None = None
    """Where the arrival of tracer tokens is recorded."""
    schema_changes: tuple[bytes, ...] = ()
    """The transactions (`xact_seqno`) that change the schema: each goes serially, in a commit batch of its own."""
    registered: RegisteredBatches | None = None
    """When the commands' batches were registered, where it is measured how long commands take."""

    def planner(self, applier: Applier, piece_of: Callable[[Item], Piece]) -> Planner[Item]:
        def bulkable() -> Bulkable:
            return Bulkable(self.articles, applier.bulk_operations, self.own_order)

        return Planner(bulkable, applier.with_text, piece_of)

    def committed(self, after: bytes, last: bytes) -> None:
        """Record the tracer tokens of transactions after one and up to another, which are committed now."""
        if self.tracers is not None:
            self.tracers.record(after, last)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply ordered commands and yield one row with the `JobResult`, for `map_in_arrow`. Errors are in it, never
        raised."""
        if self.finishing is None:
            yield result_row(deliver(self, batches))
        else:
            yield result_row(deliver_pieces(self, left_over(batches, self.finishing, self.articles)))


def result_row(result: JobResult) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"result": [result.model_dump_json()]}, schema=RESULT_SCHEMA)


@dataclass(slots=True)
class Tally:
    """What was committed, and what the open transaction would add to it."""

    transactions: int = 0
    commands: int = 0
    batches: int = 0
    skipped: int = 0
    first_skipped: tuple[ErrorReport, ...] = ()
    by_article: dict[str, int] = field(default_factory=dict)
    open_by_article: dict[str, int] = field(default_factory=dict)
    notices: dict[str, None] = field(default_factory=dict)
    altered: list[str] = field(default_factory=list)
    table_changes: dict[TableChange, None] = field(default_factory=dict)
    in_bulk: int = 0
    open_in_bulk: int = 0
    open_commands: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    latency: LatencyMeter = field(default_factory=LatencyMeter)

    def planned(self, planned: Planned[Any]) -> None:
        self.seconds["read"] += planned.read_seconds
        self.seconds["plan"] += planned.plan_seconds
        self.fallbacks.update(planned.steps.notes)

    def applied(self, commands: pa.Table, articles: Mapping[int, RegisteredArticle], how: Applied) -> None:
        self.latency.applied(commands)
        for row in commands["article_id"].value_counts().to_pylist():
            self.open_commands += row["counts"]
            if row["values"] == NO_ARTICLE_ID:
                continue
            name = str(articles[row["values"]].source)
            self.open_by_article[name] = self.open_by_article.get(name, 0) + row["counts"]
        self.open_in_bulk += how.in_bulk
        self.fallbacks.update(how.fallbacks)
        self.seconds["stage"] += how.stage_seconds
        self.seconds["apply"] -= how.stage_seconds

    def committed(self, transactions: int) -> None:
        self.latency.committed(transactions)
        self.batches += 1
        self.transactions += transactions
        self.commands += self.open_commands
        for name, count in self.open_by_article.items():
            self.by_article[name] = self.by_article.get(name, 0) + count
        self.in_bulk += self.open_in_bulk
        self.open_by_article, self.open_in_bulk, self.open_commands = {}, 0, 0

    def left_out(self, skipped: Sequence[ErrorReport]) -> None:
        """Count what a commit left out. Values stay in `MSrepl_errors`."""
        self.skipped += len(skipped)
        reported = (it.model_copy(update={"command": None}) for it in skipped[:MOST_SKIPPED_REPORTED])
        self.first_skipped = (*self.first_skipped, *reported)[:MOST_SKIPPED_REPORTED]

    def result(self, watermark: bytes, seconds: float, error: ErrorReport | None) -> JobResult:
        return JobResult(
            transactions=self.transactions,
            commands=self.commands,
            batches=self.batches,
            seconds=seconds,
            last_xact_seqno=watermark.hex(),
            commands_by_article=self.by_article,
            phases=self.seconds,
            in_bulk=self.in_bulk,
            fallbacks=dict(self.fallbacks),
            skipped=self.skipped,
            first_skipped=self.first_skipped,
            notices=tuple(dict.fromkeys([*self.altered, *self.notices])),
            table_changes=tuple(self.table_changes)[:MOST_NOTICES],
            applied_schema_changes=tuple(self.altered[:MOST_NOTICES]),
            minutes=self.latency.minutes(),
            error=error,
        )


def deliver(delivery: Delivery, batches: Iterable[pa.RecordBatch]) -> JobResult:
    """Apply ordered commands and commit. The result counts what was committed, also where an error ended it."""
    pieces = commit_batches(batches, delivery.limits, FIRST_PIECE_COMMANDS, delivery.schema_changes)
    return deliver_pieces(delivery, pieces)


def deliver_pieces(delivery: Delivery, pieces: Iterable[Piece]) -> JobResult:
    """Apply commands as they are cut already."""
    tally, started = Tally(latency=LatencyMeter(delivery.registered)), time.perf_counter()
    stream: _Connection | None = None
    error: ReplicationError | None = None
    try:
        dialect = dialect_of(delivery.connection)
        with (
            reporting_progress(delivery.run, tally),
            dialect.applier(delivery.connection, delivery.key, delivery.articles, delivery.options) as applier,
        ):
            planner = delivery.planner(applier, _itself)
            stream = _Connection(delivery, applier, planner, tally)
            with closing(ahead(planner.plan(pieces), planner.is_short_change)) as planned:
                stream.take(planned)
            if tally.batches:
                applier.flush()
    except ReplicationError as problem:
        error = problem
    watermark = stream.watermark if stream else delivery.watermark
    return tally.result(watermark, time.perf_counter() - started, error.report if error else None)


def deliver_few(delivery: Delivery, applier: Applier, batches: Iterable[pa.RecordBatch]) -> JobResult:
    """Apply ordered commands by an applier that is kept, and commit; nothing is flushed. They are few: none is planned
    while others are applied. An applier that has met an error, which is in the result, must be closed."""
    tally, started = Tally(latency=LatencyMeter(delivery.registered)), time.perf_counter()
    planner = delivery.planner(applier, _itself)
    stream = _Connection(delivery, applier, planner, tally)
    error: ErrorReport | None = None
    try:
        stream.take(planner.plan(commit_batches(batches, delivery.limits, FIRST_PIECE_COMMANDS)))
    except ReplicationError as problem:
        error = problem.report
    return tally.result(stream.watermark, time.perf_counter() - started, error)


class _Connection:
    """One connection's transaction, opened under the fence of the watermark."""

    def __init__(self, delivery: Delivery, applier: Applier, planner: Planner[Piece], tally: Tally) -> None:
        self._delivery = delivery
        self._applier = applier
        self._planner = planner
        self._tally = tally
        self._open = False
        self._changed_schema = False
        self._skipped: list[ErrorReport] = []
        self.watermark = delivery.watermark

    def take(self, planned: Iterable[Planned[Piece]]) -> None:
        """Apply the pieces, and commit where one ends a commit batch."""
        for it in planned:
            self.apply(it)
            if it.item.ends_commit_batch:
                self.commit(it.item)

    def apply(self, planned: Planned[Piece]) -> None:
        started, piece = time.perf_counter(), planned.item
        if self._changed_schema:
            self._applier.renew()
            self._changed_schema = False
        planned = self._planner.up_to_date(planned)
        if not self._open:
            self._applier.begin(self.watermark, finishing=self._delivery.finishing)
            self._open = True
            reach(Failpoint.BEGIN)
        self._tally.planned(planned)
        try:
            apply_piece(self._applier, piece.commands, planned.steps, self._delivery, self._tally)
        finally:
            self._tally.seconds["apply"] += time.perf_counter() - started
        self._skipped += take_skipped(self._applier, piece.commands, self._delivery)
        reach(Failpoint.APPLIED)
        self._tally.notices |= dict.fromkeys(self._applier.take_notices())
        self._tally.altered += self._applier.take_schema_changes()
        for it in planned.steps.steps:
            if isinstance(it, SchemaStep):
                effects = effects_in_words(it.change)
                self._tally.table_changes |= {
                    TableChange(article=str(it.change.source), what=what): None for what in effects
                }

    def commit(self, piece: Piece) -> None:
        started = time.perf_counter()
        if self._skipped and self._delivery.skipped is not None:
            # Before the commit: after a crash between the two it is recorded twice, but never not at all.
            self._delivery.skipped.record(self._skipped)
        reach(Failpoint.BEFORE_COMMIT)
        self._applier.commit(piece.last_xact_seqno)
        reach(Failpoint.AFTER_COMMIT)
        self._delivery.committed(self.watermark, piece.last_xact_seqno)
        self._open, self.watermark = False, piece.last_xact_seqno
        self._changed_schema = piece.changes_schema
        self._tally.left_out(self._skipped)
        self._skipped = []
        self._tally.committed(piece.transactions)
        self._tally.seconds["commit"] += time.perf_counter() - started


def _itself(piece: Piece) -> Piece:
    return piece


def apply_piece(applier: Applier, commands: pa.Table, steps: Steps, delivery: Delivery, tally: Tally) -> None:
    """Apply in the open transaction, and count. Errors about a command say its key, and what it was."""
    try:
        applier.apply(steps.steps)
    except ReplicationError as problem:
        raise describe_command(problem.report, commands, delivery).to_exception() from problem
    finally:
        tally.applied(commands, delivery.articles, applier.take_applied())


def take_skipped(applier: Applier, commands: pa.Table, delivery: Delivery) -> list[ErrorReport]:
    """Return the errors of the commands that were skipped, as the options allow."""
    return [describe_command(report, commands, delivery) for report in applier.take_skipped()]


def describe_command(report: ErrorReport, commands: pa.Table, delivery: Delivery) -> ErrorReport:
    """Return the report with key and text of the command that it names; unchanged where it names none of these."""
    if report.xact_seqno is None or report.command_id is None:
        return report
    named = pc.and_(
        pc.equal(commands["xact_seqno"], pa.scalar(bytes.fromhex(report.xact_seqno), pa.binary())),
        pc.equal(commands["command_id"], report.command_id),
    )
    capabilities = dialect_of(delivery.connection).capabilities
    for row in commands.filter(named).to_pylist():
        operation = Operation(row["operation"])
        if operation is Operation.SCRIPT:
            text = script_text(Script.model_validate_json(row["after"]))
            return report.plus(ErrorDetails(command=text[:_LONGEST_COMMAND]))
        if operation is Operation.SCHEMA:
            text = change_in_words(SchemaChange.model_validate_json(row["after"]))
            return report.plus(ErrorDetails(command=text[:_LONGEST_COMMAND]))
        article = delivery.articles[row["article_id"]]
        key = command_key(article, operation, row)
        text = command_text(article, operation, row, capabilities.procedure_names)[:_LONGEST_COMMAND]
        uncompared = None if capabilities.comparison else f"tables of {capabilities.title} are not compared"
        not_repaired = article.not_repaired or uncompared
        return report.plus(ErrorDetails(key=key, command=text, not_repaired=not_repaired))
    return report
