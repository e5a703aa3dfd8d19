"""What a subscription's rows of `MSreplication_subscriptions` say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tranrepl.errors import InternalError
from tranrepl.subscriber.subscription import CommandPlace, StreamRecord, SubscriptionPosition, UnfinishedBatch


@dataclass(frozen=True, slots=True)
class StreamRow:
    """Row 0 has the watermark; another one what its stream applied last."""

    stream: int
    xact_seqno: bytes
    after: bytes | None
    streams: int | None
    division: str | None
    applied_before: CommandPlace | None = None
    """Where row 0 begins, as `SubscriptionPosition` has it."""

    def record(self) -> StreamRecord:
        if self.after is None or self.streams is None or self.division is None:
            raise InternalError(f"stream {self.stream} stands past the watermark, and does not say how it came there")
        return StreamRecord(bytes(self.after), bytes(self.xact_seqno), self.streams, self.division)


def position_of(rows: Sequence[StreamRow]) -> SubscriptionPosition:
    """Return the position that the rows of all streams give. Raises InternalError where they contradict each other."""
    watermark = bytes(rows[0].xact_seqno)
    ahead = [row for row in rows[1:] if bytes(row.xact_seqno) > watermark]
    if not ahead:
        return SubscriptionPosition(watermark, applied_before=rows[0].applied_before)
    records = {row.record() for row in ahead}
    if len(records) != 1:
        raise InternalError("streams stand past the watermark at different places")
    (record,) = records
    return SubscriptionPosition(watermark, UnfinishedBatch(record, frozenset(row.stream for row in ahead)))


def is_at(expected: bytes, rows: Sequence[tuple[int, bytes]], finishing: UnfinishedBatch | None = None) -> bool:
    """Return whether row 0, where it is among them, has this watermark, and no other one is past it but those of
    streams that have committed their part of the unfinished batch."""
    ahead = {number: seqno for number, seqno in rows if number != 0 and seqno > expected}
    wanted = dict.fromkeys(finishing.committed, finishing.record.last) if finishing else {}
    return ahead == wanted and all(seqno == expected for number, seqno in rows if number == 0)
