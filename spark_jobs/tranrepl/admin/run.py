"""A run of a publication, step by step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tranrepl.admin.joining_tables import publish_new_tables, replicate_again
from tranrepl.errors import (
    ARTICLE_DOES_NOT_EXIST,
    SNAPSHOT_NOT_AVAILABLE,
    ReplicationError,
    TransientError,
)
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt
from tranrepl.settings.publication import Publication
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
    for name in () if stopped is not None and stopped.says_log_was_reset else subscriptions:
        taken = steps.take_snapshot(name)
        if taken.snapshot or taken.error is not None:
            results[f"{name}{SNAPSHOT}"] = taken
        delivered = steps.deliver(name)
        if taken.error is None or not _waits_for_snapshot(delivered):
            results[name] = delivered
    return results


def _waits_for_snapshot(delivered: JobResult) -> bool:
    return delivered.error is not None and delivered.error.number == SNAPSHOT_NOT_AVAILABLE


def read_log(
    publication: Publication,
    topology: Callable[[], Topology],
    read: Callable[[], JobResult],
    *,
    publishes_new: bool = True,
) -> JobResult:
    """Publish new tables of patterns that join by themselves, unless `joining_new_tables` does that beside it, and read
    the log by `read`; where a published table was dropped and made again under its name, replicate it again as setup
    would, and read on. Returns what both have done, with what was set up among the notices."""
    joined: list[str] = []
    if publishes_new and publication.has_patterns:
        try:
            publish_new_tables(topology(), joined.append)
        except TransientError as error:
            log.warning("new tables were not looked for: %s", error.message)
        except ReplicationError as error:
            joined.append(f"new tables are not published: {error}")
    result = attempt(read).noticing(joined)
    if result.error is None or result.error.number != ARTICLE_DOES_NOT_EXIST:
        return result
    done: list[str] = []
    try:
        replicate_again(topology(), done.append)
    except ReplicationError as error:
        # The article's own error says what to do.
        log.warning("objects were created again, but nothing is replicated yet: %s", error.message)
        return result.noticing(done)
    return result.plus(JobResult(notices=tuple(done))).plus(attempt(read)) if done else result
