"""Messages of a logical slot, fetched while those before them are decoded, and cut at the ends of transactions.

A server decodes the log in one process, and hands rows over only when a call is done. Here the log is cut into ranges,
and up to two sessions take turns at them, each on a temporary copy of the slot: while one hands over, the other
decodes. The slot itself is not touched.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import cycle, pairwise

import adbc_driver_postgresql
import numpy as np
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcDatabase, AdbcStatement, Error as AdbcError
from psycopg import conninfo, sql

from tranrepl.connections import Connection
from tranrepl.errors import TransientError
from tranrepl.postgres.session import SETTINGS_AFTER_OPTIONS, session_options
from tranrepl.publisher.postgres.free_slots import is_all_in_use
from tranrepl.publisher.postgres.lsn import lsn_number, lsn_text
from tranrepl.publisher.postgres.unconverted_text import AS_IT_IS

FETCH_BYTES = 2 * 1024 * 1024
"""Batches of this size stay in the processor's cache while they are decoded."""
AHEAD = 2
"""So many batches of a session wait at most."""
LOG_PAGE = 8192
_WORTH_TWO_SESSIONS = 8 * 1024 * 1024
LARGEST_RANGE = 512 * 1024 * 1024
"""Bytes of log. Each range begins with two scans of the log before it, and its messages wait in a file at the
Publisher: so ranges are few, and not larger than that file should be."""

_MAINTENANCE_DATABASE = "postgres"

FetchError = (AdbcError, OSError)
"""What fetching may raise: what fails while rows arrive comes as Arrow's OSError, without an SQLSTATE."""


def slot_messages(
    connection: Connection,
    slot: str,
    start: int,
    ends: Sequence[int],
    sessions: int = 2,
    *,
    many_tables: bool = False,
) -> Generator[pa.BinaryArray, None, None]:
    """Yield `pgoutput` messages of whole transactions, in commit order, from `start`, where the slot stands or later,
    to the last of `ends`, in ranges that end there, by so many sessions at most. `many_tables`: the database has
    thousands.

    Relation messages may come again. May be closed at any point. Raises one of `FetchError`.
    """
    ranges = list(pairwise([start, *ends]))
    with ExitStack() as stack:
        copies = _open_copies(stack, _database(_uri(connection), many_tables), slot, min(len(ranges), sessions))
        _refuse_moved(slot, start, [it.confirmed_lsn for it in copies])
        turns = [_Session(it.connection, slot, it.name, ranges[turn :: len(copies)]) for turn, it in enumerate(copies)]
        for session in turns:
            stack.callback(session.close)
            session.start()
        for _, session in zip(ranges, cycle(turns), strict=False):
            yield from session.next_range()


def _refuse_moved(slot: str, start: int, copied_at: Sequence[int]) -> None:
    """Raise an error where a slot was created again or advanced since it was read: it would begin too late."""
    moved = [it for it in copied_at if it > start]
    if moved:
        raise TransientError(
            f"replication slot {slot} is at {lsn_text(moved[0])} by now, and was to be read from {lsn_text(start)}",
            remedy="run again: the next run looks at it again",
        )


@dataclass(frozen=True, slots=True)
class _Copy:
    """A session with its own temporary copy of the slot."""

    connection: AdbcConnection
    name: str
    confirmed_lsn: int


def _open_copies(stack: ExitStack, database: AdbcDatabase, slot: str, wanted: int) -> list[_Copy]:
    """Open copies of the slot, fewer than are wanted where no other slot is free."""
    copies: list[_Copy] = []
    for _ in range(wanted):
        connection, copy = stack.enter_context(AdbcConnection(database)), f"tranrepl_reading_{uuid.uuid4().hex}"
        for settings in (SETTINGS_AFTER_OPTIONS, AS_IT_IS):
            _execute(connection, settings)
        try:
            with _rows(connection, _copy_slot(slot, copy)) as batches:
                confirmed = str(batches.read_all()["lsn"][0].as_py())
        except FetchError as error:
            if not copies or not is_all_in_use(error):
                raise
            break
        copies.append(_Copy(connection, copy, lsn_number(confirmed)))
    return copies


