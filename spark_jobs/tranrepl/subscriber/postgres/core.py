"""SQLAlchemy Core over a session of psycopg: it composes statements and reads rows, and all else stays psycopg's.

Settings, transactions and errors are the session's own. SQLAlchemy asks the server nothing: it learns what it knows of
one by `initialize`, which an engine calls that `create_engine` makes.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.pool import StaticPool

from tranrepl.subscriber.postgres.procedures import SCHEMA

if TYPE_CHECKING:
    from tranrepl.postgres.session import Session

_URL = sa.URL.create("postgresql+psycopg")


class _NeverRaisedError(Exception):
    """The driver's error, for SQLAlchemy: it wraps no other one."""


class _Dialect(PGDialect_psycopg):
    supports_statement_cache = True

    # The caller, who opened the session, begins and ends transactions, and closes it.

    def do_begin(self, dbapi_connection: object) -> None: ...

    def do_commit(self, dbapi_connection: object) -> None: ...

    def do_rollback(self, dbapi_connection: object) -> None: ...

    def do_close(self, dbapi_connection: object) -> None: ...


@cache
def _dialect() -> tuple[_Dialect, dict[Any, Any]]:
    """Return the dialect, and the statements that it has compiled: they are the same for every session."""
    made: _Dialect = cast("Any", _Dialect)(dbapi=SimpleNamespace(**{**vars(psycopg), "Error": _NeverRaisedError}))
    return made, {}


def core(session: Session) -> sa.Connection:
    """Return a connection over the session, in whatever transaction that is; tables without a schema are the model's.

    Errors are psycopg's.
    """
    dialect, compiled = _dialect()
    pool = StaticPool(lambda: cast("Any", session), dialect=dialect, reset_on_return=None)
    options = {"schema_translate_map": {None: SCHEMA}, "compiled_cache": compiled}
    return sa.Engine(pool, dialect, _URL).connect().execution_options(**options)


def driver(connection: sa.Connection) -> Session:
    """Return the session under a connection that `core` made."""
    return cast("Session", connection.connection.driver_connection)
