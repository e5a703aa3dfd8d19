"""When a subscription's Subscriber has a tracer token: as soon as the commit is made that covers it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from tranrepl.connections import Connection
from tranrepl.distributor.database import PendingToken
from tranrepl.distributor.tracer_history import record_arrivals
from tranrepl.errors import ReplicationError
from tranrepl.postgres.session import connect


@dataclass(frozen=True, slots=True)
class TracerArrivals:
    """The tokens on their way to one subscription. It travels pickled with the delivery, password and all."""

    distribution: Connection
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
            connect(self.distribution, "tranrepl tracer", autocommit=True) as session,
        ):
            record_arrivals(session, self.subscription_id, arrived)


def to_be_passed(
    pending: Sequence[PendingToken], watermark: bytes, last: bytes, before: bytes | None, *, leaves_out: bool
) -> bytes | None:
    """Return where to set the watermark after commands up to `last`, of which those before `before`, were applied: they
    may end in tracer tokens, or, where it `leaves_out` some, in commands of which nobody sets it. None: it is there."""
    if leaves_out and before is None and watermark < last:
        return last
    return _last_passed(pending, watermark, last, before)


def _last_passed(pending: Sequence[PendingToken], after: bytes, last: bytes, before: bytes | None) -> bytes | None:
    """Return the last token's `xact_seqno` among those after one transaction, up to another, and before a third if it
    is given; None where there is none."""
    passed = [
        it.xact_seqno for it in pending if after < it.xact_seqno <= last and (before is None or it.xact_seqno < before)
    ]
    return max(passed, default=None)
