"""A run of the log reader that needs no Spark: there is nothing to read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from tranrepl import garbage_collection
from tranrepl.distributor.database import PublicationRecord
from tranrepl.errors import ConfigurationError, ReplicationError, TransientError
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.compared_tables import ComparedState, compare_tables, differing
from tranrepl.log_reader.log_handover import is_in_use, with_log_handover
from tranrepl.log_reader.opening import OpenLogReader, open_log_reader
from tranrepl.log_reader.tracer_tokens import post_due_token
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.publisher.publisher import say_nothing
from tranrepl.settings.publication import Publication
from tranrepl.topology import Topology

log = logging.getLogger(__name__)


@garbage_collection.paused()
def run_without_spark(
    request: LogReaderRequest,
    topology: Topology,
    expect: Callable[[Position, Position], object] = lambda *_: None,
) -> JobResult | None:
    """Return the finished result of a run that has nothing to read, recorded in the history; return None where there is
    something, which takes a Spark job: `expect` is called with the log's range.

    The log up to now is registered and confirmed, so that an idle publication never holds the Publisher's log.
    Raises ReplicationError; that the Publisher cannot be reached is in the history, as where a Spark job meets it.
    """
    clock = time.perf_counter()
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(open_log_reader(topology))
        except TransientError as error:
            # As in the job: setup would take what is refused for what it mends.
            if not is_in_use(error):
                _record(topology, request, JobResult(seconds=time.perf_counter() - clock, error=error.report))
            raise
        unposted = post_due_token(request.publication, opened)
        notices = [*unposted]
        registered = ComparedState.now(opened, request.publication)
        state = registered.with_tables()
        is_compared = state is not None and state == opened.record.compared_state
        # Before the articles are read, as in `LogDraining`.
        up_to = opened.publisher.readable_end_of_log(notices.append)
        articles = [] if is_compared else opened.database.articles.active(request.publication, opened.record)
        record, found_change = register_empty_log(opened, opened.record, articles, up_to)
        if not (found_change or is_compared) and request.publication.replicate_ddl and differing(opened, articles):
            # The log may announce that after where it was looked at.
            up_to = max(up_to, opened.publisher.readable_end_of_log(say_nothing))
            articles = opened.database.articles.active(request.publication, opened.record)
            record, found_change = register_empty_log(opened, record, articles, up_to)
        empty_up_to = record.registered_to or FIRST_POSITION
        if found_change:
            expect(empty_up_to, up_to)
            for notice in unposted:
                log.warning("%s", notice)
            return None
        warnings = [] if is_compared else _compare(opened, request.publication, articles, empty_up_to, clock)
        if not (is_compared or warnings):
            registered.found_alike(state, articles)
        seqno = opened.record.registered_xact_seqno
        result = JobResult(
            last_xact_seqno=seqno.hex() if seqno else None,
            seconds=time.perf_counter() - clock,
            notices=tuple(notices),
        ).warning_of_schema_changes(warnings)
        opened.database.history.record_log_reader(opened.record, result)
    for notice in result.notices:
        log.warning("%s", notice)
    return result


def _compare(
    opened: OpenLogReader,
    publication: Publication,
    articles: Sequence[RegisteredArticle],
    read_to: Position,
    clock: float,
) -> list[str]:
    """Compare tables and articles, and do what the log does not ask for. Returns what was done, in words.

    Raises ConfigurationError, recorded in the history, where a table does not fit its article any more.
    """
    done: list[str] = []
    try:
        compare_tables(opened, publication, articles, read_to, done.extend)
    except ConfigurationError as error:
        # Setup, which it asks for, looks whether the log reader has failed.
        failed = JobResult(seconds=time.perf_counter() - clock, error=error.report)
        opened.database.history.record_log_reader(opened.record, failed.warning_of_schema_changes(done))
        for notice in done:
            log.warning("%s", notice)
        raise
    return done


def _record(topology: Topology, request: LogReaderRequest, result: JobResult) -> None:
    # Where the distribution database cannot be opened either, there is no history.
    with suppress(ReplicationError), topology.distributor() as database:
        database.history.record_log_reader(database.publications.get(request.publication.publication), result)


def register_empty_log(
    opened: OpenLogReader, record: PublicationRecord, articles: Sequence[RegisteredArticle], up_to: Position
) -> tuple[PublicationRecord, bool]:
    """Register and confirm the log up to there, or to its first change. Returns what is registered then, and whether
    there was one."""
    ask = partial(with_log_handover, opened.database, record.publication_id)
    while True:
        probe = ask(partial(opened.publisher.probe, articles, record.registered_to or FIRST_POSITION, up_to))
        if probe.empty_up_to > (record.registered_to or FIRST_POSITION):
            record = opened.database.batches.register(
                record,
                None,
                probe.empty_up_to,
                proof=opened.publisher.proof(probe.empty_up_to, record.registered_xact_seqno),
            )
        ask(partial(opened.publisher.confirm, probe.empty_up_to))
        if probe.found_change or probe.empty_up_to >= up_to:
            return record, probe.found_change
