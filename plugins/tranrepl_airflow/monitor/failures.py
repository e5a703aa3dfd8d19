"""What deliveries stand at: errors that no later run has healed, and the transactions that are next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pydantic import BaseModel

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.stored_commands import first_transaction
from tranrepl.model.commands import FIRST_XACT_SEQNO

WITHHELD = "Shown to those who may edit the DAG: it may hold values of rows."


class Failure(BaseModel):
    """A subscription's newest error, where no later run has ended well."""

    subscription: str
    time: datetime
    text: str
    number: str | None
    article: str | None
    xact_seqno: str | None
    """The transaction of the failing command; None where it was none of a command."""
    command_id: int | None


def standing_failures(database: DistributionDatabase, record: PublicationRecord, *, texts: bool) -> list[Failure]:
    """Return the failures of all subscriptions, with what they say only where `texts`."""
    return list(_failures(database, record, texts=texts))


def _failures(database: DistributionDatabase, record: PublicationRecord, *, texts: bool) -> Iterator[Failure]:
    for subscription in database.subscriptions.living(record):
        error = database.errors.last(record, subscription)
        if error is None or database.history.ended_well_since(record, subscription, error):
            continue
        yield Failure(
            subscription=subscription.subscription,
            time=error.time,
            text=error.report.message if texts else WITHHELD,
            number=error.report.number,
            article=error.report.article,
            xact_seqno=error.report.xact_seqno,
            command_id=error.report.command_id,
        )


def next_transaction(database: DistributionDatabase, record: PublicationRecord, subscription: str) -> bytes | None:
    """Return the `xact_seqno` of the first stored transaction that the subscription does not have, as its last run
    recorded; None where it has all of them, or is not set up."""
    found = database.subscriptions.find(record, subscription)
    if found is None:
        return None
    known = database.history.last_known_watermark(record, found) or found.subscription_seqno or FIRST_XACT_SEQNO
    return first_transaction(record, database.batches.after(record, known), known)
