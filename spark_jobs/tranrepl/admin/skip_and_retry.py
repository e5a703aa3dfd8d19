"""The administrator's way past one transaction, or back to one.

Source: `sp_setsubscriptionxactseqno`, which sets the transaction after which the next delivery begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tranrepl.distribution.opening import OpenDistribution, open_distribution
from tranrepl.distributor.database.healing import BY_HAND
from tranrepl.distributor.stored_commands import first_transaction, is_stored
from tranrepl.errors import ConfigurationError
from tranrepl.model.commands import XACT_SEQNO_BYTES
from tranrepl.model.position import seqno_before
from tranrepl.remedies import FINISH_BATCH, reinitialize_subscription
from tranrepl.topology import Topology


def parse_xact_seqno(text: str) -> bytes:
    """Parse an xact_seqno in hexadecimal, with or without 0x. Raises ConfigurationError."""
    try:
        seqno = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        seqno = b""
    if len(seqno) != XACT_SEQNO_BYTES:
        raise ConfigurationError(
            f"{text!r} is no xact_seqno", remedy=f"allowed: {2 * XACT_SEQNO_BYTES} hexadecimal digits, as browse shows"
        )
    return seqno


def skip_transaction(topology: Topology, subscription: str, xact_seqno: bytes) -> str:
    """Skip the transaction that is the next one to be delivered, so that it is never applied; return what was done.

    Raises ConfigurationError where another one is next: nobody skips more than was looked at; and where it holds a
    schema change: the commands after it are of the article's new definition.
    """
    with _without_delivery(topology, subscription) as (opened, watermark):
        following = first_transaction(opened.record, opened.database.batches.after(opened.record, watermark), watermark)
        if following is None:
            raise ConfigurationError(f"subscription {subscription} has no transaction left to deliver")
        if following != xact_seqno:
            raise ConfigurationError(
                f"subscription {subscription}: the next transaction is 0x{following.hex()}",
                remedy="only that one can be skipped",
            )
        _refuse_schema_changes(opened, watermark, xact_seqno)
        opened.subscriber.move_watermark(watermark, xact_seqno)
        done = f"transaction 0x{xact_seqno.hex()} {BY_HAND}"
        opened.database.history.record_administration(opened.record, opened.subscription, xact_seqno, done)
    return done


def _refuse_schema_changes(opened: OpenDistribution, watermark: bytes, xact_seqno: bytes) -> None:
    stored = opened.database.schema_changes.after(opened.record, watermark)
    changes = [it.change for it in stored if it.xact_seqno == xact_seqno]
    if not changes:
        return
    name, seqno = opened.subscription.subscription, f"0x{xact_seqno.hex()}"
    articles = ", ".join(dict.fromkeys(str(it.source) for it in changes))
    raise ConfigurationError(
        f"subscription {name}: transaction {seqno} holds a schema change of article {articles}, which cannot be "
        "skipped: the commands after it are of the article's new definition",
        remedy=f"`tranrepl browse FILE --from {seqno} --to {seqno}` shows it: make the same change to the Subscriber's "
        f"table by hand; `tranrepl distribute FILE -s {name}` then skips what is done already, and continues",
    )


def retry_from_transaction(topology: Topology, subscription: str, xact_seqno: bytes) -> str:
    """Let the next delivery begin with a stored transaction, though it was delivered before; what was done.

    Raises ConfigurationError where it is not stored, or not delivered yet, and where a schema change was delivered
    since: the Subscriber's tables are not of the definition that the commands before it are of.
    """
    with _without_delivery(topology, subscription) as (opened, watermark):
        before = seqno_before(xact_seqno)
        if xact_seqno > watermark:
            raise ConfigurationError(
                f"subscription {subscription}: transaction 0x{xact_seqno.hex()} is not delivered yet",
                remedy="`tranrepl distribute FILE` delivers what comes next",
            )
        if not is_stored(opened.record, opened.database.batches.after(opened.record, before), xact_seqno):
            raise ConfigurationError(
                f"subscription {subscription}: transaction 0x{xact_seqno.hex()} is not stored",
                remedy="`tranrepl browse FILE` shows which ones are",
            )
        _refuse_delivered_schema_changes(opened, before, watermark)
        opened.subscriber.move_watermark(watermark, before)
        done = f"an administrator let the next delivery begin with transaction 0x{xact_seqno.hex()}"
        opened.database.history.record_administration(opened.record, opened.subscription, before, done)
    return done


def _refuse_delivered_schema_changes(opened: OpenDistribution, before: bytes, watermark: bytes) -> None:
    stored = opened.database.schema_changes.after(opened.record, before)
    changes = [
        f"{it.change.tag} of article {it.change.source} in transaction 0x{it.xact_seqno.hex()}"
        for it in stored
        if it.xact_seqno <= watermark
    ]
    if not changes:
        return
    name = opened.subscription.subscription
    raise ConfigurationError(
        f"subscription {name}: its delivery cannot go back over schema changes, which its tables have already: "
        f"{', '.join(changes)}",
        remedy=reinitialize_subscription(name),
    )


@contextmanager
def _without_delivery(topology: Topology, subscription: str) -> Iterator[tuple[OpenDistribution, bytes]]:
    """Yield the open subscription and its watermark, while no delivery goes on and none is left half done."""
    with open_distribution(topology, subscription) as opened:
        position = opened.subscriber.position()
        if position.unfinished is not None:
            raise ConfigurationError(
                f"subscription {subscription}: a commit batch was interrupted while its streams committed",
                remedy=FINISH_BATCH,
            )
        yield opened, position.watermark