def range_ends(start: int, up_to: int, largest: int = LARGEST_RANGE) -> list[int]:
    """Return where each range of the log ends, the last one at `up_to`: an even number, of one size, `largest` or less.

    A transaction belongs to the range in which its commit record begins. An end within a page's header would be before
    the next record for the one session, and after the last record for the other: so all but the last are a page's.
    """
    first_page = start - start % LOG_PAGE
    length = up_to - first_page
    if length <= _WORTH_TWO_SESSIONS:
        return [up_to]
    turns = -(-length // (2 * largest))
    pages = -(-length // (2 * turns * LOG_PAGE))
    size = pages * LOG_PAGE
    return [*range(first_page + size, up_to, size), up_to]


@dataclass(slots=True)
class _Session:
    """Its ranges of the log, read by a thread of its own."""

    connection: AdbcConnection
    slot: str
    copy: str
    ranges: Sequence[tuple[int, int]]
    batches: queue.Queue[pa.BinaryArray | Exception | None] = field(default_factory=lambda: queue.Queue(AHEAD))
    """Batches of messages; None ends a range."""
    closed: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = threading.Thread(target=self._fetch, daemon=True)
        self.thread.start()

    def next_range(self) -> Iterator[pa.BinaryArray]:
        while (batch := self.batches.get()) is not None:
            if isinstance(batch, Exception):
                raise batch
            yield batch

    def close(self) -> None:
        """Close the session; a range that nobody waits for any more is not decoded to its end."""
        self.closed.set()
        while self.thread is not None and self.thread.is_alive():
            self.connection.cancel()
            # The thread may wait for room to put one more.
            while not self.batches.empty():
                self.batches.get_nowait()
            self.thread.join(0.01)

    def _fetch(self) -> None:
        try:
            for batch in _ranges(self.connection, self.slot, self.copy, self.ranges):
                if self.closed.is_set():
                    return
                self.batches.put(batch)
        except Exception as error:  # noqa: BLE001 — whatever it is, who waits for a batch must hear of it
            self.batches.put(error)


@lru_cache(maxsize=4)
def _database(uri: str, many_tables: bool) -> AdbcDatabase:
    """Return the database whose sessions are opened. It holds none itself, and is kept: a new one reads all columns and
    types of its database, which takes longer than reading a few changes; of thousands of tables, seconds.

    Then it reads those of the server's maintenance database, where it may: what is fetched is of built-in types.
    """
    # Not by DB-API: its module loads pandas.
    database: AdbcDatabase
    if many_tables:
        with suppress(AdbcError):
            database = adbc_driver_postgresql.connect(conninfo.make_conninfo(uri, dbname=_MAINTENANCE_DATABASE))
            # Of the sessions from here on.
            database.set_options(uri=uri)
            return database
    database = adbc_driver_postgresql.connect(uri)
    return database


def _uri(connection: Connection) -> str:
    parameters = connection.libpq_parameters("tranrepl log reader")
    options = " ".join(filter(None, [parameters.pop("options", None), session_options()]))
    return conninfo.make_conninfo("", **parameters, options=options)


def _ranges(
    connection: AdbcConnection, slot: str, copy: str, ranges: Sequence[tuple[int, int]]
) -> Iterator[pa.BinaryArray | None]:
    for first, last in ranges:
        _execute(connection, _advance_copy(copy, first))
        with _rows(connection, _read_range(slot, copy, last)) as batches:
            for batch in batches:
                yield batch.column(0)
        yield None


def _execute(connection: AdbcConnection, query: str) -> None:
    with _rows(connection, query) as batches:
        batches.read_all()


@contextmanager
def _rows(connection: AdbcConnection, query: str) -> Iterator[pa.RecordBatchReader]:
    with AdbcStatement(connection) as statement:
        statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(FETCH_BYTES)})
        statement.set_sql_query(query)
        stream, _ = statement.execute_query()
        with pa.RecordBatchReader.from_stream(stream) as batches:
            yield batches


