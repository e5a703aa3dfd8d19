"""Messages of a logical slot, fetched while those before them are decoded.

The server decodes the log in one function call and hands rows over only when it is done, so a large call leaves the
reader idle, and then the server. Here a temporary copy of the slot is read in growing parts by a thread of its own:
while one part is decoded, the server works at the next. The slot itself is not touched.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Generator, Iterator

import pyarrow as pa
from adbc_driver_manager import Error as AdbcError
from adbc_driver_postgresql import dbapi as adbc
from psycopg import conninfo, sql

from tranrepl.connections import Connection
from tranrepl.postgres import session_options
from tranrepl.publisher.postgres import lsn_text

FETCH_BYTES = 4 * 1024 * 1024
"""Batches of this size stay in the processor's cache while they are decoded."""
AHEAD = 16
"""So many batches wait at most."""
_FIRST_PART = 20_000
_GROWTH = 4
_LARGEST_PART = 1_280_000
"""Messages. A part is several times the one before, because each begins with a scan of what those before it held."""

FetchError = (AdbcError, OSError)
"""What fetching may raise: what fails while rows arrive comes as Arrow's OSError, without an SQLSTATE."""


def log_messages(connection: Connection, slot: str, up_to: int) -> Generator[pa.BinaryArray, None, None]:
    """`pgoutput` messages of whole transactions, in commit order, from where the slot stands up to `up_to`.

    May be closed at any point. Raises one of `FetchError`.
    """
    batches: queue.Queue[pa.BinaryArray | Exception | None] = queue.Queue(AHEAD)
    closed = threading.Event()
    thread = threading.Thread(target=_fetch, args=(connection, slot, up_to, batches, closed), daemon=True)
    thread.start()
    try:
        while (batch := batches.get()) is not None:
            if isinstance(batch, Exception):
                raise batch
            yield batch
    finally:
        closed.set()
        while thread.is_alive():
            # The thread may wait for room to put one more.
            _empty(batches)
            thread.join(0.01)


def _empty(batches: queue.Queue[pa.BinaryArray | Exception | None]) -> None:
    while not batches.empty():
        batches.get_nowait()


def _fetch(
    connection: Connection,
    slot: str,
    up_to: int,
    batches: queue.Queue[pa.BinaryArray | Exception | None],
    closed: threading.Event,
) -> None:
    try:
        for batch in _parts(connection, slot, up_to):
            if closed.is_set():
                return
            batches.put(batch)
        batches.put(None)
    except FetchError as error:
        batches.put(error)


def _parts(connection: Connection, slot: str, up_to: int) -> Iterator[pa.BinaryArray]:
    parameters = connection.libpq_parameters("tranrepl log reader")
    options = " ".join(filter(None, [parameters.pop("options", None), session_options()]))
    copy = f"tranrepl_reading_{uuid.uuid4().hex}"
    with adbc.connect(conninfo.make_conninfo("", **parameters, options=options)) as session:
        with session.cursor() as cursor:
            cursor.execute(_copy_slot(slot, copy))
        part, fetched = _FIRST_PART // _GROWTH, _FIRST_PART
        while fetched >= part:
            part = min(_GROWTH * part, _LARGEST_PART)
            fetched = 0
            with session.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(FETCH_BYTES)})
                cursor.execute(_read_part(slot, copy, up_to, part))
                for batch in cursor.fetch_record_batch():
                    fetched += len(batch)
                    yield batch.column(0)


def _copy_slot(slot: str, copy: str) -> str:
    """A temporary slot ends with its session."""
    return (
        sql.SQL("SELECT pg_catalog.pg_copy_logical_replication_slot({}, {}, true)")
        .format(sql.Literal(slot), sql.Literal(copy))
        .as_string(None)
    )


def _read_part(slot: str, copy: str, up_to: int, messages: int) -> str:
    return (
        sql.SQL(
            "SELECT data FROM pg_catalog.pg_logical_slot_get_binary_changes("
            "{copy}, {up_to}, {messages}, 'proto_version', '1', 'publication_names', {publication})"
        )
        .format(
            copy=sql.Literal(copy),
            up_to=sql.Literal(lsn_text(up_to)),
            messages=sql.Literal(messages),
            publication=sql.Literal(sql.Identifier(slot).as_string(None)),
        )
        .as_string(None)
    )
