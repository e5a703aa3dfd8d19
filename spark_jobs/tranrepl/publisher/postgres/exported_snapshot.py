"""A PostgreSQL Publisher as it was at one position of its log.

A logical replication slot, when it is created, exports the snapshot of its consistent point: it shows every transaction
whose commit record begins before that LSN, and none other (`SnapBuildXactNeedsSkip` is the other side of it).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError as NotYet
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.errors import ErrorDetails, InternalError, ReplicationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.comparison import Checksum, ColumnForm, ComparedEnd
from tranrepl.model.names import TableName
from tranrepl.model.position import Position
from tranrepl.postgres.catalogue import describe_tables, qualified
from tranrepl.postgres.compared_table import SnapshotPlace, compared_end, native_hashes
from tranrepl.postgres.comparison_forms import publisher_column
from tranrepl.postgres.comparison_statements import PostgresSide
from tranrepl.postgres.composed_sql import condition_sql
from tranrepl.postgres.giving_way import giving_way
from tranrepl.postgres.session import Session, connect, translate, translated_errors
from tranrepl.postgres.shared_snapshot import export_snapshot, snapshot_session
from tranrepl.publisher.postgres.free_slots import ALL_IN_USE, MORE_SLOTS
from tranrepl.publisher.postgres.lsn import LsnPositions, lsn_number, position_of
from tranrepl.publisher.postgres.partitions import tables_with_rows, whole_table
from tranrepl.publisher.postgres.replication_session import replication_session
from tranrepl.publisher.postgres.slot import PLUGIN
from tranrepl.publisher.postgres.snapshot_session import PostgresSnapshotSource, hold_tables
from tranrepl.publisher.postgres.standby_slots import wait_for_standbys

log = logging.getLogger(__name__)

_APPLICATION = "tranrepl snapshot"
_LOOK_SECONDS = 1.0
_COMMIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A snapshot that other sessions of the same database can import."""

    connection: Connection
    name: str
    """The name that SET TRANSACTION SNAPSHOT takes."""
    consistent_point: int
    """LSN: what was committed before it is in the snapshot."""

    @property
    def position(self) -> Position:
        return position_of(self.consistent_point)

    @property
    def xact_seqno(self) -> bytes:
        return LsnPositions().watermark(self.position)

    @property
    def source(self) -> PostgresSnapshotSource:
        return PostgresSnapshotSource(self.connection, self.name)

    def comparison(self, articles: Sequence[RegisteredArticle]) -> AbstractContextManager[PostgresComparison]:
        return publisher_comparison(self.connection, self.name, articles)


@contextmanager
def exported_snapshot(
    connection: Connection, timeout_seconds: float, say: Callable[[str], None] = log.warning
) -> Iterator[ExportedSnapshot]:
    """Export a snapshot, which lives until the end of this context.

    PostgreSQL waits for all transactions that write when it begins, prepared ones too. `say` reports which it waits
    for; after `timeout_seconds` of it, raises TransientError. It does so at the end too, where the snapshot gave way to
    a statement that waited for it. Raises ConfigurationError where the server refuses.
    """
    where = f"Publisher {connection.database}"
    with ExitStack() as held:
        with (
            connect(connection, _APPLICATION, autocommit=True) as observer,
            replication_session(connection, _APPLICATION) as session,
            ThreadPoolExecutor(1, "tranrepl-slot") as executor,
        ):
            creation = executor.submit(_create_slot, session, connection)
            try:
                _wait_for(creation, observer, session.info.backend_pid, timeout_seconds, say)
            except BaseException:
                session.cancel_safe()
                raise
            snapshot = creation.result()
            _wait_for_commits(connection, observer, snapshot)
            wait_for_standbys(observer, snapshot.consistent_point, timeout_seconds, say)
            holder = held.enter_context(snapshot_session(connection, snapshot.name, _APPLICATION))
            with translated_errors(where):
                snapshot = replace(snapshot, name=export_snapshot(holder, _APPLICATION))
        # The slot is given back: others need one, and it would keep the Publisher's log meanwhile.
        with giving_way(connection, snapshot.name, where):
            yield snapshot


def _create_slot(session: psycopg.Connection[tuple[Any, ...]], connection: Connection) -> ExportedSnapshot:
    where = f"Publisher {connection.database}"
    name = sql.Identifier(f"tranrepl_snapshot_{session.info.backend_pid}_{os.urandom(4).hex()}")
    statement = sql.SQL("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL {} EXPORT_SNAPSHOT").format(
        name, sql.Identifier(PLUGIN)
    )
    try:
        row = session.execute(statement).fetchone()
    except psycopg.Error as error:
        raise _not_created(where, error) from error
    if row is None or not row[2]:
        raise InternalError(f"{where}: a replication slot came without a snapshot")
    return ExportedSnapshot(connection, str(row[2]), lsn_number(str(row[1])))


def _not_created(where: str, error: psycopg.Error) -> ReplicationError:
    problem = translate(where, error)
    if problem.report.code == ALL_IN_USE:
        problem.add(ErrorDetails(remedy=f"wait for other jobs; or {MORE_SLOTS}"))
    return problem