def _copy_slot(slot: str, copy: str) -> str:
    """Return the statement that copies a slot to a temporary one, which ends with its session."""
    return (
        sql.SQL("SELECT lsn::text FROM pg_catalog.pg_copy_logical_replication_slot({}, {}, true)")
        .format(sql.Literal(slot), sql.Literal(copy))
        .as_string(None)
    )


def _advance_copy(copy: str, lsn: int) -> str:
    """Decode nothing before `lsn`. The slot itself may stand there, and a record that is longer than a range has taken
    the copy further already."""
    return (
        sql.SQL(
            "SELECT (pg_catalog.pg_replication_slot_advance(slot_name, {lsn})).end_lsn::text "
            "FROM pg_catalog.pg_replication_slots WHERE slot_name = {copy} AND confirmed_flush_lsn < {lsn}"
        )
        .format(copy=sql.Literal(copy), lsn=sql.Literal(lsn_text(lsn)))
        .as_string(None)
    )


def _read_range(slot: str, copy: str, up_to: int) -> str:
    return (
        sql.SQL(
            "SELECT data FROM pg_catalog.pg_logical_slot_get_binary_changes("
            "{copy}, {up_to}, NULL, 'proto_version', '1', 'publication_names', {publication}, 'messages', 'true')"
        )
        .format(
            copy=sql.Literal(copy),
            up_to=sql.Literal(lsn_text(up_to)),
            publication=sql.Literal(sql.Identifier(slot).as_string(None)),
        )
        .as_string(None)
    )


HELD_BYTES = 8 * 1024 * 1024
_LARGEST_ARRAY = 2**31 - 1


def whole_transactions(
    batches: Iterable[pa.BinaryArray], most_bytes: int = HELD_BYTES, least_bytes: int = 0
) -> Iterator[pa.BinaryArray]:
    """Yield the same `pgoutput` messages, each batch ending with a transaction; all but the last of `least_bytes` or
    more. A transaction of more than `most_bytes` comes in several batches, and what waited before it goes out as it
    is."""
    whole: list[pa.BinaryArray] = []
    begun: list[pa.BinaryArray] = []
    for batch in batches:
        end = _end_of_last_commit(batch)
        if end:
            whole += [*begun, batch.slice(0, end)]
            begun = []
        if end < len(batch):
            begun.append(batch.slice(end))
        too_large = _bytes_in(begun) > most_bytes
        if whole and (too_large or _bytes_in(whole) >= least_bytes):
            yield from _together(whole)
            whole = []
        if too_large:
            yield from _together(begun)
            begun = []
    yield from _together(whole)
    yield from _together(begun)


def _end_of_last_commit(batch: pa.BinaryArray) -> int:
    """Return how many messages there are up to and with the last Commit; 0 where there is none."""
    if len(batch) == 0:
        return 0
    starts = np.frombuffer(batch.buffers()[1], dtype=np.int32)[batch.offset : batch.offset + len(batch)]
    commits = np.flatnonzero(np.frombuffer(batch.buffers()[2], dtype=np.uint8)[starts] == ord("C"))
    return int(commits[-1]) + 1 if len(commits) else 0


def _bytes_in(arrays: list[pa.BinaryArray]) -> int:
    return sum(it.nbytes for it in arrays)


def _together(arrays: list[pa.BinaryArray]) -> Iterator[pa.BinaryArray]:
    """Join arrays to one; to several where one does not hold as much."""
    part: list[pa.BinaryArray] = []
    for it in arrays:
        if part and _bytes_in(part) + it.nbytes > _LARGEST_ARRAY:
            yield _one(part)
            part = []
        part.append(it)
    if part:
        yield _one(part)


def _one(arrays: list[pa.BinaryArray]) -> pa.BinaryArray:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
