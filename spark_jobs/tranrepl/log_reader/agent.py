"""Before a log reader job is started: is there anything to read?"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.changed_tables import reinitialize_rewritten
from tranrepl.log_reader.opening import OpenLogReader, open_log_reader
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.topology import Topology

log = logging.getLogger(__name__)


def idle_result(
    request: LogReaderRequest,
    topology: Topology,
    expect: Callable[[Position, Position], object] = lambda *_: None,
) -> JobResult | None:
    """Return the finished result of a run that has nothing to read, recorded in the history; return None where there is
    something, which takes a Spark job: `expect` is called with the log's range.

    The log is passed over up to now, so that an idle publication never holds the Publisher's log.
    """
    clock = time.perf_counter()
    with open_log_reader(topology) as opened:
        articles = opened.database.articles.active(request.publication, opened.record)
        notices: list[str] = []
        up_to = opened.publisher.readable_end_of_log(notices.append)
        empty_up_to, found_change = _pass_over(opened, up_to)
        if found_change:
            expect(empty_up_to, up_to)
            return None
        notices += reinitialize_rewritten(opened, request.publication, articles, empty_up_to)
        seqno = opened.record.registered_xact_seqno
        result = JobResult(
            last_xact_seqno=seqno.hex() if seqno else None,
            seconds=time.perf_counter() - clock,
            notices=tuple(notices),
        )
        opened.database.history.record_log_reader(opened.record, result)
    for notice in result.notices:
        log.warning("%s", notice)
    return result


def _pass_over(opened: OpenLogReader, up_to: Position) -> tuple[Position, bool]:
    """Pass over the log up to there, or up to its first change. Returns how far, and whether there was a change."""
    record = opened.record
    while True:
        probe = opened.publisher.probe(up_to)
        if probe.empty_up_to > (record.registered_to or FIRST_POSITION):
            record = opened.database.batches.register(record, None, probe.empty_up_to)
        opened.publisher.advance(probe.empty_up_to)
        if probe.found_change:
            return probe.empty_up_to, True
        if probe.empty_up_to >= up_to:
            return probe.empty_up_to, False
