"""Places where a test ends a job's process as a crash would: by SIGKILL, between two changes of state.

`TRANREPL_FAILPOINT=NAME[@STREAM][:N][/stop]` chooses one: NAME reached for the N-th time in a process (1 unless
given), by that subscription stream (any, unless given); with `/stop` the process stands still there (SIGSTOP) until it
is continued. It must be in the environment of the process that is to die; a local
Spark's Python workers have their driver's. Without the variable nothing ever happens.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from tranrepl.errors import ConfigurationError

VARIABLE = "TRANREPL_FAILPOINT"


class Failpoint(StrEnum):
    """Each is named by what has just happened, unless it says before."""

    # Log reader
    FETCHED = "fetched"
    """A part of the log was fetched, and nothing of it is stored."""
    STORED = "stored"
    """The batch's file is whole in the store, and the batch is not registered."""
    SCHEMA_CHANGED = "schema_changed"
    """Articles wait for snapshots because of a schema change, and the batch that has it is not registered."""
    REGISTERED = "registered"
    """The batch is registered, and the Publisher does not know."""
    ADVANCED = "advanced"
    """The Publisher has the confirmation."""

    # Setup
    DEFINITIONS_PENDING = "definitions_pending"
    DEFINITIONS_WRITTEN = "definitions_written"
    """Definitions are changed, and no Subscriber has passed to them."""

    # Clean-up
    UNREGISTERED = "unregistered"
    """Batches are not registered any more, and their folders are still there."""
    MERGED = "merged"
    """Small batches are in one folder together, which is not registered."""
    MERGE_REGISTERED = "merge_registered"
    """That folder is registered in their place, and theirs are still there."""

    # Snapshot
    SNAPSHOT_INITIATED = "snapshot_initiated"
    """The subscription is marked, and the slot does not exist yet."""
    SNAPSHOT_EXPORTED = "snapshot_exported"
    """The slot has its consistent point, and nobody knows it."""
    EARLIER_ROWS_DELETED = "earlier_rows_deleted"
    """Rows are deleted of tables that are to be altered, and none is altered."""
    SNAPSHOT_BEGUN = "snapshot_begun"
    """The Subscriber's tables are ready, and no range is loaded."""
    RANGE_LOADED = "range_loaded"
    """A range is loaded, and not committed."""
    RANGE_COMMITTED = "range_committed"
    """A range is committed."""
    RANGES_BROUGHT_FORWARD = "ranges_brought_forward"
    """What an interrupted snapshot had loaded of a table shows a later transaction, and that is not committed."""
    SNAPSHOT_LOADED = "snapshot_loaded"
    """All ranges are committed, and the watermark is not set."""
    SNAPSHOT_ENDED = "snapshot_ended"
    """The watermark is set, and the subscription is not active."""
    SNAPSHOT_ACTIVATED = "snapshot_activated"
    """The subscription is active."""

    # A subscription stream
    BEGIN = "begin"
    """The transaction is open, under its lock."""
    APPLIED = "applied"
    """Commands of the commit batch, or a piece of it, are executed."""
    VOTED = "voted"
    """All streams have voted to commit, and none has yet."""
    BEFORE_COMMIT = "before_commit"
    """All commands of the commit batch are executed, and the watermark is not set."""
    CHANGE_BEGUN = "change_begun"
    """What comes before a schema change is committed with its place, and nothing is altered. (Where DDL ends the
    transaction, as the next three.)"""
    COLUMNS_CHANGED = "columns_changed"
    """The table is altered, and its procedures are those of before."""
    PROCEDURES_FOLLOWED = "procedures_followed"
    """The procedures are those of the new definition, and that is not recorded."""
    DEFINITION_RECORDED = "definition_recorded"
    """The new definition is recorded and committed, and nothing behind the change is applied."""
    WATERMARK_SET = "watermark_set"
    """The watermark is set, and not committed."""
    STREAM_COMMITTED = "stream_committed"
    """A stream other than 0 has committed its part, and stream 0 has not."""
    AFTER_COMMIT = "after_commit"
    """The commit batch is committed, and nobody knows."""


_CHOICE = re.compile(r"(?P<name>\w+)(@(?P<stream>\d+))?(:(?P<nth>[1-9]\d*))?(?P<stop>/stop)?")


@dataclass(slots=True)
class _Choice:
    point: Failpoint
    stream: int | None
    left: int
    signal: signal.Signals


def reach(point: Failpoint, stream: int = 0) -> None:
    """End this process here if the environment says so.

    Raises ConfigurationError where the variable names no failpoint: a test that kills nothing proves nothing.
    """
    choice = _choice()
    if choice is None or choice.point is not point or choice.stream not in (None, stream):
        return
    choice.left -= 1
    if choice.left == 0:
        os.kill(os.getpid(), choice.signal)


@cache
def _choice() -> _Choice | None:
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    match = _CHOICE.fullmatch(value)
    if match is None or match["name"] not in set(Failpoint):
        raise ConfigurationError(
            f"{VARIABLE}: {value!r} is no failpoint",
            remedy=f"allowed: NAME[@STREAM][:N][/stop], where NAME is one of {', '.join(Failpoint)}; or do not set it",
        )
    stream = int(match["stream"]) if match["stream"] else None
    ending = signal.SIGSTOP if match["stop"] else signal.SIGKILL
    return _Choice(Failpoint(match["name"]), stream, int(match["nth"] or 1), ending)
