"""Exported snapshots, and the sessions that see one which another session has exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.error_numbers import Codes
from tranrepl.errors import InternalError, ReplicationError, TransientError
from tranrepl.postgres.giving_way import reader_name
from tranrepl.postgres.session import Session, connect, translate, translated_errors

_GONE = ("22023", "42704", "55000")
"""SQLSTATEs of a snapshot that does not live any more."""
_LOCK_TIMEOUT = "60s"


def export_snapshot(session: Session, application_name: str) -> str:
    """Export what the session's transaction sees; return its name. The session is one of its readers from here on."""
    row = session.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
    if row is None:
        raise InternalError("a snapshot was not exported")
    name = str(row[0])
    session.execute("SELECT set_config('application_name', %s, false)", [reader_name(application_name, name)])
    return name


@contextmanager
def snapshot_session(
    connection: Connection, snapshot_name: str, application_name: str, where: str | None = None
) -> Iterator[Session]:
    """Open a session whose one read-only transaction sees the exported snapshot, and writes values as the log does.

    `where` names the end in messages; None: it is the Publisher. Raises TransientError where the snapshot does not live
    any more, and at the end where the session has not lived so long, with the locks that it held. A table whose row
    security would hide rows from this login is refused when it is read.
    """
    where = where or f"Publisher {connection.database}"
    with connect(connection, reader_name(application_name, snapshot_name), autocommit=True) as session:
        with translated_errors(where):
            session.execute(
                "SELECT set_config('row_security', 'off', false), set_config('lock_timeout', %s, false)",
                [_LOCK_TIMEOUT],
            )
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            session.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot_name)))
        except psycopg.Error as error:
            raise _not_imported(where, snapshot_name, error) from error
        yield session
        with translated_errors(where):
            session.execute("COMMIT")


def _not_imported(where: str, snapshot_name: str, error: psycopg.Error) -> ReplicationError:
    if error.sqlstate not in _GONE:
        return translate(where, error)
    return TransientError(
        f"{where}: the exported snapshot {snapshot_name} is gone: the job that held it has ended",
        **Codes.POSTGRES.value.numbered(error.sqlstate),
    )
