"""What deliveries stand at: errors that are not healed, and the transactions that are next."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.monitoring.publication import find_publication
from tranrepl.distributor.monitoring.recorded_errors import RecordedError, standing_errors
from tranrepl.distributor.stored_commands import first_transaction
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl_airflow.monitor.overview import WITHHELD


class Failure(BaseModel):
    """A subscription's newest error, where it is not healed."""

    subscription: str
    time: datetime
    text: str
    number: str | None
    article: str | None
    xact_seqno: str | None
    """The transaction of the failing command; None where it was none of a command."""
    command_id: int | None


def standing_failures(database: DistributionDatabase, publication: str, *, texts: bool) -> list[Failure]:
    """Return the failures of all subscriptions, with what they say only where `texts`."""
    with database.transaction() as connection:
        record = find_publication(connection, publication)
        errors = [] if record is None else standing_errors(connection, record)
    return [_failure(it, texts=texts) for it in errors]


def _failure(error: RecordedError, *, texts: bool) -> Failure:
    return Failure(
        subscription=error.subscription or "",
        time=error.time,
        text=error.text if texts else WITHHELD,
        number=error.number,
        article=error.article,
        xact_seqno=None if error.xact_seqno is None else error.xact_seqno.removeprefix("0x"),
        command_id=error.command_id,
    )


def next_transaction(database: DistributionDatabase, record: PublicationRecord, subscription: str) -> bytes | None:
    """Return the `xact_seqno` of the first stored transaction that the subscription does not have, as its last run
    recorded; None where it has all of them, or is not set up."""
    found = database.subscriptions.find(record, subscription)
    if found is None:
        return None
    known = database.history.last_known_watermark(record, found) or found.subscription_seqno or FIRST_XACT_SEQNO
    return first_transaction(record, database.batches.after(record, known), known)
