"""pymssql as SQLAlchemy reaches it, where names may hold percent signs.

pymssql puts values into a statement by itself, and takes `%(x)s` for a parameter wherever it stands, in a quoted name
too; there is no way to tell it otherwise. So a statement with such a name is complete before the driver sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mssql.base import MSIdentifierPreparer
from sqlalchemy.dialects.mssql.pymssql import MSDialect_pymssql

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
