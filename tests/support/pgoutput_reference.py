"""`pgoutput` messages written byte by byte, and a decoder that reads them one by one.

Source: PostgreSQL documentation, "Logical Replication Message Formats". Slow and obvious on purpose: the real decoder
is held against it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.bitmask import bitmask
from tranrepl.model.commands import Operation
from tranrepl.publisher.log_range import Limits

POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Unchanged:
    """A TOASTed value that the log leaves out."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()
Cell = str | None | Unchanged
Row = list[Cell]
Columns = Sequence[tuple[str, int, int]]
"""Name, type's oid and modifier of each."""


# Writing


def begin(commit_lsn: int, time: int) -> bytes:
    """Return a Begin message; `time` is in µs since 2000."""
    return b"B" + struct.pack(">QqI", commit_lsn, time, 7)


def commit(commit_lsn: int, end_lsn: int, time: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, commit_lsn, end_lsn, time)


def relation(object_id: int, schema: str, table: str, columns: Columns) -> bytes:
    message = b"R" + struct.pack(">I", object_id) + schema.encode() + b"\0" + table.encode() + b"\0f"
    message += struct.pack(">H", len(columns))
    for name, type_oid, modifier in columns:
        message += b"\1" + name.encode() + b"\0" + struct.pack(">Ii", type_oid, modifier)
    return message


def insert(object_id: int, new: Row) -> bytes:
    return b"I" + struct.pack(">I", object_id) + b"N" + _row(new)


def update(object_id: int, old_kind: str, old: Row | None, new: Row) -> bytes:
    """Return an Update message; `old_kind` is O for the whole old row, K for its key, empty for neither."""
    before = old_kind.encode() + _row(old) if old is not None else b""
    return b"U" + struct.pack(">I", object_id) + before + b"N" + _row(new)


def delete(object_id: int, old_kind: str, old: Row) -> bytes:
    return b"D" + struct.pack(">I", object_id) + old_kind.encode() + _row(old)


def truncate(object_ids: Sequence[int]) -> bytes:
    return b"T" + struct.pack(f">IB{len(object_ids)}I", len(object_ids), 3, *object_ids)


def data_type(object_id: int, schema: str, name: str) -> bytes:
    return b"Y" + struct.pack(">I", object_id) + schema.encode() + b"\0" + name.encode() + b"\0"


def origin(name: str) -> bytes:
    return b"O" + struct.pack(">Q", 1) + name.encode() + b"\0"


def _row(row: Row) -> bytes:
    return struct.pack(">H", len(row)) + b"".join(_cell(cell) for cell in row)


def _cell(cell: Cell) -> bytes:
    if cell is None:
        return b"n"
    if isinstance(cell, Unchanged):
        return b"u"
    value = cell.encode()
    return b"t" + struct.pack(">I", len(value)) + value


# Reading


@dataclass
class _Cursor:
    data: bytes
    at: int = 1

    def number(self, layout: str) -> int:
        size = struct.calcsize(layout)
        (value,) = struct.unpack(layout, self.data[self.at : self.at + size])
        self.at += size
        return int(value)

    def kind(self) -> str:
        self.at += 1
        return chr(self.data[self.at - 1])

    def name(self) -> str:
        end = self.data.index(b"\0", self.at)
        text = self.data[self.at : end].decode()
        self.at = end + 1
        return text

    def row(self) -> Row:
        return [self._cell() for _ in range(self.number(">H"))]

    def _cell(self) -> Cell:
        match self.kind():
            case "n":
                return None
            case "u":
                return UNCHANGED
            case _:
                length = self.number(">I")
                self.at += length
                return self.data[self.at - length : self.at].decode()


