"""Sessions that see a snapshot which another session has exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.error_numbers import Codes
from tranrepl.errors import ReplicationError, TransientError
from tranrepl.postgres.session import Session, connect, translate, translated_errors

_GONE = ("22023", "42704", "55000")
"""SQLSTATEs of a snapshot that does not live any more."""


@contextmanager
def snapshot_session(
    connection: Connection, snapshot_name: str, application_name: str, where: str | None = None
) -> Iterator[Session]:
    """Open a session whose one read-only transaction sees the exported snapshot, and writes values as the log does.

    `where` names the end in messages; None: it is the Publisher. Raises TransientError where the snapshot does not live
    any more. A table whose row security would hide rows from this login is refused when it is read.
    """
    where = where or f"Publisher {connection.database}"
    with connect(connection, application_name, autocommit=True) as session:
        with translated_errors(where):
            session.execute("SELECT set_config('row_security', 'off', false)")
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            session.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot_name)))
        except psycopg.Error as error:
            raise _not_imported(where, snapshot_name, error) from error
        yield session


def _not_imported(where: str, snapshot_name: str, error: psycopg.Error) -> ReplicationError:
    if error.sqlstate not in _GONE:
        return translate(where, error)
    return TransientError(
        f"{where}: the exported snapshot {snapshot_name} is gone: the job that held it has ended",
        **Codes.POSTGRES.value.numbered(error.sqlstate),
    )
