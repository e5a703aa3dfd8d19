"""The Publisher's log into the store, batch by batch, up to its end.

A batch counts once it is registered; only then is the log given up. Whatever was written before stays invisible.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tranrepl import garbage_collection
from tranrepl.distributor.command_file import discard
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.distributor.store_mark import require_own_store
from tranrepl.errors import ErrorReport, InternalError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.batch_of_read import batch_of, result_of
from tranrepl.log_reader.compared_tables import ComparedState, compare_tables, differing, reinitialize_without_old_rows
from tranrepl.log_reader.log_handover import with_log_handover
from tranrepl.log_reader.opening import OpenLogReader
from tranrepl.log_reader.schema_changes import SchemaFollower, stored, stored_scripts
from tranrepl.log_reader.tracer_tokens import stored_tokens
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.publisher.log_range import Limits, LogRange
from tranrepl.publisher.log_read import LogRead, ReadFailure
from tranrepl.publisher.publisher import say_nothing
from tranrepl.settings.registered_names import asked_edit, new_edits, with_current_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_LACKS_OLD_ROWS = "the log lacks old rows of its table"
_MOST_LOOKS = 5


@dataclass(frozen=True, slots=True)
class _Written:
    """What one task of a Spark action read, and wrote to a folder of the store."""

    folder: str
    """Empty where nothing was written."""
    read: LogRead


class LogDraining:
    """One draining of the log: from where it is registered to where it ends as it begins."""

    @garbage_collection.paused()
    def __init__(self, spark: SparkSession, request: LogReaderRequest, opened: OpenLogReader) -> None:
        self._spark = spark
        self._publication = request.publication
        self._settings = request.publication.log_reader
        self._opened = opened
        self._record: PublicationRecord = opened.record
        require_own_store(opened.database, opened.record.store)
        self._start = opened.start
        # Before the articles are: what an article that is added meanwhile needs is read by the next one.
        notices: list[str] = []
        self._up_to = opened.publisher.readable_end_of_log(notices.append)
        self._compared: ComparedState | None = ComparedState.now(opened, request.publication)
        """None once this draining has registered others."""
        self._articles = opened.database.articles.active(request.publication, opened.record)
        # After the end was looked at: whatever script is before it was written down earlier.
        self._scripts = opened.database.scripts.written(opened.record)
        self._schema = SchemaFollower(
            request.publication, opened.database, opened.record, opened.publisher.schema_changes.collation
        )
        self._schema.look_for_pending(self._articles)
        self.clock = opened.publisher.clock_difference().minus(opened.database.clock_difference())
        self._two_at_once = spark.sparkContext.defaultParallelism > 1
        seqno = self._record.registered_xact_seqno
        self.result = JobResult(last_xact_seqno=seqno.hex() if seqno else None, notices=tuple(notices))
        self.record_progress: Callable[[JobResult], None] = _record_nothing
        self.is_to_end: Callable[[], bool] = _never
        self.warned_of_unsigned = False

    def drain(self) -> None:
        """Read batches until the log's end as it was at the start, or after one of them, where it is to end. Raises
        ReplicationError; what was registered stays."""
        while self._registered < self._up_to:
            self._read_on()
            if self.is_to_end():
                return
        state = self._compared.with_tables() if self._compared is not None else None
        if state is not None and state == self._record.compared_state:
            return
        for _ in range(_MOST_LOOKS):
            is_altered = self._is_altered_further_on()
            if self.is_to_end():
                return
            if not is_altered:
                break
        is_alike = compare_tables(self._opened, self._publication, self._articles, self._registered, self._warn)
        if self._compared is not None and is_alike:
            self._compared.found_alike(state, self._articles)

    def _is_altered_further_on(self) -> bool:
        """Read on where a table is another one already than its article: the log may announce that after where reading
        ended. Return whether there was more to read."""
        if not self._publication.replicate_ddl or not differing(self._opened, self._articles):
            return False
        self._up_to = max(self._up_to, self._opened.publisher.readable_end_of_log(say_nothing))
        self._scripts = self._opened.database.scripts.written(self._record)
        self._schema.look_for_pending(self._articles)
        if self._registered >= self._up_to:
            return False
        while self._registered < self._up_to and not self.is_to_end():
            self._read_on()
        return True

    @property
    def articles(self) -> Sequence[RegisteredArticle]:
        """The articles by which the log is read next."""
        return self._articles

    @property
    def _registered(self) -> Position:
        return self._record.registered_to or FIRST_POSITION

    def _read_on(self, last_xact_seqno: bytes | None = None) -> None:
        """Read one batch more, or two side by side."""
        self._take(self._ranges(last_xact_seqno))

    def _take(self, ranges: Sequence[LogRange]) -> None:
        written = self._write(ranges)
        for place, it in enumerate(written):
            if len(written) > 1 and it.read.failure is ReadFailure.TOO_MANY_READERS:
                # Another job was faster: what is left is read by itself.
                self._remove(written[place:])
                self._two_at_once = False
                break
            if it.read.error is not None or it.read.refusal is not None:
                self._remove(written[place:])
                self._read_on_before(ranges[place], it.read)
                return
            if it.read.ends_in_transaction or (it.read.needs_definitions and it.read.end is None):
                self._remove(written[place:])
                self._take_what_is_needed(it.read)
                return
            self._register(it)
            if it.read.needs_definitions:
                self._take_what_is_needed(it.read)
            if not it.read.complete or it.read.schema_changes:
                self._remove(written[place + 1 :])
                # As long as a limit cuts the first reading short, another one is in vain, and what was read beside a
                # schema change was read by the definitions before.
                self._two_at_once = False
                break
        self._advance()

    def _take_what_is_needed(self, read: LogRead) -> None:
        """Take what reading ended for: numbers for definitions, or the definitions that setup wrote a message of."""
        if read.redefinition is None:
            self._schema.take_ids()
        else:
            self._schema.redefine(read.redefinition, self._articles)

    def _read_on_before(self, log_range: LogRange, read: LogRead) -> None:
        """Read again up to before a transaction that cannot be read: it may already be written in part."""
        if read.failure is ReadFailure.TOO_LONG:
            self._read_on_before_what_is_too_long(log_range)
        if read.error is not None:
            # A log reader that is faster confirms, too, perhaps before this one has copied it.
            self._opened.database.publications.require_not_overtaken(self._record)
            raise read.error.to_exception()
        if read.refusal is not None and read.last_commit is None:
            reason = _LACKS_OLD_ROWS if read.lacks_old_rows else read.rows_unknown
            if reason is not None and self._try_to_reinitialize(read.refusal, reason):
                return
            raise read.refusal.to_exception()
        self._read_on(last_xact_seqno=None if read.last_commit is None else bytes.fromhex(read.last_commit))

    def _try_to_reinitialize(self, refusal: ErrorReport, reason: str) -> bool:
        """Reinitialize the article whose rows the log does not show. Returns whether reading can go on."""
        begun = self._schema.redefinition
        read = self._articles if begun is None else begun.articles
        table = next(it.source_object_id for it in read if str(it.source) == refusal.article)
        article = next(it for it in self._articles if it.source_object_id == table)
        publication = with_current_names(self._publication, self._articles)
        done = reinitialize_without_old_rows(self._opened, publication, article, reason)
        if done is None:
            return False
        self._warn(done)
        self._compared = None
        self._articles = self._opened.database.articles.active(self._publication, self._record)
        self._schema.begin_again(self._articles)
        return True

    def _notice(self, what: Sequence[str]) -> None:
        for it in what:
            log.warning("%s", it)
        self.result = self.result.noticing(what)

    def _ask_for_edits(self, edits: Mapping[str, str]) -> None:
        asked = [asked_edit(article, edit) for article, edit in edits.items()]
        for it in asked:
            log.warning("%s", it)
        self.result = self.result.plus(JobResult(file_edits=dict(edits), schema_change_warnings=tuple(asked)))

    def _warn(self, what: Sequence[str]) -> None:
        """Notice what schema changes, rewritten tables and unsigned messages cost or ask for."""
        self._notice(what)
        self.result = self.result.warning_of_schema_changes(what)

    def _read_on_before_what_is_too_long(self, log_range: LogRange) -> None:
        """Find a change that is too long, read up to before it, and raise the error that names it."""
        found = log_range.find_too_long()
        if found is None:
            return
        before = found.readable_to
        while before is not None and self._start < before:
            # What a reading needs of definitions changes on the way.
            whole = self._whole(self._opened.publisher.readers(), last_xact_seqno=None)
            self._take([whole.between(self._start, before)])
        raise found.error

    def _ranges(self, last_xact_seqno: bytes | None) -> Sequence[LogRange]:
        """Return all of the log, or each of its first two ranges by itself. Raises ReplicationError where others read
        it, as many as the server allows."""
        readers = self._opened.publisher.readers()
        whole = self._whole(readers, last_xact_seqno)
        is_begun = self._schema.redefinition is not None
        if not self._two_at_once or last_xact_seqno is not None or readers == 1 or is_begun:
            return [whole]
        return whole.side_by_side()[:2]

    def _whole(self, readers: int, last_xact_seqno: bytes | None) -> LogRange:
        """Return all of the log, by the definitions that a reading begins with."""
        limits = Limits(self._settings.read_batch_size, self._settings.read_batch_bytes, last_xact_seqno)
        begun = self._schema.redefinition
        articles = self._articles if begun is None else begun.articles
        return self._opened.publisher.log_range(
            articles, self._start, self._up_to, limits, readers, self._schema.reading, self._scripts
        )

    def _write(self, ranges: Sequence[LogRange]) -> list[_Written]:
        from tranrepl.log_reader.storing import store_commands

        with self._timed("read_to_store"):
            written = [_Written(*it) for it in store_commands(self._spark, ranges, self._record.store)]
        reads = (it.read for it in written)
        slowest = max(reads, key=lambda it: it.read_seconds + it.decode_seconds + it.transform_seconds)
        self._add_seconds(read=slowest.read_seconds, decode=slowest.decode_seconds, transform=slowest.transform_seconds)
        return written

    def _register(self, written: _Written) -> None:
        begun = self._schema.begun_by(written.read)
        read = written.read if begun is None else begun.of_reading(written.read)
        if read.end is None:
            raise InternalError("a read of the log ended nowhere")
        batch = batch_of(written.folder, read, self.clock)
        if batch is None:
            self._remove([written])
        if read.schema_changes:
            self._warn(self._schema.reinitialize(read, self._articles))
            reach(Failpoint.SCHEMA_CHANGED)
        with self._timed("register"):
            # The sessions that read were new ones. Had the server been restarted since its log was looked at, perhaps
            # from a backup, this session would have ended.
            self._opened.publisher.require_session()
            self._record = self._opened.database.batches.register(
                self._record,
                batch,
                read.end,
                stored(read),
                read.definitions,
                stored_scripts(read),
                stored_tokens(read, self.clock),
                proof=self._opened.publisher.proof(
                    read.end, self._record.registered_xact_seqno if batch is None else batch.last_xact_seqno
                ),
                redefined=None if begun is None else begun.digest,
            )
            self._start = read.end
            if read.scripts:
                self._scripts = self._opened.database.scripts.written(self._record)
        before, now = self._articles, self._schema.registered(self._articles, read)
        reach(Failpoint.REGISTERED)
        if batch is not None:
            self._add(batch, read, [*before, *now, *read.definitions])
        self._notice(read.notices)
        if read.unsigned is not None and not self.warned_of_unsigned:
            self.warned_of_unsigned = True
            self._warn([read.unsigned])
        if now != before:
            self._articles, self._compared = now, None
            self._ask_for_edits(new_edits(self._publication, before, now))

    def _advance(self) -> None:
        with self._timed("advance"):
            with_log_handover(
                self._opened.database,
                self._record.publication_id,
                lambda: self._opened.publisher.confirm(self._registered),
            )
        reach(Failpoint.ADVANCED)
        self.record_progress(self.result)

    def _remove(self, written: Sequence[_Written]) -> None:
        discard(self._record.store, (it.folder for it in written if it.folder))

    def _add(self, batch: Batch, read: LogRead, articles: Sequence[RegisteredArticle]) -> None:
        self.result = self.result.plus(result_of(batch, read, articles))

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._add_seconds(**{phase: time.perf_counter() - started})

    def _add_seconds(self, **phases: float) -> None:
        self.result = self.result.plus(JobResult(phases=phases))


def _never() -> bool:
    return False


def _record_nothing(_: JobResult) -> None:
    pass
