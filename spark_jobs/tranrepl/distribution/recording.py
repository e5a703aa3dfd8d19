"""What the process that applies records in the distribution database, beside the Subscriber: how far it is, skipped
commands, and tracer tokens that have arrived. What is here travels pickled with the delivery, passwords and all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Protocol

import psycopg

from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PendingToken
from tranrepl.distributor.run_progress import add_to_run, record_arrivals
from tranrepl.distributor.schema import find_schema
from tranrepl.errors import ErrorReport, ReplicationError
from tranrepl.postgres.session import connect

_REPORT_INTERVAL_SECONDS = 1.0
_WAITED_SECONDS = 1.0
"""The wait for the last report, in whose place the job reports the whole."""


class Committed(Protocol):
    """What a delivery has committed by now."""

    transactions: int
    commands: int
    in_bulk: int
    by_article: dict[str, int]


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A history row. It travels pickled with the delivery, password and all."""

    distributor: Connection
    run_id: int


@contextmanager
def reporting_progress(run: ReportedRun | None, committed: Committed) -> Iterator[None]:
    """Add to the run's history row, once a second, what was committed meanwhile.

    A thread with a connection of its own does it, so that the Subscriber's transactions do not wait for it, and a
    delivery that is over within a second has none. What fails there is not reported, and harms nothing.
    """
    if run is None:
        yield
        return
    over = Event()
    reporter = Thread(target=_report, args=[run, committed, over], name="tranrepl-progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join(_WAITED_SECONDS)


def _report(run: ReportedRun, committed: Committed, over: Event) -> None:
    if over.wait(_REPORT_INTERVAL_SECONDS):
        return
    with (
        suppress(ReplicationError, psycopg.Error),
        connect(run.distributor, "tranrepl progress", autocommit=True) as session,
    ):
        schema, reported = find_schema(session), _Reported()
        while True:
            now = _Reported(committed.transactions, committed.commands, committed.in_bulk, dict(committed.by_article))
            if now != reported:
                add_to_run(session, schema, run.run_id, *now.since(reported))
                reported = now
            if over.wait(_REPORT_INTERVAL_SECONDS):
                return


@dataclass(frozen=True, slots=True)
class _Reported:
    transactions: int = 0
    commands: int = 0
    in_bulk: int = 0
    by_article: Mapping[str, int] = field(default_factory=dict)

    def since(self, earlier: _Reported) -> tuple[int, int, int, dict[str, int]]:
        by_article = {name: count - earlier.by_article.get(name, 0) for name, count in self.by_article.items()}
        return (
            self.transactions - earlier.transactions,
            self.commands - earlier.commands,
            self.in_bulk - earlier.in_bulk,
            by_article,
        )


@dataclass(frozen=True, slots=True)
class TracerArrivals:
    """The tokens on their way to one subscription. It travels pickled with the delivery, password and all."""

    distributor: Connection
    subscription_id: int
    pending: tuple[PendingToken, ...]

    def record(self, after: bytes, last: bytes) -> None:
        """Record that the tokens after one transaction and up to another have arrived, now.

        What fails here does not concern the delivery: the job, or the next one, records what is missing.
        """
        arrived = [it.tracer_id for it in self.pending if after < it.xact_seqno <= last]
        if not arrived:
            return
        with (
            suppress(ReplicationError, psycopg.Error),
            connect(self.distributor, "tranrepl tracer", autocommit=True) as session,
        ):
            record_arrivals(session, self.subscription_id, arrived)


def watermark_behind(
    pending: Sequence[PendingToken], watermark: bytes, last: bytes, before: bytes | None, *, leaves_out: bool
) -> bytes | None:
    """Return where to set the watermark after commands up to `last`, of which those before `before`, were applied: they
    may end in tracer tokens, or, where it `leaves_out` some, in commands of which nobody sets it. None: it is there."""
    if leaves_out and before is None and watermark < last:
        return last
    return _last_token(pending, watermark, last, before)


def _last_token(pending: Sequence[PendingToken], after: bytes, last: bytes, before: bytes | None) -> bytes | None:
    """Return the last token's `xact_seqno` among those after one transaction, up to another, and before a third if it
    is given; None where there is none."""
    passed = [
        it.xact_seqno for it in pending if after < it.xact_seqno <= last and (before is None or it.xact_seqno < before)
    ]
    return max(passed, default=None)


@dataclass(frozen=True, slots=True)
class SkippedCommands:
    """Records the commands that a delivery skips. Spark's tasks get it pickled, with the password."""

    distributor: Connection
    publication: str
    subscription: str

    def record(self, errors: Sequence[ErrorReport]) -> None:
        """Record the errors of skipped commands. Raises ReplicationError where the distribution database cannot be
        reached: then nothing is skipped."""
        with DistributionDatabase(self.distributor) as database:
            database.errors.record_skipped(database.publications.get(self.publication), self.subscription, errors)