def _wait_for(
    creation: Future[ExportedSnapshot],
    observer: Session,
    slot_pid: int,
    timeout_seconds: float,
    say: Callable[[str], None],
) -> None:
    where = f"Publisher {observer.info.dbname}"
    deadline = time.monotonic() + timeout_seconds
    reported, blocker = "", None
    while True:
        try:
            creation.result(timeout=min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
            return
        except NotYet:
            blocker = _blocker(observer, slot_pid) or blocker
        # Its age grows: it is reported once.
        if blocker is not None and blocker.who != reported:
            reported = blocker.who
            say(f"{where}: the snapshot waits for {blocker.who}, which was open before it began ({blocker.age})")
        if time.monotonic() >= deadline:
            waited = f" for {blocker.who} ({blocker.age})" if blocker else ""
            raise TransientError(
                f"{where}: no snapshot after waiting {timeout_seconds:.0f} seconds{waited}",
                remedy="end that transaction, or wait longer (publisher: snapshot_timeout)",
            )


@dataclass(frozen=True, slots=True)
class _Blocker:
    who: str
    age: str


def _blocker(observer: Session, slot_pid: int) -> _Blocker | None:
    """Return the transaction that the creation of a slot waits for."""
    with translated_errors(f"Publisher {observer.info.dbname}"):
        row = observer.execute(
            "SELECT p.gid, holder.pid, a.usename::text, a.application_name, "
            "       date_trunc('second', clock_timestamp() - coalesce(p.prepared, a.xact_start))::text, "
            "       w.transactionid::text "
            "FROM pg_catalog.pg_locks w "
            "LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = w.transactionid "
            "LEFT JOIN pg_catalog.pg_locks holder ON holder.locktype = 'transactionid' AND holder.granted "
            "     AND holder.transactionid = w.transactionid AND holder.mode = 'ExclusiveLock' "
            "LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = holder.pid "
            "WHERE w.pid = %s AND NOT w.granted AND w.locktype = 'transactionid'",
            [slot_pid],
        ).fetchone()
    if row is None:
        return None
    gid, pid, user, application, age, transaction = row
    age = f"for {age}" if age else "since when is not shown to this role"
    if gid is not None:
        return _Blocker(f"prepared transaction {gid!r}", age)
    if pid is not None:
        return _Blocker(f"a transaction of process {pid} ({user or 'unknown'}, {application or 'no name'})", age)
    return _Blocker(f"transaction {transaction}", age)


def _wait_for_commits(connection: Connection, observer: Session, snapshot: ExportedSnapshot) -> None:
    """Wait until the snapshot's last commits are visible: a commit record can be decoded a moment before the server
    knows it as committed; a reader would see the transaction as rolled back then."""
    where = f"Publisher {connection.database}"
    deadline = time.monotonic() + _COMMIT_SECONDS
    with snapshot_session(connection, snapshot.name, _APPLICATION) as reader, translated_errors(where):
        while _running_though_visible(observer, reader):
            if time.monotonic() >= deadline:
                raise TransientError(f"{where}: a transaction does not finish its commit")
            time.sleep(0.01)


def _running_though_visible(observer: Session, reader: Session) -> bool:
    running = observer.execute(
        "SELECT ARRAY(SELECT it::text FROM pg_catalog.pg_snapshot_xip(pg_catalog.pg_current_snapshot()) it)"
    ).fetchone()
    visible = reader.execute(
        "SELECT count(*) FROM unnest(%s::text[]) it "
        "WHERE pg_catalog.pg_visible_in_snapshot(it::xid8, pg_catalog.pg_current_snapshot())",
        running,
    ).fetchone()
    return visible != (0,)


@dataclass(frozen=True, slots=True)
class PostgresComparison:
    connection: Connection
    snapshot: str
    _session: Session

    @property
    def where(self) -> str:
        return f"Publisher {self.connection.database}"

    def describe(self, articles: Sequence[RegisteredArticle]) -> dict[TableName, TableDescription]:
        with translated_errors(self.where):
            return describe_tables(self._session, [it.source for it in articles])

    def native_hashes(self) -> tuple[object, ...]:
        """Return what the server's hash functions make of sample values."""
        return native_hashes(self._session)

    def forms(self, article: RegisteredArticle, wanted: Sequence[ColumnForm]) -> Sequence[ColumnForm]:  # noqa: ARG002
        return wanted

    def table_bytes(self, articles: Sequence[RegisteredArticle]) -> int:
        """Return the size of all these articles' tables, in bytes."""
        with translated_errors(self.where):
            tables = [it for article in articles for it in tables_with_rows(self._session, article)]
            names = [qualified(it).as_string(self._session) for it in tables]
            row = self._session.execute(_TOTAL, [names]).fetchone()
        return int(row[0]) if row else 0

    def end(
        self, article: RegisteredArticle, forms: Sequence[ColumnForm], checksum_by: Checksum, part_bytes: int
    ) -> ComparedEnd:
        """Return the article's end, its columns in these forms, read in parts of about that many bytes."""
        columns = tuple(publisher_column(it, form) for it, form in zip(article.columns, forms, strict=True))
        table, condition = whole_table(article)
        if article.filter is not None:
            chosen = condition_sql(article.filter)
            condition = chosen if condition is None else sql.SQL("{} AND ({})").format(condition, chosen)
        side = PostgresSide(table, columns, article.key_positions, checksum_by, condition)
        place = SnapshotPlace(self.connection, self.snapshot, f"{self.where}, article {article.source}")
        return compared_end(self._session, article.source, side, place, part_bytes)


@contextmanager
def publisher_comparison(
    connection: Connection, snapshot: str, articles: Sequence[RegisteredArticle]
) -> Iterator[PostgresComparison]:
    """Open the Publisher's exported snapshot; until the end, nobody empties or rewrites the articles' tables."""
    with (
        connect(connection, "tranrepl validation", autocommit=True) as session,
        snapshot_session(connection, snapshot, "tranrepl validation") as holding,
    ):
        hold_tables(holding, articles)
        yield PostgresComparison(connection, snapshot, session)


_TOTAL = "SELECT coalesce(sum(pg_catalog.pg_relation_size(t::regclass)), 0)::bigint FROM unnest(%s::text[]) t"
