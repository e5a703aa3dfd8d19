"""Sessions of MariaDB and MySQL: what they set, whatever the server's defaults, and how large a statement may be."""

from __future__ import annotations

from typing import Any

import pymysql
from pymysql.cursors import Cursor

from tranrepl.mysql.session import WHOLE_ANSWERS

PACKET_TOO_LARGE = 1153
USUAL_PACKET = 1 << 24
"""Bytes that MariaDB takes by default."""
_LARGEST_PACKET = 1 << 30
_PACKET_HEADER = 8
"""Bytes that travel with a statement, and count."""


def _at_least(variable: str, *numbers: object) -> str:
    # MySQL takes no GREATEST of a signed number and an unsigned one.
    values = ", ".join(map(str, (f"@@{variable}", *numbers)))
    return f"{variable} = CAST(GREATEST({values}) AS UNSIGNED)"


_SETTINGS = (
    # Others wait for rows that were changed, not for gaps between them.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    # Nothing is changed to fit, and a zero is a value like any other.
    f"""SET SESSION sql_mode = 'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,\
ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00', \
sql_quote_show_create = 1, default_storage_engine = 'InnoDB', \
foreign_key_checks = 1, unique_checks = 1, \
{_at_least("max_error_count", 64)}, {_at_least("wait_timeout", 28800)}, {_at_least("lock_wait_timeout", 3600)}, \
{_at_least("innodb_lock_wait_timeout", 50)}, \
/*M!100300 check_constraint_checks = 1, */ {WHOLE_ANSWERS}, \
{_at_least("net_read_timeout", 600)}, {_at_least("net_write_timeout", 600)}""",
)

USUAL_WAITS = f"""SET SESSION {_at_least("lock_wait_timeout", "@@GLOBAL.lock_wait_timeout", 3600)}, \
{_at_least("innodb_lock_wait_timeout", "@@GLOBAL.innodb_lock_wait_timeout", 50)}"""
"""As long as a new session waits for locks, or longer."""


class BoundedCursor(Cursor):
    """Refuses a statement that is larger than the server takes: the server would end the session, and say no more."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        # Of an INSERT that the driver makes of many.
        self.max_stmt_length = min(self.max_stmt_length, connection.max_allowed_packet - _PACKET_HEADER)  # type: ignore[misc]

    def execute(self, query: Any, args: Any = None) -> int:
        statement = self.mogrify(query, args)
        # One of many rows is bytes already; others have bytes as surrogates, in some versions of the driver.
        written = (
            statement.encode(self.connection.encoding, "surrogateescape") if isinstance(statement, str) else statement
        )
        largest = self.connection.max_allowed_packet
        if len(written) + _PACKET_HEADER > largest:
            raise pymysql.err.DataError(
                PACKET_TOO_LARGE, f"a statement of {len(written)} bytes: max_allowed_packet is {largest} at the server"
            )
        return super().execute(statement)


def set_session(driver: Any) -> None:
    """Give a driver's new session our settings, and learn how large a statement may be."""
    with driver.cursor() as cursor:
        for statement in _SETTINGS:
            cursor.execute(statement)
        cursor.execute("SELECT @@max_allowed_packet")
        (driver.max_allowed_packet,) = cursor.fetchone()


def larger_packets() -> str:
    """Return the remedy for statements that are too large."""
    return (
        f"SET GLOBAL max_allowed_packet = {_LARGEST_PACKET} at the Subscriber's server (no more is possible), and the "
        "same in its configuration file; what is larger still can only be left out (articles[].columns)"
    )
