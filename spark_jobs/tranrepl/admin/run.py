"""A run of a publication, step by step, and what it does for a table that was dropped and made again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tranrepl.admin.check import check
from tranrepl.admin.setup import set_up
from tranrepl.distributor.stale_articles import waits_for_snapshot
from tranrepl.errors import (
    ARTICLE_DOES_NOT_EXIST,
    INCONSISTENT_DISTRIBUTION_DATABASE,
    SNAPSHOT_NOT_AVAILABLE,
    ReplicationError,
)
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt
from tranrepl.settings.following import agrees
from tranrepl.settings.registration import registered_article
from tranrepl.topology import Topology

log = logging.getLogger(__name__)

LOG_READER = "log reader"
"""The log reader's step."""
SNAPSHOT = " snapshot"
"""What follows a subscription's name, for the step that takes its snapshot."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How each is done; its result, with its error."""

    read_log: Callable[[], JobResult]
    take_snapshot: Callable[[str], JobResult]
    """Takes a subscription's snapshot, where it waits for one."""
    deliver: Callable[[str], JobResult]


def run(subscriptions: Iterable[str], steps: Steps) -> dict[str, JobResult]:
    """Read the log, then give each subscription its snapshot and what is stored. Results by step.

    None of them waits for another one's error to be mended: what is stored is delivered although the log reader has
    failed, and to Subscribers that need no snapshot although one has failed. Only where the log was reset, what is
    stored is not what the Publisher has.
    """
    results = {LOG_READER: steps.read_log()}
    stopped = results[LOG_READER].error
    log_was_reset = stopped is not None and stopped.number == INCONSISTENT_DISTRIBUTION_DATABASE
    for name in () if log_was_reset else subscriptions:
        taken = steps.take_snapshot(name)
        if taken.snapshot or taken.error is not None:
            results[f"{name}{SNAPSHOT}"] = taken
        delivered = steps.deliver(name)
        if taken.error is None or not _waits_for_snapshot(delivered):
            results[name] = delivered
    return results


def _waits_for_snapshot(delivered: JobResult) -> bool:
    return delivered.error is not None and delivered.error.number == SNAPSHOT_NOT_AVAILABLE


def read_log(topology: Callable[[], Topology], read: Callable[[], JobResult]) -> JobResult:
    """Read the log by `read`; where a published table was dropped and made again under its name, replicate it again as
    setup would, and read on. Returns what both have done, with what was set up among the notices."""
    result = attempt(read)
    if result.error is None or result.error.number != ARTICLE_DOES_NOT_EXIST:
        return result
    done: list[str] = []
    try:
        _replicate_again(topology(), done.append)
    except ReplicationError as error:
        # The article's own error says what to do.
        log.warning("objects were created again, but nothing is replicated yet: %s", error.message)
        return result.noticing(done)
    return result.plus(JobResult(notices=tuple(done))).plus(attempt(read)) if done else result


def _replicate_again(topology: Topology, say: Callable[[str], None]) -> None:
    """Set up the articles that have ended and whose tables were made again, where they get a snapshot.

    Nothing is done where that would register anything else: the file or another table is not as it is registered.
    Raises ReplicationError.
    """
    publication = topology.publication
    with topology.distributor() as database:
        record = database.publications.get(publication.publication)
        living = {it.subscription for it in database.subscriptions.living(record)}
        registered = {it.source: it for it in database.articles.active(publication, record)}
        ended, former = database.articles.ended(publication, record), database.articles.former(record)
    if living != {it.name for it in publication.subscriptions}:
        return
    with topology.publisher("tranrepl run") as publisher:
        if not publication.replicate_ddl and publisher.schema_changes.why_not_captured() is None:
            return
    checked = check(topology)
    if checked.blocking or not all(
        waits_for_snapshot(publication, source, it) for source in ended for it in publication.subscriptions
    ):
        return
    for article, table in checked.tables:
        known, before = registered.get(article.source), former.get(article.source)
        if known is not None:
            unchanged = registered_article(article, table, known).same_definition(known)
        else:
            # A table that was taken out of the publication, and not dropped, was meant to be. Commands of one that was
            # renamed before are to be delivered first: a snapshot leaves out those of its own name alone.
            unchanged = agrees(article, before) and before is not None and before.source_object_id != table.object_id
        if not unchanged:
            return
    set_up(topology, checked.tables, say)
