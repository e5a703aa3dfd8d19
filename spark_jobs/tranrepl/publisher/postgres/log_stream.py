"""A PostgreSQL log as it is written: the publication's slot, followed by the streaming replication protocol.

Message formats: PostgreSQL documentation, "Streaming Replication Protocol". The slot is in use as long as the stream
is open. The server itself waits for `synchronized_standby_slots` where the slot is a failover slot.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import pq, sql

from tranrepl.model.position import Position
from tranrepl.postgres.session import Session, connect, translate, translated_errors
from tranrepl.publisher.log_range import Limits, LogPart
from tranrepl.publisher.log_stream import StreamEndedError
from tranrepl.publisher.postgres.log_range import PostgresLogRange
from tranrepl.publisher.postgres.lsn import lsn_of, lsn_text, position_of
from tranrepl.publisher.postgres.message_secret import read_secrets
from tranrepl.publisher.postgres.partitions import partitions
from tranrepl.publisher.postgres.pgoutput import PgOutputDecoder
from tranrepl.publisher.postgres.replication_session import replication_session
from tranrepl.publisher.postgres.row_filters import PostgresRowFilters
from tranrepl.publisher.postgres.unconverted_text import AS_IT_IS

NO_LIMITS = Limits(1 << 62, 1 << 62)
_XLOG_DATA = struct.Struct(">cQQq")
_KEEPALIVE = struct.Struct(">cQqB")
_STATUS = struct.Struct(">cQQQqB")
_POSTGRES_EPOCH = 946_684_800
_BEGIN, _COMMIT, _RELATION = b"B"[0], b"C"[0], b"R"[0]
_WORTH_CONFIRMING = 1024 * 1024
"""Bytes of log without a change of ours that are let go at once; fewer wait."""
_CONFIRM_SECONDS = 10.0
"""To register a position writes log too, where the distribution database is at the same server."""
_FREE_SECONDS = 2.0
_HELD_BACK = 100
"""So many messages at once come from a server that waited until we read: a socket holds some hundreds of them, and it
sends more within `_REFILLED_SECONDS`."""
_REFILLED_SECONDS = 0.001
_AT_ONCE_SECONDS = 0.02
"""For so long, what it sends then is taken in together."""
_SAY_SECONDS = 10.0
"""How often our position is sent to the server, though it does not ask."""


@dataclass(frozen=True, slots=True)
class PostgresLogStream:
    """From where a range of the log begins, on and on."""

    log: PostgresLogRange

    @contextmanager
    def open(self) -> Iterator[OpenPostgresStream]:
        with self.log.row_filters() as filters, replication_session(self.log.connection, "tranrepl log reader") as it:
            with translated_errors(self.log.where):
                it.execute(AS_IT_IS.encode())
            self._start(it)
            stream = OpenPostgresStream(self.log, filters, it, self.log.decoder(NO_LIMITS), self.log.first)
            try:
                yield stream
            finally:
                stream.end()

    def _start(self, session: Session) -> None:
        """Begin to stream. Raises ReplicationError."""
        publication = sql.Literal(sql.Identifier(self.log.slot).as_string(None))
        command = sql.SQL(
            "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {}, binary 'false', "
            "messages 'true')"
        ).format(sql.Identifier(self.log.slot), sql.SQL(lsn_text(self.log.first)), publication)
        result = session.pgconn.exec_(command.as_string(None).encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise translate(self.log.where, psycopg.errors.error_from_result(result, encoding="utf-8"))


@dataclass(slots=True)
class OpenPostgresStream:
    """A session that receives the log as it is written. Its LSNs are integers."""

    log: PostgresLogRange
    filters: PostgresRowFilters | None
    session: Session
    decoder: PgOutputDecoder
    confirmed: int
    """Everything before is registered."""
    arrived_at: float | None = None
    arrived_bytes: int = 0
    _messages: list[bytes] = field(default_factory=list)
    _whole: int = 0
    """So many of the messages are of whole transactions."""
    _in_transaction: bool = False
    _received: int = 0
    """How far the server has come."""
    _said_at: float = field(default_factory=time.monotonic)
    _confirmed_at: float = field(default_factory=time.monotonic)

    @property
    def read_to(self) -> Position | None:
        if self._messages or self._received <= self.confirmed:
            return None
        waited = time.monotonic() - self._confirmed_at >= _CONFIRM_SECONDS
        worth_it = waited or self._received - self.confirmed >= _WORTH_CONFIRMING
        return position_of(self._received) if worth_it else None

    def fileno(self) -> int:
        return self.session.fileno()

    def receive(self) -> None:
        asked, until = False, time.monotonic() + _AT_ONCE_SECONDS
        try:
            while True:
                before = len(self._messages)
                self.session.pgconn.consume_input()
                asked = self._receive() or asked
                if len(self._messages) - before < _HELD_BACK or time.monotonic() >= until:
                    break
                time.sleep(_REFILLED_SECONDS)
        except psycopg.Error as error:
            raise StreamEndedError(" ".join(str(error).split())) from error
        if asked or time.monotonic() - self._said_at >= _SAY_SECONDS:
            self._say()

    def _receive(self) -> bool:
        """Take in what is there; return whether the server asks where we are."""
        asked, get = False, self.session.pgconn.get_copy_data
        while True:
            size, data = get(1)
            if size <= 0:
                break
            if data[0] == _XLOG_DATA_KIND:
                self._add(bytes(data[_XLOG_DATA.size :]))
            elif data[0] == _KEEPALIVE_KIND:
                _, end, _, reply = _KEEPALIVE.unpack(bytes(data))
                self._received = max(self._received, end)
                asked = asked or bool(reply)
        if size < 0:
            result = self.session.pgconn.get_result()
            said = result.error_message.decode(errors="replace") if result is not None else ""
            raise StreamEndedError(" ".join(said.split()) or "the server has ended the stream")
        return asked

    def _add(self, message: bytes) -> None:
        kind = message[0]
        if kind == _BEGIN:
            self._in_transaction = True
        elif not self._in_transaction:
            # A message that is of no transaction.
            return
        self._messages.append(message)
        self.arrived_bytes += len(message)
        if kind == _COMMIT:
            self._in_transaction = False
            self._whole = len(self._messages)
            self._received = max(self._received, int.from_bytes(message[10:18], "big"))
            self.arrived_at = self.arrived_at or time.monotonic()

    def take(self) -> LogPart | None:
        messages = pa.array(self._messages[: self._whole], pa.binary())
        self._messages = self._messages[self._whole :]
        self._whole, self.arrived_at, self.arrived_bytes = 0, None, sum(map(len, self._messages))
        secrets_changed = self._secrets_changed(messages)
        part = self.log.part(self.decoder, messages)
        return None if secrets_changed or self._changes_unknown_partition(messages) else part

    def _secrets_changed(self, messages: pa.BinaryArray) -> bool:
        """Return whether a message does not verify, and the secret is another one than when the stream began."""
        if self.decoder.all_verify(messages):
            return False
        with connect(self.log.connection, "tranrepl log reader", autocommit=True) as session:
            return read_secrets(session, self.log.where, self.log.slot) != self.log.secrets

    def _changes_unknown_partition(self, messages: pa.BinaryArray) -> bool:
        """Return whether a Relation message names a table that is a partition of an article's by now, and was none when
        the stream began. Another one that is published is of no article."""
        named = _named_tables(messages)
        unknown = named - self.log.by_table.keys()
        if not unknown:
            return False
        with connect(self.log.connection, "tranrepl log reader", autocommit=True) as session:
            found = partitions(session, [it.source_object_id for it in self.log.articles])
        return not unknown.isdisjoint(it.object_id for it in found)

    def proof(self, registered: str | None, last: bytes | None) -> None:
        """Return None: a log that is followed as it is written needs no proof besides its identity."""

    def confirm(self, position: Position) -> None:
        self.confirmed, self._confirmed_at = max(self.confirmed, lsn_of(position)), time.monotonic()
        self._say()

    def _say(self) -> None:
        """Tell the server how far we have received, and registered."""
        now = int((time.time() - _POSTGRES_EPOCH) * 1_000_000)
        received = max(self._received, self.confirmed)
        try:
            self.session.pgconn.put_copy_data(_STATUS.pack(b"r", received, self.confirmed, self.confirmed, now, 0))
            self.session.pgconn.flush()
        except psycopg.Error as error:
            raise StreamEndedError(" ".join(str(error).split())) from error
        self._said_at = time.monotonic()

    def end(self) -> None:
        """End the stream, and its session, so that others can read the log."""
        with suppress(StreamEndedError, psycopg.Error):
            self._say()
            self.session.pgconn.put_copy_end()
            self.session.pgconn.flush()
            self._wait_until_free()
        self.session.close()

    def _wait_until_free(self) -> None:
        """Wait until the server has let go of the slot, for a moment: it may have much to send yet."""
        deadline, connection = time.monotonic() + _FREE_SECONDS, self.session.pgconn
        while (size := connection.get_copy_data(1)[0]) >= 0 and time.monotonic() < deadline:
            if size == 0:
                wait([self.fileno()], _FREE_SECONDS)
                connection.consume_input()
        if size < 0:
            connection.get_result()


_XLOG_DATA_KIND, _KEEPALIVE_KIND = b"w"[0], b"k"[0]


def _named_tables(messages: pa.BinaryArray) -> set[int]:
    """Return the tables that Relation messages announce."""
    if len(messages) == 0:
        return set()
    starts = np.frombuffer(messages.buffers()[1], dtype=np.int32)[messages.offset : messages.offset + len(messages)]
    kinds = np.frombuffer(messages.buffers()[2], dtype=np.uint8)[starts]
    places = np.flatnonzero(kinds == _RELATION).tolist()
    return {int.from_bytes(messages[place].as_py()[1:5], "big") for place in places}
