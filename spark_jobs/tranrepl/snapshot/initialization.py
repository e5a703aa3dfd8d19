"""From a subscription without rows to an active one: the hand-over from snapshot to log, step by step.

1. The distribution database records that a snapshot begins (`initiate`): from here on nothing is delivered, and
   commands that will be needed are kept.
2. The Publisher's snapshot is exported; its point X is recorded (`record_start`).
3. The Publisher's tables are held, as the snapshot sees them and as they are registered. The Subscriber deletes rows
   that a filter may not select any more afterwards, alters tables that have an earlier definition, fences off another
   job that was on the way, and makes its tables ready (`begin`).
4. Ranges are copied, each committed with a row that says so. What waits for the Publisher's snapshot ends it, and all
   is done again by the next job (`Publisher.snapshot`).
5. Indexes are built; the Subscriber writes down X for each article, and as its watermark where the subscription as such
   begins (`end`).
6. The distribution database activates the subscription (`activate`).

A job that dies leaves the subscription initiated. The next one keeps the articles that were copied whole, with the X of
before (`snapshot.copied_before`); it brings ranges of keys that were copied to its own X
(`snapshot.bringing_forward`), and does all of it again for the others; the subscription begins with the least X. An
article that began later than that, or joins an active subscription, has no watermark of its own: its commands up to its
X are left out when the others' are delivered.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Protocol

from tranrepl.distributor.database import DistributionDatabase, RunRow
from tranrepl.distributor.database.history_rows import snapshot_comments
from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError, TransientError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.jobs.results import JobResult, TableProgress
from tranrepl.jobs.retry import may_pass
from tranrepl.printable import counted, duration, size
from tranrepl.publisher.snapshot import (
    Snapshot,
    TableRange,
    key_bounds,
    key_ranges,
    needing_registered_tables,
)
from tranrepl.remedies import FINISH_BATCH
from tranrepl.snapshot.bringing_forward import ChangedSince, ReadLogPast, bring_forward, changed_since
from tranrepl.snapshot.copied_before import copied_before
from tranrepl.snapshot.copying import CopiedRange, RangeCopy, range_bytes
from tranrepl.snapshot.definitions import (
    bring_to_definitions,
    require_in_force,
    require_labels,
    require_registered,
    tables_behind,
)
from tranrepl.snapshot.earlier_rows import delete_earlier_rows
from tranrepl.snapshot.opening import OpenSnapshot
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.shared_tables import snapshot_problems
from tranrepl.subscriber.snapshot import ExpectedRanges, LoadedRange, SnapshotArticle

log = logging.getLogger(__name__)

_ATTEMPTS_WITHOUT_PROGRESS = 3
_REPORT_INTERVAL_SECONDS = 1.0
_LOGGED_EVERY_SECONDS = 10.0


class LostTasksError(Exception):
    """Tasks ended without an answer, as those of a killed executor do."""


class Runner(Protocol):
    """Where ranges are copied."""

    @property
    def cores(self) -> int: ...

    @property
    def read_log_past(self) -> ReadLogPast | None:
        """Read the log until all before a position is registered; None where it is not worth while."""
        ...

    def __call__(self, copy: RangeCopy, ranges: Sequence[TableRange]) -> list[CopiedRange]:
        """Copy each range; its answers. Raises LostTasksError."""
        ...


@dataclass(slots=True)
class SnapshotHistory:
    """The run's row, which follows every look, and the log: a line for each table that is whole, and now and then what
    is on its way."""

    database: DistributionDatabase
    row: RunRow
    clock: float
    """When the run began, by `time.perf_counter`."""
    logged: float = field(default_factory=time.monotonic)
    whole: set[str] = field(default_factory=set)

    def report(self, tables: tuple[TableProgress, ...]) -> None:
        """Report how far the tables are."""
        so_far = JobResult(snapshot=tables, seconds=time.perf_counter() - self.clock)
        self.database.history.record_progress(self.row, so_far)
        for it in tables:
            if it.share >= 1 and it.article not in self.whole:
                self.whole.add(it.article)
                how = f"{size(it.bytes)} in {duration(it.seconds)}, {size(round(it.rate))}/s"
                log.info("%s: %s, %s", it.article, counted(it.rows, "row"), how)
        if time.monotonic() - self.logged >= _LOGGED_EVERY_SECONDS:
            self.logged = time.monotonic()
            log.info("%s", snapshot_comments(tables))

    def say(self, what: str) -> None:
        """Report what goes on while nothing is copied."""
        self.database.history.record_comments(self.row, what)
        log.info("%s", what)


def initialize(plan: OpenSnapshot, runner: Runner, history: SnapshotHistory) -> JobResult:
    """Take the subscription's waiting articles from the Publisher. The result has no error: what stopped it is raised
    as ReplicationError."""
    database, subscription = plan.opened.database, plan.opened.subscription
    _refuse_half_delivered(plan)
    # While nothing is held back for it yet.
    others, able = plan.opened.subscriber.claims(), dialect_of(plan.opened.connection).capabilities
    shared = snapshot_problems(plan.opened.subscriber.where, plan.articles, others, schemas=able.schemas)
    for problem in (*plan.target.problems(plan.articles), *shared):
        raise problem
    before = copied_before(plan, history.say, ranges=runner.read_log_past is not None)
    # First of all, so that no range is of another snapshot than the one that will be recorded.
    snapshot, kept, partly = secrets.token_hex(8), before.whole, before.partly
    plan.target.keep(snapshot, before.began)
    everything, plan = plan.articles, replace(plan, articles=tuple(it for it in plan.articles if it.name not in kept))
    database.snapshots.initiate(plan.opened.record, subscription, [it for it in plan.names if it not in partly])
    reach(Failpoint.SNAPSHOT_INITIATED)
    timeout = plan.request.publication.publisher.snapshot_timeout
    with plan.publisher.snapshot(timeout, history.say) as exported:
        reach(Failpoint.SNAPSHOT_EXPORTED)
        forward = changed_since(plan, partly, exported, runner.read_log_past, history.say)
        fresh = [it for it in plan.names if it not in forward]
        database.snapshots.record_start(subscription, fresh, exported.xact_seqno)
        loading = _Loading(plan, exported, runner, history, snapshot, forward)
        fence = loading.copy()
    began = {it.name: exported.xact_seqno for it in everything} | {name: it.xact_seqno for name, it in kept.items()}
    watermark = min(began.values(), default=exported.xact_seqno) if plan.whole else None
    # By now the Subscriber's fence is set: what else calls it off from here on is found by that.
    database.snapshots.require_begun(subscription, began)
    progress = loading.complete(everything, fence, began, watermark)
    database.snapshots.activate(subscription, began, watermark)
    reach(Failpoint.SNAPSHOT_ACTIVATED)
    return JobResult(last_xact_seqno=watermark and watermark.hex(), snapshot=progress).noticing(loading.notices)


def _refuse_half_delivered(plan: OpenSnapshot) -> None:
    """Raise an error where a delivery was left half done, by streams or within a schema change: deliveries finish it,
    and are held while a snapshot goes on."""
    if plan.whole or not plan.opened.subscriber.position().is_half_delivered:
        return
    plan.opened.database.snapshots.subscribe(plan.opened.subscription, plan.names, whole=False)
    raise TransientError(
        f"subscription {plan.request.subscription}: a commit batch was interrupted while its streams committed, or "
        "within a schema change",
        remedy=FINISH_BATCH,
    )


@dataclass(slots=True)
class _Loading:
    plan: OpenSnapshot
    exported: Snapshot
    runner: Runner
    history: SnapshotHistory
    snapshot: str
    forward: Mapping[str, ChangedSince]
    notices: list[str] = field(default_factory=list)
    _ranges: list[TableRange] = field(default_factory=list)
    _looked: float = field(default_factory=time.monotonic)
    _began: dict[str, float] = field(default_factory=dict)
    _took: dict[str, float] = field(default_factory=dict)

    def copy(self) -> bytes:
        """Copy the tables' rows, while the Publisher's snapshot lives; return the fence that the Subscriber set."""
        plan, target = self.plan, self.plan.target
        with self.exported.source.session("tranrepl snapshot") as holder:
            with needing_registered_tables(replicate_ddl=plan.request.publication.replicate_ddl):
                holder.hold([it.article for it in plan.articles])
            require_in_force(plan.opened, [it.article for it in plan.articles])
            if plan.request.publication.replicate_ddl:
                # Now and as the snapshot sees them, the tables are the same by now, and stay so.
                require_registered(plan.publisher, plan.articles)
            fresh = replace(plan, articles=tuple(it for it in plan.articles if it.name not in self.forward))
            behind = tables_behind(plan.opened, [it.article for it in fresh.articles])
            position = plan.opened.subscriber.position()
            articles = delete_earlier_rows(fresh, self.snapshot, behind, position, self.notices.append)
            reach(Failpoint.EARLIER_ROWS_DELETED)
            shared = frozenset(it.name for it in articles if it.owned.condition is not None)
            for altered in bring_to_definitions(plan.opened, behind, position, shared_tables=shared):
                self.history.say(altered)
            fence = target.begin(
                self.snapshot,
                articles,
                whole=plan.whole,
                not_for_replication=plan.options.not_for_replication,
            )
            reach(Failpoint.SNAPSHOT_BEGUN)
            bring_forward(plan, self.forward, self.snapshot, self.exported.xact_seqno, holder)
            order = target.load_order(plan.articles, not_for_replication=plan.options.not_for_replication)
            each = range_bytes(plan.total_bytes, self.runner.cores)
            by_name = {}
            for it in plan.articles:
                before = self.forward.get(it.name)
                by_name[it.name] = (
                    holder.ranges(it.article, None if it.name in order.at_once else each)
                    if before is None
                    else key_ranges(it.article, before.bounds)
                )
            self._ranges = [it for ranges in by_name.values() for it in ranges]
            # Labels are looked at when all is loaded: until then nobody knows of these rows that they are right.
            labelled = {it.name for it in plan.articles if it.article.source_definition.enumerated}
            self._expect({name: ranges for name, ranges in by_name.items() if name not in labelled})
            with self._same_labels(), self._reporting():
                for level in order.levels:
                    self._load([it for name in level for it in by_name[name]])
            self._expect({name: by_name[name] for name in labelled})
        return fence

    def _expect(self, ranges: Mapping[str, Sequence[TableRange]]) -> None:
        """Let another job keep these articles once these ranges are loaded."""
        parts = [ExpectedRanges(it[0].article, len(it), key_bounds(it)) for it in ranges.values()]
        self.plan.target.expect(self.snapshot, self.exported.xact_seqno, parts)

    def complete(
        self,
        articles: Sequence[SnapshotArticle],
        fence: bytes,
        began: Mapping[str, bytes],
        watermark: bytes | None,
    ) -> tuple[TableProgress, ...]:
        """Build indexes and let the Subscriber begin, when nobody at the Publisher waits for the snapshot any more;
        `articles` are those that were copied before, too."""
        target = self.plan.target
        self._build(articles)
        target.finish(articles, self.plan.foreign_keys.wanted)
        done = self._progress(target.loaded(self.snapshot))
        reach(Failpoint.SNAPSHOT_LOADED)
        target.end(self.snapshot, began, fence, watermark)
        reach(Failpoint.SNAPSHOT_ENDED)
        return done

    def _build(self, articles: Sequence[SnapshotArticle]) -> None:
        """Build indexes, over as many sessions as ranges were copied by at a time."""
        opened = self.plan.opened
        self.history.say("The rows are copied. Indexes and constraints are being built.")

        def build(article: SnapshotArticle) -> None:
            with dialect_of(opened.connection).snapshot(opened.connection, opened.key, "tranrepl snapshot") as target:
                target.build(article)

        with ThreadPoolExecutor(self.runner.cores, "tranrepl-build") as executor:
            # Reading the results raises what stopped one.
            list(executor.map(build, articles))

    def _load(self, ranges: Sequence[TableRange]) -> None:
        """Copy ranges until all are committed. What a killed task had not committed is copied again."""
        options = self.plan.options
        copy = RangeCopy(
            self.exported.source,
            self.plan.opened.connection,
            self.plan.opened.key,
            self.snapshot,
            options,
        )
        left, attempts = self._not_loaded(ranges), 0
        while left:
            problem = self._attempt(copy, left)
            still = self._not_loaded(left)
            attempts = attempts + 1 if len(still) == len(left) else 0
            if problem is not None and still and (attempts >= _ATTEMPTS_WITHOUT_PROGRESS or not may_pass(problem)):
                raise problem.to_exception()
            left = still

    def _not_loaded(self, ranges: Sequence[TableRange]) -> list[TableRange]:
        loaded = {(it.article, it.number) for it in self.plan.target.loaded(self.snapshot)}
        return [it for it in ranges if (it.name, it.number) not in loaded]

    def _attempt(self, copy: RangeCopy, ranges: Sequence[TableRange]) -> ErrorReport | None:
        """Copy ranges once; return the worst error that kept ranges from being copied."""
        try:
            answers = self.runner(copy, ranges)
        except LostTasksError as error:
            log.warning("%s; ranges that are not committed are copied again", error)
            return ErrorReport(kind=ErrorKind.TRANSIENT, message=str(error))
        errors = [it.error for it in answers if it.error is not None]
        return next((it for it in errors if not may_pass(it)), errors[0] if errors else None)

    @contextmanager
    def _same_labels(self) -> Iterator[None]:
        """Raise TransientError where labels were renamed while rows were copied: no lock of a table keeps a label, and
        a server writes the one of now, whatever snapshot the row is of."""
        plan = self.plan
        try:
            yield
        except ReplicationError:
            if plan.request.publication.replicate_ddl:
                require_labels(plan.publisher, [it.article for it in plan.articles])
            raise
        if plan.request.publication.replicate_ddl:
            require_labels(plan.publisher, [it.article for it in plan.articles])

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report how far the tables are, by what is committed, while ranges are copied."""
        over, self._looked = Event(), time.monotonic()
        reporter = Thread(target=self._report_until, args=[over], name="tranrepl-progress", daemon=True)
        reporter.start()
        try:
            yield
        finally:
            over.set()
            reporter.join()

    def _report_until(self, over: Event) -> None:
        opened = self.plan.opened
        last = False
        while not last:
            last = over.wait(_REPORT_INTERVAL_SECONDS)
            try:
                dialect = dialect_of(opened.connection)
                with dialect.snapshot(opened.connection, opened.key, "tranrepl progress") as target:
                    self.history.report(self._progress(target.loaded(self.snapshot)))
            except ReplicationError as error:
                log.warning("progress is not recorded: %s", error.message)

    def _progress(self, loaded: Sequence[LoadedRange]) -> tuple[TableProgress, ...]:
        shares = {(it.name, it.number): it.share for it in self._ranges}
        wanted, there = defaultdict[str, set[int]](set), defaultdict[str, list[LoadedRange]](list)
        for chosen in self._ranges:
            wanted[chosen.name].add(chosen.number)
        for part in loaded:
            there[part.article].append(part)
        now, tables = time.monotonic(), []
        for it in self.plan.articles:
            mine = there[it.name]
            whole = {part.number for part in mine} == wanted[it.name]
            share = sum(shares.get((it.name, part.number), 0.0) for part in mine)
            seconds = now - self._began.setdefault(it.name, self._looked) if mine else 0.0
            if whole:
                seconds = self._took.setdefault(it.name, seconds)
            tables.append(
                TableProgress(
                    article=it.name,
                    rows=sum(part.rows for part in mine),
                    bytes=sum(part.bytes for part in mine),
                    share=1.0 if whole else min(share, 0.99),
                    seconds=seconds,
                )
            )
        self._looked = now
        return tuple(tables)
