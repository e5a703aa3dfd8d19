"""Statements executed in the snapshots of both ends, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.errors import ErrorReport, ReplicationError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, connect, translated_errors
from tranrepl.publisher.postgres.exported_snapshot import snapshot_session
from tranrepl.subscriber.generic.apply import translated_errors as translated_sql_errors
from tranrepl.subscriber.generic.database import SqlDatabase
from tranrepl.subscriber.generic.dialect import SqlDialect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLE_LOCK_TIMEOUT = "60s"
_TASKS_A_CORE = 2
"""Fewer would leave cores idle at the end, more would open more sessions."""

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """A statement in a PostgreSQL snapshot. It travels pickled to a Spark task, password and all."""

    connection: Connection
    snapshot: str
    statement: str
    where: str
    """As in messages."""
    own_path: bool = False
    """Names are found on the login's own path, as a row filter's are; else they are all qualified."""
    cached: bool = False
    """The server takes the table to be in memory (`effective_cache_size`)."""

    @property
    def place(self) -> SnapshotRead:
        """Without the statement: reads of one place can share a session."""
        return replace(self, statement="")

    @contextmanager
    def session(self) -> Iterator[Session]:
        with (
            snapshot_session(self.connection, self.snapshot, "tranrepl validation", self.where) as session,
            translated_errors(self.where),
        ):
            session.execute("SET jit = off")
            if self.cached:
                # There is nothing to read ahead, and PostgreSQL 18 would hand its pages to other processes.
                session.execute("SET effective_io_concurrency = 0")
            if not self.own_path:
                session.execute("SET search_path = pg_catalog")
            yield session


@dataclass(frozen=True, slots=True)
class HeldRead:
    """A statement in the sessions that this process holds (`HeldSessions`)."""

    statement: str


class HeldSessions:
    """Sessions of MariaDB whose snapshots show one state: one cannot import another's."""

    def __init__(self, sessions: Sequence[sa.Connection], database: SqlDatabase, where: str) -> None:
        self._database = database
        self._where = where
        self._free: SimpleQueue[sa.Connection] = SimpleQueue()
        for session in sessions:
            self._free.put(session)
        self._threads = ThreadPoolExecutor(len(sessions), "tranrepl-validation")

    def start(self, reads: Sequence[HeldRead]) -> list[Any]:
        """Start the reads and return a future for each."""
        return [self._threads.submit(self._rows, read) for read in reads]

    def _rows(self, read: HeldRead) -> Rows:
        session = self._free.get()
        try:
            with translated_sql_errors(self._where, self._database):
                result = session.exec_driver_sql(read.statement, execution_options={"no_parameters": True})
                return [tuple(row) for row in result.fetchall()]
        finally:
            self._free.put(session)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


@contextmanager
def held_sessions(dialect: SqlDialect, connection: Connection, sessions: int, where: str) -> Iterator[HeldSessions]:
    """Open them: what they see from now on is the state of now."""
    with ExitStack() as stack:
        opened: list[sa.Connection] = []
        for _ in range(sessions):
            session, database = stack.enter_context(dialect.reading(connection))
            with translated_sql_errors(where, database):
                session.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                session.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            opened.append(session)
        held = HeldSessions(opened, database, where)
        stack.callback(held.close)
        yield held


@contextmanager
def exported_at_subscriber(connection: Connection, tables: Sequence[TableName], where: str) -> Iterator[str]:
    """Export a snapshot of a PostgreSQL Subscriber as it is now, and yield its name; it lives until the end of this
    context. Until then, nobody empties or rewrites the tables, which would hide rows from it."""
    with connect(connection, "tranrepl validation", autocommit=True) as session, translated_errors(where):
        session.execute("SELECT set_config('lock_timeout', %s, false)", [_TABLE_LOCK_TIMEOUT])
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for table in tables:
            session.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(qualified(table)))
        row = session.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
        yield str(row[0]) if row else ""


@dataclass(slots=True)
class Reader:
    """Executes statements at both ends at once: in PostgreSQL from Spark's tasks, in MariaDB from threads."""

    spark: SparkSession
    held: HeldSessions | None = None

    def read(self, reads: Sequence[SnapshotRead | HeldRead]) -> list[Rows]:
        """Return the rows of each read. Raises ReplicationError. Raises ReplicationError."""
        there = [read for read in reads if isinstance(read, HeldRead)]
        started = iter(self.held.start(there) if self.held else ())
        here = iter(_on_spark(self.spark, [read for read in reads if isinstance(read, SnapshotRead)]))
        return [next(here) if isinstance(read, SnapshotRead) else next(started).result() for read in reads]


def _on_spark(spark: SparkSession, reads: Sequence[SnapshotRead]) -> list[Rows]:
    if not reads:
        return []
    context = spark.sparkContext
    tasks = min(len(reads), _TASKS_A_CORE * context.defaultParallelism)
    answers = context.parallelize(reads, tasks).mapPartitions(_answers).collect()
    for answer in answers:
        if isinstance(answer, ErrorReport):
            raise answer.to_exception()
    return [answer for answer in answers if not isinstance(answer, ErrorReport)]


def _answers(reads: Iterable[SnapshotRead]) -> Iterator[Rows | ErrorReport]:
    """Yield the rows of each read, up to the first that fails: an exception would come back as Spark's."""
    try:
        for place, some in groupby(reads, lambda read: read.place):
            with place.session() as session:
                for read in some:
                    yield session.execute(read.statement.encode(), binary=True).fetchall()
    except ReplicationError as error:
        yield error.report
