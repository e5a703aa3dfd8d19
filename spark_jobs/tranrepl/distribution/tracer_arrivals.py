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


def last_passed(pending: Sequence[PendingToken], after: bytes, last: bytes, before: bytes | None) -> bytes | None:
    """Return the last token's `xact_seqno` among those after one transaction, up to another, and before a third if it
    is given; None where there is none."""
    passed = [
        it.xact_seqno for it in pending if after < it.xact_seqno <= last and (before is None or it.xact_seqno < before)
    ]
    return max(passed, default=None)
