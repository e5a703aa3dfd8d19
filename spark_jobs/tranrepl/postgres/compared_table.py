"""PostgreSQL tables that are compared: the snapshot they are read in, their parts, the server's own hash functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.model.comparison import ComparedEnd, Execute, Pages, Rows, SharedRead, Side
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.postgres.shared_snapshot import snapshot_session


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """An exported snapshot of a PostgreSQL server. It travels pickled to a Spark task, password and all."""

    connection: Connection
    snapshot: str
    where: str
    """The server, as messages name it."""
    cached: bool = False
    """The server takes the table to be in memory (`effective_cache_size`)."""

    def read(self, statement: str) -> SharedRead:
        return SharedRead(self, statement)

    @contextmanager
    def session(self) -> Iterator[Execute]:
        with (
            snapshot_session(self.connection, self.snapshot, "tranrepl validation", self.where) as session,
            translated_errors(self.where),
        ):
            session.execute("SET jit = off")
            if self.cached:
                # There is nothing to read ahead, and PostgreSQL 18 would hand its pages to other processes.
                session.execute("SET effective_io_concurrency = 0")

            def execute(statement: str) -> Rows:
                return session.execute(statement.encode(), binary=True).fetchall()

            yield execute


def compared_end(session: Session, table: TableName, side: Side, place: SnapshotPlace, part_bytes: int) -> ComparedEnd:
    """Return the table as ranges of its pages of about `part_bytes` bytes each, read in that place."""
    with translated_errors(place.where):
        row = session.execute(_LARGEST, [qualified(table).as_string(session)]).fetchone()
    size, page, cached = row or (0, 1, False)
    parts = max(1, round(size / part_bytes))
    bounds = [None, *(size // page * part // parts for part in range(1, parts)), None]
    pages = tuple(Pages(first, end) for first, end in pairwise(bounds))
    return ComparedEnd(side, replace(place, cached=cached), pages)


# A partition has pages of its own: a range of them is one of every partition's.
_LARGEST = (
    "SELECT greatest(pg_catalog.pg_relation_size(c.oid), max(pg_catalog.pg_relation_size(p.relid))), "
    "current_setting('block_size')::bigint, "
    "greatest(pg_catalog.pg_relation_size(c.oid), sum(pg_catalog.pg_relation_size(p.relid))) "
    "<= pg_size_bytes(current_setting('effective_cache_size')) FROM pg_catalog.pg_class c "
    "LEFT JOIN pg_catalog.pg_partition_tree(c.oid) p ON true WHERE c.oid = %s::regclass GROUP BY c.oid"
)


def native_hashes(session: Session) -> tuple[object, ...]:
    """Return what the server's hash functions make of sample values: servers of equal ones hash alike."""
    return ("PostgreSQL", *(session.execute(_HASHES).fetchone() or ()))


# Each hash function that is used; texts hash by their bytes, in the server's encoding.
_HASHES = sql.SQL(
    "SELECT current_setting('server_encoding'), hashtextextended('tranrepl' COLLATE \"C\", 1), "
    "hashbpcharextended('a'::char(2) COLLATE \"C\", 1), hashint2extended(1::smallint, 1), hashint4extended(1, 1), "
    "hashint8extended(1, 1), hash_numeric_extended(1.5::numeric(9, 2), 1), time_hash_extended('12:30', 1), "
    "uuid_hash_extended('00000000-0000-0000-0000-000000000001', 1), timestamp_hash_extended('2000-02-29 12:30', 1)"
)