@dataclass
class ReferenceDecoder:
    """Reads one message after the other; `stopped` says why it read no further."""

    articles: Sequence[RegisteredArticle]
    limits: Limits
    changes: list[dict[str, Any]] = field(default_factory=list)
    transactions: int = 0
    message_bytes: int = 0
    last_commit_lsn: int | None = None
    stopped: str | None = None
    _places: dict[int, tuple[RegisteredArticle, list[int]]] = field(default_factory=dict)
    _lsn: int = 0
    _time: datetime = POSTGRES_EPOCH
    _commands: int = 0

    def read(self, message: bytes) -> None:
        if self.stopped is not None:
            return
        cursor = _Cursor(message)
        readers = {
            "B": self._begin,
            "C": self._commit,
            "R": self._relation,
            "I": self._insert,
            "U": self._update,
            "D": self._delete,
            "T": self._truncate,
        }
        reader = readers.get(chr(message[0]))
        if reader is not None:
            reader(cursor)
        if self.stopped != "mismatch":
            self.message_bytes += len(message)
        if message[:1] == b"C":
            self._check_limits()

    def _check_limits(self) -> None:
        limits, last = self.limits, self.limits.last_xact_seqno
        if (
            self.transactions >= limits.transactions
            or self.message_bytes >= limits.message_bytes
            or (last is not None and self._lsn.to_bytes(8, "big") >= last)
        ):
            self.stopped = "limit"

    def _begin(self, cursor: _Cursor) -> None:
        self._lsn = cursor.number(">Q")
        self._time = POSTGRES_EPOCH + timedelta(microseconds=cursor.number(">q"))
        self._commands = 0

    def _commit(self, cursor: _Cursor) -> None:
        cursor.number(">B")
        self.last_commit_lsn = cursor.number(">Q")
        self.transactions += 1

    def _relation(self, cursor: _Cursor) -> None:
        object_id = cursor.number(">I")
        cursor.name(), cursor.name(), cursor.kind()
        columns: dict[str, tuple[int, int, int]] = {}
        for place in range(cursor.number(">H")):
            cursor.kind()
            name = cursor.name()
            columns[name] = place, cursor.number(">I"), cursor.number(">i")
        for article in self.articles:
            if article.source_object_id == object_id:
                self._fit(article, columns)

    def _fit(self, article: RegisteredArticle, columns: dict[str, tuple[int, int, int]]) -> None:
        places = []
        for column in article.columns:
            place, *found = columns.get(column.name, (-1, 0, 0))
            if place < 0 or tuple(found) not in [(column.type_oid, column.type_modifier), *column.earlier_types]:
                self.stopped = "mismatch"
                return
            places.append(place)
        self._places[article.source_object_id] = article, places

    def _insert(self, cursor: _Cursor) -> None:
        known = self._places.get(cursor.number(">I"))
        if known is None:
            return
        article, places = known
        cursor.kind()
        self._add(article, Operation.INSERT, after=_chosen(cursor.row(), places))

    def _delete(self, cursor: _Cursor) -> None:
        known = self._places.get(cursor.number(">I"))
        if known is None:
            return
        article, places = known
        cursor.kind()
        self._add(article, Operation.DELETE, before=_chosen(cursor.row(), places))

    def _update(self, cursor: _Cursor) -> None:
        known = self._places.get(cursor.number(">I"))
        if known is None:
            return
        article, places = known
        kind = cursor.kind()
        old = None
        if kind != "N":
            old = _chosen(cursor.row(), places)
            cursor.kind()
        new = _chosen(cursor.row(), places)
        if kind != "O":
            source = new if old is None else old
            old = [cell if at in article.key_positions else None for at, cell in enumerate(source)]
        assert old is not None
        whole = kind == "O"
        changed = [
            at + 1
            for at, (before, after) in enumerate(zip(old, new, strict=True))
            if after is not UNCHANGED and (before != after or not (whole or at in article.key_positions))
        ]
        if not changed:
            return
        after = [before if after is UNCHANGED else after for before, after in zip(old, new, strict=True)]
        self._add(article, Operation.UPDATE, old, after, bitmask(changed, len(places)))

    def _truncate(self, cursor: _Cursor) -> None:
        count = cursor.number(">I")
        cursor.number(">B")
        for _ in range(count):
            known = self._places.get(cursor.number(">I"))
            if known is not None:
                self._add(known[0], Operation.TRUNCATE)

    def _add(
        self,
        article: RegisteredArticle,
        operation: Operation,
        before: Row | None = None,
        after: Row | None = None,
        changed: bytes | None = None,
    ) -> None:
        self._commands += 1
        self.changes.append(
            {
                "xact_seqno": self._lsn.to_bytes(8, "big"),
                "command_id": self._commands,
                "commit_time": self._time,
                "article_id": article.article_id,
                "operation": int(operation),
                "before": before,
                "after": after,
                "changed": changed,
            }
        )


def _chosen(row: Row, places: Sequence[int]) -> Row:
    return [row[place] for place in places]
