"""Bulk copy over pymssql: FreeTDS's `bcp` within the session's open transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError


def bulk_copy(session: sa.Connection, table: str, columns: Sequence[Sequence[Any]]) -> None:
    """Copy rows, given by their columns, into a table of the session's own, in the order of its columns.

    Raises what the server or FreeTDS says as SQLAlchemy does: pymssql raises it as it is.
    """
    import pymssql
    from pymssql import _mssql

    driver: Any = session.connection.dbapi_connection
    try:
        # All of it is one batch: a batch is a statement. Of a name that begins with # pymssql would ask another
        # database's catalogue; nothing here depends on the answer.
        driver.bulk_copy(f"tempdb..{table}", zip(*columns, strict=True), batch_size=max(1, len(columns[0])))
    except _mssql.MSSQLException as error:
        raised: Any = pymssql.OperationalError(*error.args)
        lost = session.dialect.is_disconnect(raised, driver, None)
        raise OperationalError("bulk copy", None, raised, connection_invalidated=lost) from error


encoded: Any = type("unicode", (bytes,), {"__slots__": (), "__doc__": "A text's bytes, as the column stores them."})
"""Makes bytes what pymssql copies as they are: it goes by the name of a value's class, and FreeTDS encodes nothing. A
`str` it would encode by what the catalogue says of the table's columns, which not every server says of this one."""
