"""The connection to the distribution database: transactions with our errors, and its schema."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache, partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal, Self, cast

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, DisconnectionError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from tranrepl.connections import Connection
from tranrepl.distributor.schema import find_schema, named, schema_of
from tranrepl.distributor.tables import metadata, msrepl_distributor
from tranrepl.distributor.version import REVISION, DatabaseVersion, find_version, this_version, write_version
from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, ErrorKind, ReplicationError, TransientError
from tranrepl.model.clock_difference import ClockDifference, measure
from tranrepl.postgres.session import Session, connect, translated_errors
from tranrepl.remedies import RUN_SETUP

_MIGRATIONS = Path(__file__).parents[1] / "migrations"
_URL = sa.URL.create("postgresql+psycopg")
_NOT_MIGRATED_STATES = ("42P01", "42703")
_SESSION_SETTINGS = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', false) "
    "WHERE pg_catalog.current_setting('synchronous_commit') = 'off'; "
    "SET jit = off"
)
"""What is registered must be there after a crash: the Publisher's log goes on after it. Compiling a query over many
history rows takes as long as the query."""


_RETURNED = "returned"
_ASKED_AFTER_SECONDS = 5.0


def _engine(connection: Connection) -> sa.Engine:
    """Return an engine with sessions of its own, and with what all engines of this process share: the dialect, and the
    statements that it has compiled, which are the same for every distribution database."""
    dialect, compiled = _dialect()
    # One session serves a job, which has a dozen short transactions; what threads need beside it is not kept.
    opened = cast("Callable[[], Any]", partial(_open_session, connection))
    pool = QueuePool(opened, pool_size=1, max_overflow=-1, dialect=dialect)
    sa.event.listen(pool, "checkin", _note_return)
    sa.event.listen(pool, "checkout", _require_alive)
    return sa.Engine(pool, dialect, _URL, hide_parameters=True, execution_options={"compiled_cache": compiled})


@cache
def _dialect() -> tuple[sa.Dialect, dict[Any, Any]]:
    """Return the dialect, which asks no server anything, and the statements that it has compiled."""
    return sa.create_engine(_URL, use_native_hstore=False).dialect, {}


def _note_return(_: object, entry: ConnectionPoolEntry) -> None:
    entry.info[_RETURNED] = time.monotonic()


def _require_alive(session: Session, entry: ConnectionPoolEntry, _: object) -> None:
    """Raise DisconnectionError, for which the pool opens another session, where the server has ended this one.

    A server that ends a session says so in its socket. Only one that was idle for long may be lost without a word.
    """
    if session.closed or _has_said_something(session):
        raise DisconnectionError
    now = time.monotonic()
    if now - entry.info.get(_RETURNED, now) > _ASKED_AFTER_SECONDS:
        try:
            session.execute("")
            session.rollback()
        except psycopg.OperationalError as error:
            raise DisconnectionError from error


def _has_said_something(session: Session) -> bool:
    return bool(wait([session.pgconn.socket], 0.0))


def _open_session(connection: Connection) -> Session:
    session = connect(connection, "tranrepl", autocommit=True)
    try:
        with translated_errors(f"distribution database {connection.database}"):
            session.execute(_SESSION_SETTINGS)
    except ReplicationError:
        session.close()
        raise
    return session


class DatabaseConnection:
    """Sessions to the database: opened when they are first needed, closed by `close` or at the end of `with`. Its
    tables' schema is found by the first one."""

    def __init__(self, connection: Connection) -> None:
        self.where = f"distribution database {connection.database}"
        self.name = connection.database or ""
        self._connection = connection
        self._engine = _engine(connection)
        self._schema: str | None = None
        self._was_current = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Begin a transaction of its own, committed at the end. Its errors are of `tranrepl.errors`."""
        with self._lent(autocommit=False) as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Have each query see what is committed when it begins, as in a transaction of READ COMMITTED, without the two
        round trips of one. Its errors are of `tranrepl.errors`."""
        with self._lent(autocommit=True) as connection:
            yield connection

    @contextmanager
    def _lent(self, *, autocommit: bool) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                _driver(connection).autocommit = autocommit
                if self._schema is None:
                    self._schema = find_schema(_driver(connection))
                yield named(connection, self._schema)
        except DBAPIError as error:
            raise self._translate(error) from error

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Lend the session itself, in a transaction."""
        with self.transaction() as connection:
            yield _driver(connection)

    def schema(self) -> str:
        """Return the schema with the tables, or for them. Raises ConfigurationError where there is none."""
        with self.transaction() as connection:
            return schema_of(connection)

    def _translate(self, error: DBAPIError) -> ReplicationError:
        state = getattr(error.orig, "sqlstate", None)
        text = " ".join(str(error.orig).split())
        if state in _NOT_MIGRATED_STATES:
            return ConfigurationError(f"{self.where} is not set up for this version", remedy=RUN_SETUP)
        if state is None and isinstance(error, OperationalError):
            return TransientError(
                f"connection {self._connection}: {text}", remedy="check host and port, and that the server runs"
            )
        if isinstance(error, OperationalError) or Codes.POSTGRES.value.kind(state) is ErrorKind.TRANSIENT:
            return TransientError(f"{self.where}: {text}", **Codes.POSTGRES.value.numbered(state))
        return ConfigurationError(f"{self.where}: {text}", **Codes.POSTGRES.value.numbered(state))

    def migrate(self) -> DatabaseVersion | None:
        """Make the tables, or bring those that are there to this version; return which one had made them, None where
        there were none. Idempotent. Raises ConfigurationError where a newer one made them."""
        with self.transaction() as connection:
            found = find_version(connection)
            if found is not None:
                found.require_not_newer(self.where)
            if found is None:
                _make_tables(connection)
            elif found.revision != REVISION:
                _alembic("upgrade", connection)
            if found != this_version():
                write_version(connection)
        return found

    def is_current(self) -> bool:
        """Return whether it has our schema, of this version. Raises ConfigurationError where a newer one made it.

        A schema that was current is not looked up again: what reads its tables requires it in the same transaction.
        """
        if not self._was_current:
            found = self.version()
            self._was_current = found is not None and found.revision == REVISION
        return self._was_current

    def is_earlier(self) -> bool:
        """Return whether it has our schema, of an earlier version. Raises as `is_current` does."""
        found = None if self._was_current else self.version()
        return found is not None and found.revision < REVISION

    def version(self) -> DatabaseVersion | None:
        """Return which version made the tables; None where there are none. Raises ConfigurationError where a newer one
        made them."""
        with self.reading() as connection:
            found = find_version(connection)
        if found is not None:
            found.require_not_newer(self.where)
        return found

    def distribution_id(self) -> str:
        """Return the identity of this distribution database; a copy or a backup of it has the same."""
        with self.reading() as connection:
            return str(connection.scalar(sa.select(msrepl_distributor.c.distribution_id)))

    def clock_difference(self) -> ClockDifference:
        """Measure how far the database's clock is ahead of this machine's."""
        with self.reading() as connection:
            return measure(lambda: cast("datetime", connection.scalar(sa.select(sa.func.clock_timestamp()))))

    def ping(self) -> None:
        """Ask for an answer. Raises ConfigurationError or TransientError where the database cannot be used."""
        with self.reading() as connection:
            connection.scalar(sa.select(1))


def _driver(connection: sa.Connection) -> Session:
    return cast("Session", connection.connection.driver_connection)


def _make_tables(connection: sa.Connection) -> None:
    """Make all tables as they are declared. A table of such a name that is there is somebody's, and an error."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(msrepl_distributor.insert())
    _alembic("stamp", connection)


def _alembic(name: Literal["stamp", "upgrade"], connection: sa.Connection) -> None:
    """Execute a command of Alembic's up to the last revision."""
    # Nothing for jobs, which start often, nor for a setup that finds what it would make.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    getattr(command, name)(config, "head")


_FREE_TEXT = frozenset({"comments", "error_text", "remedy", "command", "row_key"})
_TAKE_ALL = ("UTF8", "SQL_ASCII")


def writable(connection: sa.Connection, values: Mapping[str, object]) -> dict[str, object]:
    """Return a row's values by column. In free text, characters that not every encoding has become escapes
    (`\\u20ac`), unless the database takes all: an error must not be lost for what it quotes."""
    driver = connection.connection.driver_connection
    if driver is None or driver.info.parameter_status("server_encoding") in _TAKE_ALL:
        return dict(values)
    return {name: _escaped(value) if name in _FREE_TEXT else value for name, value in values.items()}


def _escaped(value: object) -> object:
    return value.encode("ascii", "backslashreplace").decode() if isinstance(value, str) else value
