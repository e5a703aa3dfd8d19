"""Sessions of SQL Server: what they set, whatever the server's and the login's defaults (`user options`) are."""

from __future__ import annotations

from typing import Any

_SETTINGS = (
    # Rows are counted: a command that meets none is error 20598.
    "set nocount off "
    # A failing command ends no transaction that it need not end: savepoints of it are left.
    "set xact_abort off set implicit_transactions off "
    # Statements see and change all rows, and wait for those that others have changed.
    "set rowcount 0 set lock_timeout -1 set transaction isolation level read committed "
    # Values are as they are written.
    "set dateformat ymd set numeric_roundabort off"
)


def set_session(driver: Any) -> None:
    """Give a driver's new session our settings. Those of ANSI are the driver's own."""
    with driver.cursor() as cursor:
        cursor.execute(_SETTINGS)
