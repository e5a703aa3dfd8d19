"""pymssql as SQLAlchemy reaches it: names that hold percent signs, what its exceptions say, and what a session sets.

pymssql puts values into a statement by itself, and takes `%(x)s` for a parameter wherever it stands, in a quoted name
too; there is no way to tell it otherwise. So a statement with such a name is complete before the driver sees it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mssql.base import MSIdentifierPreparer
from sqlalchemy.dialects.mssql.pymssql import MSDialect_pymssql
from sqlalchemy.exc import DBAPIError

KIND = "mssql+tranrepl"
"""SQLAlchemy's name of the dialect."""
_ESCAPED = "%%"

registry.register("mssql.tranrepl", __name__, "PymssqlDialect")


class PercentPreparer(MSIdentifierPreparer):
    """Doubles percent signs of names, where the dialect doubles those of texts."""

    def _escape_identifier(self, value: str) -> str:
        escaped: str = super()._escape_identifier(value)  # type: ignore[no-untyped-call]
        return escaped.replace("%", _ESCAPED) if self._double_percents else escaped


class PymssqlDialect(MSDialect_pymssql):
    """Doubles percent signs of names and texts, as the DB API's `pyformat` has it, and makes them single again."""

    preparer: Any = PercentPreparer
    supports_statement_cache = True

    def __init__(self, **options: Any) -> None:
        # Nobody asks for comments on tables, and to learn whether the server has them costs a question a connection.
        super().__init__(supports_comments=False, **options)  # type: ignore[no-untyped-call]

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Roll back what is open, and nothing where an error has ended the transaction: the driver knows such an error
        by SQL Server's words for it, and by no other server's."""
        with dbapi_connection.cursor() as cursor:
            cursor.execute("if @@trancount = 0 begin transaction")
        super().do_rollback(dbapi_connection)  # type: ignore[no-untyped-call]

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        if _ESCAPED in statement:
            cursor.execute(complete(statement, parameters))
        else:
            super().do_execute(cursor, statement, parameters, context)  # type: ignore[no-untyped-call]

    def do_executemany(self, cursor: Any, statement: str, parameters: Sequence[Any], context: Any = None) -> None:
        if _ESCAPED not in statement:
            super().do_executemany(cursor, statement, parameters, context)  # type: ignore[no-untyped-call]
            return
        for each in parameters:
            cursor.execute(complete(statement, each))


def complete(statement: str, parameters: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return the statement with its values in it, written as the driver writes them."""
    if isinstance(parameters, Mapping):
        return statement % {name: literal(value) for name, value in parameters.items()}
    return statement % tuple(map(literal, parameters))


def literal(value: Any) -> str:
    """Return a value as the constant that the driver writes of it."""
    from pymssql._mssql import quote_simple_value

    written: bytes = quote_simple_value(value)
    return written.decode()


ENDED_TRANSACTION = frozenset({"266", "628", "3609", "3902", "3903", "3930", "3931", "3998", "6401"})
"""Errors of a session whose procedure or trigger has ended the transaction, or made it unfit to be committed."""
COUNT_CHANGED = "266"
"""The number of the error that a procedure has changed @@TRANCOUNT."""

_OF_COMMIT = re.compile(r"Cannot (?:begin|commit|start) transaction: \((\d+),")
_LIBRARY = "DB-Lib error message"
_NEWS = ("Changed database context to", "Changed language setting to")
"""Messages of every login: the driver repeats them for a connection that did not come about."""


def number_of(error: DBAPIError) -> int | None:
    """Return the number that pymssql raises as `(number, text)`, as a tuple of these within its arguments, or, of a
    COMMIT, as the text of such a tuple."""
    found: object = error.orig.args[0] if error.orig is not None and error.orig.args else None
    if isinstance(found, tuple) and found:
        found = found[0]
    if isinstance(found, str) and (of_commit := _OF_COMMIT.match(found)):
        return int(of_commit[1])
    return found if isinstance(found, int) else None


def text_of(error: BaseException) -> str:
    """Return what the server said, in one line; where it said nothing, what DB-Library did."""
    *_, text = error.args or ("",)
    if isinstance(text, tuple) and text:
        text = text[-1]
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    server, _, library = str(text).partition(_LIBRARY)
    lines = [it for it in server.strip().splitlines() if not it.startswith(_NEWS)] or library.strip().splitlines()[1:]
    return lines[0] if lines else type(error).__name__


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
