"""What the sessions of a SQL Server Subscriber set, whatever a server or a login has as its defaults."""

from __future__ import annotations

from contextlib import closing

import pymssql

from support.subscribers import mssql_execute
from tranrepl.connections import Connection
from tranrepl.subscriber.mssql.driver import set_session

_ADVERSE = (
    "set nocount on",
    "set xact_abort on",
    "set implicit_transactions on",
    "set rowcount 1",
    "set lock_timeout 5",
    "set transaction isolation level serializable",
)
_IMPLICIT_TRANSACTIONS, _NOCOUNT, _XACT_ABORT = 2, 512, 16384
"""Bits of `@@options`."""


def test_sessions_do_not_keep_what_a_server_has_as_defaults(mssql_database: Connection) -> None:
    mssql_execute(mssql_database, "create table t (id int)", "insert into t values (1), (2)")
    with closing(
        pymssql.connect(
            server=mssql_database.host or "",
            port=str(mssql_database.port or 1433),
            user=mssql_database.login,
            password=mssql_database.password,
            database=mssql_database.database or "",
            conn_properties="; ".join(_ADVERSE),
        )
    ) as session:
        cursor = session.cursor()
        cursor.execute("select @@options & %d", (_NOCOUNT | _XACT_ABORT,))
        assert cursor.fetchall() == [(_NOCOUNT | _XACT_ABORT,)]
        set_session(session)
        cursor.execute("select @@options & %d, @@lock_timeout", (_IMPLICIT_TRANSACTIONS | _NOCOUNT | _XACT_ABORT,))
        assert cursor.fetchall() == [(0, -1)]
        cursor.execute("select id from t order by id")
        assert cursor.fetchall() == [(1,), (2,)]
        cursor.execute("update t set id = id + 10")
        assert cursor.rowcount == 2
