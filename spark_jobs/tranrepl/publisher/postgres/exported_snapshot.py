"""A PostgreSQL Publisher as it stood at one point of its log, and reading articles' rows in it from many sessions.

A logical replication slot, when it is created, exports the snapshot of its consistent point: it shows every transaction
whose commit record begins before that LSN, and none other (`SnapBuildXactNeedsSkip` is the other side of it).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, InternalError, ReplicationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import XACT_SEQNO_BYTES
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.imported_snapshot import snapshot_session
from tranrepl.postgres.session import Session, connect, translate, translated_errors
from tranrepl.publisher.postgres.free_slots import ALL_IN_USE, MORE_SLOTS
from tranrepl.publisher.postgres.lsn import lsn_number
from tranrepl.publisher.postgres.publisher import PLUGIN
from tranrepl.publisher.postgres.replication_session import replication_session
from tranrepl.publisher.postgres.standby_slots import wait_for_standbys

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_COMMIT_SECONDS = 60.0
_TABLE_LOCK_TIMEOUT = "60s"


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A snapshot that other sessions of the same database can import."""

    name: str
    """For SET TRANSACTION SNAPSHOT."""
    consistent_point: int
    """LSN."""

    @property
    def xact_seqno(self) -> bytes:
        """The watermark of whoever has all that the snapshot shows: every transaction up to it, and none after it."""
        return (self.consistent_point - 1).to_bytes(XACT_SEQNO_BYTES, "big")


@contextmanager
def exported_snapshot(
    connection: Connection, timeout_seconds: float, say: Callable[[str], None] = log.warning
) -> Iterator[ExportedSnapshot]:
    """Export a snapshot, which lives until the end of this context.

    PostgreSQL waits for all transactions that write when it begins, prepared ones too. Whom it waits for is told to
    `say`; after `timeout_seconds` of it, raises TransientError. Raises ConfigurationError where the server refuses.
    """
    where = f"Publisher {connection.database}"
    with ExitStack() as held:
        with (
            connect(connection, "tranrepl snapshot", autocommit=True) as observer,
            replication_session(connection, "tranrepl snapshot") as session,
            ThreadPoolExecutor(1, "tranrepl-slot") as executor,
        ):
            creation = executor.submit(_create_slot, session, where)
            try:
                _wait_for(creation, observer, session.info.backend_pid, timeout_seconds, say)
            except BaseException:
                session.cancel_safe()
                raise
            snapshot = creation.result()
            _wait_for_commits(connection, observer, snapshot)
            wait_for_standbys(observer, snapshot.consistent_point, timeout_seconds, say)
            holder = held.enter_context(snapshot_session(connection, snapshot.name, "tranrepl snapshot"))
            snapshot = _exported_again(holder, where, snapshot)
        # The slot is given back: others need one, and it would keep the Publisher's log meanwhile.
        yield snapshot


def _exported_again(holder: Session, where: str, snapshot: ExportedSnapshot) -> ExportedSnapshot:
    with translated_errors(where):
        row = holder.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
    if row is None:
        raise InternalError(f"{where}: a snapshot was not exported")
    return replace(snapshot, name=str(row[0]))


def _create_slot(session: psycopg.Connection[tuple[Any, ...]], where: str) -> ExportedSnapshot:
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
    return ExportedSnapshot(str(row[2]), lsn_number(str(row[1])))


def _not_created(where: str, error: psycopg.Error) -> ReplicationError:
    problem = translate(where, error)
    if problem.report.code == ALL_IN_USE:
        problem.add(remedy=f"wait for other jobs; or {MORE_SLOTS}")
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
    told, blocker = "", None
    while True:
        try:
            creation.result(timeout=min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
            return
        except NotYet:
            blocker = _blocker(observer, slot_pid) or blocker
        # Its age grows: it is told once.
        if blocker is not None and blocker.who != told:
            told = blocker.who
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
    """The transaction that the creation of a slot waits for."""
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
    """A commit record can be decoded a moment before the server knows it as committed; a reader would see the
    transaction as rolled back then."""
    where = f"Publisher {connection.database}"
    deadline = time.monotonic() + _COMMIT_SECONDS
    with snapshot_session(connection, snapshot.name, "tranrepl snapshot") as reader, translated_errors(where):
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


def hold_tables(session: Session, articles: Iterable[RegisteredArticle]) -> None:
    """Inside a snapshot session: keep the articles' tables from being rewritten or truncated until it ends, either of
    which would hide rows from the snapshot.

    Raises TransientError where that has happened already or another session keeps a table locked, ConfigurationError
    where a table is another one than was registered.
    """
    where = f"Publisher {session.info.dbname}"
    with translated_errors(where):
        session.execute("SELECT set_config('lock_timeout', %s, false)", [_TABLE_LOCK_TIMEOUT])
        for article in articles:
            session.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(qualified(article.source)))
            # The function reads the catalogue of now, the query that of the snapshot.
            row = session.execute(
                "SELECT pg_catalog.to_regclass(%s)::oid::bigint = c.oid::bigint, "
                "pg_catalog.pg_relation_filenode(c.oid) = c.relfilenode FROM pg_catalog.pg_class c WHERE c.oid = %s",
                [qualified(article.source).as_string(session), article.source_object_id],
            ).fetchone()
            _refuse_replaced(where, article, row)
        session.execute("SELECT set_config('lock_timeout', '0', false)")


def _refuse_replaced(where: str, article: RegisteredArticle, row: tuple[Any, ...] | None) -> None:
    if row is None or row[0] is not True:
        raise ConfigurationError(
            f"{where}: table {article.source} is another one than was set up",
            remedy="run `tranrepl setup FILE`",
            article=str(article.source),
        )
    if row[1] is not True:
        raise TransientError(
            f"{where}: table {article.source} was truncated or rewritten while its snapshot began",
            article=str(article.source),
        )


def set_search_path(session: Session, article: RegisteredArticle) -> None:
    """Before the article is read: names in its values (regclass and its like) come qualified, as in the log.

    Not so with a row filter, whose own names are found as the log reader finds them, on this login's path.
    """
    with translated_errors(f"Publisher {session.info.dbname}"):
        session.execute("SET search_path = pg_catalog" if article.filter is None else "RESET search_path")


def article_query(article: RegisteredArticle, condition: sql.Composable | None = None) -> sql.Composed:
    """SELECT of the article's published columns and rows, in the order of its columns; `condition` narrows it.

    A row filter may hold per cent signs: it is executed without parameters, or by a RawCursor.
    """
    conditions = [] if condition is None else [condition]
    if article.filter is not None:
        conditions.append(sql.SQL(article.filter))
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in article.columns)
    where = sql.SQL(" AND ").join(sql.SQL("({})").format(it) for it in conditions)
    return sql.SQL("SELECT {} FROM ONLY {} WHERE {}").format(
        columns, qualified(article.source), where if conditions else sql.SQL("true")
    )
