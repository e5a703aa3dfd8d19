"""A subscription's watermark, with the rows of its streams.

Source: `MSreplication_subscriptions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from tranrepl.errors import InternalError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.replication_tables import WATERMARKS, of_subscription
from tranrepl.subscriber.subscription import (
    ALONE,
    CommandPlace,
    Stream,
    StreamRecord,
    SubscriptionKey,
    SubscriptionPosition,
    UnfinishedBatch,
    fenced,
    not_set_up,
)

if TYPE_CHECKING:
    from tranrepl.subscriber.base.column_steps import TableColumn


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


class Watermark:
    """One subscription's row, read and written in whatever transaction is open."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey, where: str) -> None:
        self._session = session
        self._database = database
        self._key = key
        self._where = where
        self._mine = of_subscription(WATERMARKS, key)
        self._locking: dict[Stream, sa.Select[*tuple[Any, ...]]] = {}
        # Of each commit batch: built once.
        self._advance = self._update(
            0,
            transaction_timestamp=sa.bindparam("seqno"),
            change_seqno=None,
            change_command_id=None,
            change_columns=None,
        )

    def exists(self) -> bool:
        """Return whether the table exists."""
        return self._database.has_table(self._session, WATERMARKS)

    def find(self) -> bytes | None:
        value = self._session.scalar(
            sa.select(WATERMARKS.c.transaction_timestamp).where(self._mine, WATERMARKS.c.stream == 0)
        )
        return None if value is None else bytes(value)

    def locked(self, *, of: Stream = ALONE) -> list[StreamRow]:
        """Lock a stream's row where the database can; for stream 0 also those that no stream of now has: one of an
        earlier delivery may still be about to commit. Raises ConfigurationError where there is none."""
        if of not in self._locking:
            self._locking[of] = self._rows_of(of)
        found = self._database.locked_rows(self._session, WATERMARKS, self._locking[of])
        rows = [_stream_row(row) for row in found]
        if not rows or rows[0].stream != of.number:
            raise not_set_up(self._where, self._key, self._database.name(self._session))
        return rows

    def _rows_of(self, of: Stream) -> sa.Select[*tuple[Any, ...]]:
        columns = WATERMARKS.c
        chosen = columns.stream == of.number
        if of.number == 0:
            chosen |= columns.stream >= of.streams
        return (
            sa.select(
                columns.stream,
                columns.transaction_timestamp,
                columns.batch_after,
                columns.batch_streams,
                columns.batch_division,
                columns.change_seqno,
                columns.change_command_id,
            )
            .where(self._mine, chosen)
            .order_by(columns.stream)
        )

    def fence(
        self, expected: bytes, stream: Stream = ALONE, finishing: UnfinishedBatch | None = None
    ) -> CommandPlace | None:
        """Lock the watermark and compare it; return the place before which all of the next transaction is applied, of
        which one connection has applied a part. Raises FencedError where another delivery was here."""
        locked = self.locked(of=stream)
        if not is_at(expected, [(row.stream, bytes(row.xact_seqno)) for row in locked], finishing):
            raise fenced(self._where)
        return locked[0].applied_before

    def advance(self, xact_seqno: bytes) -> None:
        self._session.execute(self._advance, {"seqno": xact_seqno})

    def begin_change(self, place: CommandPlace, columns: Sequence[TableColumn]) -> None:
        """Record that all before a schema change is applied, and the columns that its table has."""
        self._session.execute(
            self._update(
                0,
                change_seqno=place.xact_seqno,
                change_command_id=place.command_id,
                change_columns=_table_columns().dump_json(tuple(columns)).decode(),
            )
        )

    def end_change(self) -> None:
        """Record that the schema change is made: its table has other columns from here on."""
        self._session.execute(self._update(0, change_columns=None))

    def columns_before(self, place: CommandPlace) -> tuple[TableColumn, ...] | None:
        """Return the columns that the table had when a schema change was begun; None where this one was not, or is
        made."""
        columns = WATERMARKS.c
        found = self._session.scalar(
            sa.select(columns.change_columns).where(
                self._mine,
                columns.stream == 0,
                columns.change_seqno == place.xact_seqno,
                columns.change_command_id == place.command_id,
            )
        )
        return None if found is None else _table_columns().validate_json(found)

    def record(self, stream: Stream, record: StreamRecord) -> None:
        """Record what a stream other than 0 applied."""
        self._session.execute(
            self._update(
                stream.number,
                transaction_timestamp=record.last,
                batch_after=record.after,
                batch_streams=record.streams,
                batch_division=record.division,
            )
        )

    def forget_streams(self) -> None:
        """Forget what streams applied before: where the watermark moves by hand, that says nothing any more."""
        self._session.execute(
            sa.update(WATERMARKS)
            .where(self._mine, WATERMARKS.c.stream != 0)
            .values(transaction_timestamp=FIRST_XACT_SEQNO)
        )

    def _update(self, stream: int, **values: object) -> sa.Update:
        return (
            sa.update(WATERMARKS)
            .where(self._mine, WATERMARKS.c.stream == stream)
            .values(**values, time=sa.func.current_timestamp())
        )

    def start(self) -> bool:
        """Create the watermark: a new subscription has received nothing. Returns whether it was created; False where it
        exists."""
        return self.find() is None and self._insert([0]) > 0

    def start_streams(self, streams: int) -> None:
        """Create a row for each stream that has none."""
        query = sa.select(WATERMARKS.c.stream).where(self._mine)
        self._insert(sorted(set(range(1, streams)) - set(self._session.scalars(query))))

    def _insert(self, streams: Sequence[int]) -> int:
        rows = [
            {
                "publisher": self._key.publisher,
                "publisher_system": self._key.publisher_system,
                "publisher_db": self._key.publisher_db,
                "publication": self._key.publication,
                "subscription": self._key.subscription,
                "stream": stream,
                "subscription_type": 0,
                "transaction_timestamp": FIRST_XACT_SEQNO,
            }
            for stream in streams
        ]
        return self._database.insert_new(self._session, WATERMARKS, rows) if rows else 0


@cache
def _table_columns() -> TypeAdapter[tuple[TableColumn, ...]]:
    # Where DDL is transactional, a delivery does without it, and starts sooner.
    from tranrepl.subscriber.base.column_steps import TableColumn

    return TypeAdapter(tuple[TableColumn, ...])


def _stream_row(row: sa.Row[*tuple[Any, ...]]) -> StreamRow:
    changed = None if row.change_seqno is None else CommandPlace(bytes(row.change_seqno), row.change_command_id)
    return StreamRow(
        row.stream, row.transaction_timestamp, row.batch_after, row.batch_streams, row.batch_division, changed
    )
