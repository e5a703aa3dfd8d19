"""Rows of the model's tables, locked until the transaction ends, by application locks.

A lock hint such as UPDLOCK would do on SQL Server, but not on every server that speaks its protocol; an application
lock does on all of them, and keeps no reader of the row waiting. A session that writes one of these rows takes its lock
first.
Source: "sp_getapplock (Transact-SQL)".
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import sqlalchemy as sa

from tranrepl.error_numbers import DEADLOCK, LOCK_TIMEOUT, Codes
from tranrepl.errors import TransientError
from tranrepl.subscriber.base.database import RowLock

_MODES = {RowLock.EXCLUSIVE: "Exclusive", RowLock.SHARED: "Shared"}
_DEADLOCK_VICTIM = -3


def locked_rows(
    session: sa.Connection, table: sa.Table, query: sa.Select[*tuple[Any, ...]], lock: RowLock
) -> Sequence[sa.Row[*tuple[Any, ...]]]:
    """Lock the rows that the query finds, and return them as they are then. Raises TransientError where another
    session holds one of them for longer than this one waits (`lock_timeout`)."""
    keys = session.execute(query.with_only_columns(*table.primary_key.columns)).all()
    for resource in sorted(_resource(table, key) for key in keys):
        _take(session, table.name, resource, lock)
    return session.execute(query).all()


def _resource(table: sa.Table, key: Sequence[object]) -> str:
    """Return the name of a row's lock: a lock's name has at most 255 characters, and a key may have more."""
    return f"{table.name} {sha256(repr(tuple(key)).encode()).hexdigest()}"


def _take(session: sa.Connection, table: str, resource: str, lock: RowLock) -> None:
    result: int = session.execute(_GET_LOCK, {"resource": resource, "mode": _MODES[lock]}).scalar_one()
    if result >= 0:
        return
    number = DEADLOCK if result == _DEADLOCK_VICTIM else LOCK_TIMEOUT
    raise TransientError(
        f"another session holds a row of {table} (sp_getapplock: {result})",
        **Codes.SQL_SERVER.value.numbered(str(number)),
    )


_GET_LOCK = sa.text(
    "declare @result int, @timeout int, @resource nvarchar(255)\n"
    "set @timeout = @@lock_timeout\n"
    "set @resource = :resource + N' ' + db_name()\n"
    "exec @result = sp_getapplock @Resource = @resource, @LockMode = :mode, @LockOwner = N'Transaction', "
    "@LockTimeout = @timeout\n"
    "select @result"
)
"""In SQL Server each database has locks of its own. Other servers share them, so that its name is part of a lock's."""
