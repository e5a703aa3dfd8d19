"""A message that is longer than the 1 GB which a PostgreSQL server builds in one buffer: which transaction's it is.

The functions that read a slot give nothing of a range in which one change fails. A replication stream gives each
message as it is made, and so shows how far a server comes.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Final

import psycopg
from psycopg import pq, sql

from tranrepl.connections import Connection
from tranrepl.errors import DataError
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.session import translated_errors
from tranrepl.publisher.postgres.lsn import lsn_text, seqno_of
from tranrepl.publisher.postgres.relations import read_relation

LARGEST_BUFFER: Final = 2**30 - 1
_LIMIT_REACHED = frozenset({"54000", "XX000"})
_NUMBER = re.compile(r"\b\d{6,10}\b")
_SILENCE_SECONDS = 120
_HEADER_BYTES = 25
"""The head of a message in a replication stream: its kind, two positions and a time."""


def reaches_the_limit(error: Exception) -> bool:
    """Return whether a server says that a buffer is too small. While rows arrive, its SQLSTATE is not known, and its
    words are of any language: but it says how long the buffer is, and how much longer it would have to be."""
    text = str(error)
    if getattr(error, "sqlstate", None) in _LIMIT_REACHED:
        return True
    return sum(map(int, _NUMBER.findall(text))) >= LARGEST_BUFFER


@dataclass(frozen=True, slots=True)
class LongMessage:
    """Where the log cannot be read on. LSNs as integers."""

    commit_lsn: int
    """The commit of its transaction."""
    xid: int
    read_up_to: int | None
    """Where the last whole transaction before it ends; None where there is none."""
    tables: tuple[int, ...]
    """Tables that the change may be of: object ids, the likeliest first."""


@dataclass(slots=True)
class _Progress:
    """What a stream has shown."""

    commit_lsn: int = 0
    xid: int = 0
    read_up_to: int | None = None
    named: list[int] = field(default_factory=list)
    latest: int | None = None
    """Table of the latest message, where that was named or changed."""

    def add(self, message: bytes) -> None:
        match message[:1]:
            case b"B":
                self.commit_lsn = int.from_bytes(message[1:9], "big")
                self.xid = int.from_bytes(message[17:21], "big")
            case b"C":
                self.read_up_to = int.from_bytes(message[10:18], "big")
            case b"R":
                self.latest = read_relation(message).object_id
                self.named = [self.latest, *(it for it in self.named if it != self.latest)]
            case b"I" | b"U" | b"D":
                self.latest = int.from_bytes(message[1:5], "big")

    def stopped(self) -> LongMessage:
        others = [it for it in self.named if it != self.latest]
        tables = (*([] if self.latest is None else [self.latest]), *others)
        return LongMessage(self.commit_lsn, self.xid, self.read_up_to, tables)


def find_long_message(connection: Connection, slot: str, start: int, up_to: int) -> LongMessage | None:
    """Return the first message after `start` that the server cannot build; None where there is none."""
    progress = _Progress()
    with _stream(connection, slot, start) as stream:
        while (data := _next(stream)) is not None:
            kind, position = data[:1], int.from_bytes(data[1:9], "big")
            if kind == b"w":
                progress.add(data[_HEADER_BYTES:])
            if position >= up_to:
                return None
        ended = stream.get_result()
        if ended is None or ended.status != pq.ExecStatus.FATAL_ERROR:
            return None
        error = psycopg.errors.error_from_result(ended, encoding="utf-8")
        return progress.stopped() if error.sqlstate in _LIMIT_REACHED else None


@contextmanager
def _stream(connection: Connection, slot: str, start: int) -> Generator[pq.abc.PGconn, None, None]:
    """Open a temporary copy of the slot, and stream what comes from `start` on."""
    parameters = {**connection.libpq_parameters("tranrepl log reader"), "replication": "database"}
    copy = f"tranrepl_searching_{uuid.uuid4().hex}"
    # Not `with` the session itself: it would commit, and a stream takes no command.
    with (
        translated_errors(f"Publisher {connection.database}"),
        closing(psycopg.connect(**parameters, autocommit=True)) as session,  # type: ignore[arg-type]
    ):
        stream = session.pgconn
        for query in (
            # It would wait for our answers, which nobody needs.
            sql.SQL("SET wal_sender_timeout = 0"),
            sql.SQL("SELECT pg_catalog.pg_copy_logical_replication_slot({}, {}, true)").format(
                sql.Literal(slot), sql.Literal(copy)
            ),
            sql.SQL("START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {})").format(
                sql.Identifier(copy),
                sql.SQL(lsn_text(start)),
                sql.Literal(sql.Identifier(slot).as_string(None)),
            ),
        ):
            result = stream.exec_(query.as_bytes(None))
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result, encoding="utf-8")
        yield stream


def _next(stream: pq.abc.PGconn) -> bytes | None:
    """Return what comes next; None where nothing does."""
    while True:
        length, data = stream.get_copy_data(1)
        if length < 0:
            return None
        if length > 0:
            return bytes(data)
        if not wait([stream.socket], _SILENCE_SECONDS):
            return None
        stream.consume_input()


def long_message_error(where: str, by_table: Mapping[int, RegisteredArticle], found: LongMessage) -> DataError:
    """Return the error of a message that is too long: its transaction, and the article as far as it is known."""
    article = next((by_table[it] for it in found.tables if it in by_table), None)
    row = "" if article is None else f" of {article.source}"
    return DataError(
        f"{where}: transaction {lsn_text(found.commit_lsn)} (xid {found.xid}) changes a row{row} that is longer than "
        "the 1 GB which PostgreSQL takes into a message of its log. Everything committed before that is stored; "
        "nothing after it is read",
        remedy="leave the column out (`columns` of the article); where the row before and after the change are too "
        "long together only, set `replica_identity: default` and ALTER TABLE … REPLICA IDENTITY DEFAULT. Then "
        "`tranrepl reinitialize FILE` continues after this transaction",
        database_code="54000",
        xact_seqno=seqno_of(found.commit_lsn).hex(),
        article=None if article is None else str(article.source),
    )
