"""PostgreSQL sessions: connecting, the settings that make values travel exactly, errors by class."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any, Self, cast

import psycopg
from psycopg import sql

from tranrepl.connections import Connection, require_postgres
from tranrepl.error_numbers import Codes
from tranrepl.errors import CLASS_OF_KIND, ConfigurationError, ErrorKind, ReplicationError, TransientError
from tranrepl.postgres.composed_sql import Written

Session = psycopg.Connection[tuple[Any, ...]]

MINIMUM_VERSION = 140000
NEWEST_VERSION = 19
"""A newer one may write its log, or spell its catalogue, otherwise."""

SAFE_PATH = "pg_catalog, pg_temp"
"""The search path of our sessions: a name without a schema is PostgreSQL's own, even if others may create one of that
name. Temporary tables are found last, temporary functions and operators never."""

# Values travel in text form: both ends must write and read the same one.
_TEXT_SETTINGS = {
    # Names in values (regclass and its like) come qualified.
    "search_path": SAFE_PATH,
    "client_encoding": "UTF8",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmloption": "content",
    "lc_monetary": "C",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    # Notices name the command that failed.
    "client_min_messages": "notice",
}
# What a DBA gave our role, or a database, against other sessions' habits. A call that must have a bound has its own.
_WORK_SETTINGS = {
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    # Each is answered with all of its rows, and an error ends what failed only.
    "gin_fuzzy_search_limit": "0",
    "exit_on_error": "off",
}
_WORK_SETTINGS_SINCE_17 = {"transaction_timeout": "0"}
_TRANSACTION_TIMEOUT_VERSION = 170000

_QUESTION = re.compile(r" Is the server running [^?]*\?")
"""What libpq asks beside a refusal: the remedy says it."""

_TRANSIENT_REFUSALS = (
    "starting up",
    "shutting down",
    "in recovery",
    "accepting connections",
    "too many",
    "remaining connection slots",
    # A backend whose server crashes while it lets us in.
    "terminating connection",
    # Of several hosts, the one that would take writes is not there, or not promoted yet.
    "session is read-only",
)


def session_options() -> str:
    """Return our settings as the libpq keyword `options` takes them, for drivers that cannot run SET first."""
    settings = {**_TEXT_SETTINGS, **_WORK_SETTINGS}
    written = {name: value.replace(", ", ",").replace(" ", "\\ ") for name, value in settings.items()}
    return " ".join(f"-c {name}={value}" for name, value in written.items())


SETTINGS_AFTER_OPTIONS = " UNION ALL ".join(
    f"SELECT pg_catalog.set_config('{name}', '{value}', false) "
    f"WHERE pg_catalog.current_setting('{name}', true) IS NOT NULL"
    for name, value in _WORK_SETTINGS_SINCE_17.items()
)
"""What `session_options` leaves to a query, as not every server knows it."""


def set_session(session: Session) -> int:
    """Give a session in autocommit mode our settings, whatever its role's are, in one round trip. Returns the number of
    the server's process.

    By SET: a query would take a snapshot first, for which a deferrable transaction waits. So that transaction is made
    another one before the query at its end.
    """
    cursor = session.execute(_set_statements(since_17=session.info.server_version >= _TRANSACTION_TIMEOUT_VERSION))
    while cursor.nextset():
        pass
    ((process,),) = cursor.fetchall()
    return int(process)


_OWN = "tranrepl.own_session"


def _require_own_session(session: Session, connection: Connection, parameters: Mapping[str, Any]) -> None:
    """Raise ConfigurationError where what is between us and the server, which names another process, gives the server's
    session to others between two transactions: settings, prepared statements and locks would be theirs."""
    mark = secrets.token_hex(8)
    session.execute("SELECT pg_catalog.set_config(%s, %s, false)", [_OWN, mark])
    # A pooler gives what was used last.
    with psycopg.connect(**parameters, autocommit=True) as another:
        found = another.execute("SELECT pg_catalog.current_setting(%s, true)", [_OWN]).fetchone()
    if found == (mark,):
        raise ConfigurationError(
            f"connection {connection}: a pooler gives the server's sessions to others between two transactions",
            remedy="connect to the server itself; or, in PgBouncer, pool_mode = session for this user",
        )


@cache
def _set_statements(*, since_17: bool) -> bytes:
    """Return the settings as statements, which are the same for every session with such a server."""
    settings = {**_TEXT_SETTINGS, **_WORK_SETTINGS, **(_WORK_SETTINGS_SINCE_17 if since_17 else {})}
    statements = sql.SQL("; ").join(
        sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.SQL(", ").join(map(sql.Literal, value.split(", "))))
        for name, value in settings.items()
    )
    statement = f"SET transaction_deferrable = off; {statements.as_string(None)}; SELECT pg_catalog.pg_backend_pid()"
    return statement.encode()


_LEAVE_SAFE_PATH = "SET LOCAL search_path TO DEFAULT"
_BACK_TO_SAFE_PATH = f"SET LOCAL search_path = {SAFE_PATH}"


@contextmanager
def own_path(session: Session) -> Iterator[None]:
    """Let the session's transaction have its role's own search path for a while, as users' code may expect it.

    After an error, the rollback ends it. PostgreSQL keeps the role's own path as the default that RESET gives back.
    """
    session.execute(_LEAVE_SAFE_PATH)
    yield
    session.execute(_BACK_TO_SAFE_PATH)


def schemas_of_own_path(session: Session) -> tuple[str, ...]:
    """Return the schemas that exist of the role's own search path, in its order, without PostgreSQL's own.

    Raises psycopg.Error.
    """
    # In one round trip, in the transaction that is there or is made for it.
    cursor = session.execute(f"{_LEAVE_SAFE_PATH}; SELECT pg_catalog.current_schemas(false); {_BACK_TO_SAFE_PATH}")
    cursor.nextset()
    row = cursor.fetchone()
    return tuple(name for name in row[0] if not name.startswith("pg_")) if row else ()


class NamesApartCursor(psycopg.Cursor[Any]):
    """Looks for the places of values in no name and no constant: only what is SQL of ours has any."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        return super().execute(_apart(query, self.connection) if params is not None else query, params, **options)

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        super().executemany(_apart(query, self.connection), params_seq, **options)


def _apart(query: Any, session: Session) -> Any:
    """Return the query with single per cent signs where SQL of ours has them, and doubled ones in all else."""
    match query:
        case sql.Composed():
            return sql.Composed([_apart(it, session) for it in query])
        case sql.Identifier() | sql.Literal() | Written():
            return sql.SQL(query.as_string(session).replace("%", "%%"))
        case _:
            return query


def connect(connection: Connection, application_name: str, *, autocommit: bool = False) -> Session:
    """Open a session in which values have their canonical text form, and whose search path is the safe one.

    Raises ConfigurationError where the server refuses us, TransientError where it cannot be reached.
    """
    require_postgres(connection)
    parameters: Any = connection.libpq_parameters(application_name)
    try:
        session = psycopg.connect(**parameters, autocommit=True)
    except psycopg.OperationalError as error:
        raise _refused(connection, error) from None
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(f"connection {connection}: {_first_line(error)}") from None
    if session.info.server_version < MINIMUM_VERSION:
        version = session.info.server_version // 10000
        session.close()
        raise ConfigurationError(
            f"connection {connection}: PostgreSQL {version}", remedy="allowed: PostgreSQL 14 or newer"
        )
    try:
        with translated_errors(f"connection {connection}"):
            if set_session(session) != session.info.backend_pid:
                _require_own_session(session, connection, parameters)
    except ReplicationError:
        session.close()
        raise
    session.autocommit = autocommit
    session.cursor_factory = NamesApartCursor
    return session


def version_problems(session: Session, where: str) -> Iterator[ConfigurationError]:
    """Yield a problem where nobody has run a server of this version with ours."""
    version = session.info.server_version // 10000
    if version > NEWEST_VERSION:
        yield ConfigurationError(
            f"{where}: PostgreSQL {version}, which nobody has run yet",
            remedy=f"allowed: PostgreSQL 14 to {NEWEST_VERSION}, or a newer tranrepl",
        )


def _refused(connection: Connection, error: psycopg.OperationalError) -> ReplicationError:
    text = _QUESTION.sub("", " ".join(str(error).split()))
    if refused_for_good(text):
        return ConfigurationError(
            f"connection {connection}: {text}", remedy="check login, password and database of this connection"
        )
    return TransientError(f"connection {connection}: {text}", remedy="check host and port, and that the server runs")


def refused_for_good(text: str) -> bool:
    """Return whether a server's answer to an attempt to connect says that another one would end the same."""
    return "FATAL:" in text and not any(reason in text for reason in _TRANSIENT_REFUSALS)


def answer_soon(session: Session) -> None:
    """Let the transaction's statements end after three seconds, one of them for a lock: somebody looks at a page, and
    a caller that leaves it leaves no statement behind."""
    session.execute(
        "SELECT pg_catalog.set_config('statement_timeout', '3s', true), "
        "pg_catalog.set_config('lock_timeout', '1s', true)"
    )


def read_clock(session: Session) -> datetime:
    """Return the server's time. Raises psycopg.Error."""
    (now,) = session.execute("SELECT pg_catalog.clock_timestamp()").fetchall()[0]
    return cast("datetime", now)


@contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Turn a driver's error into one of ours. `where` names the place, as in "Subscriber reporting"."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(where, error) from error
    except Exception as error:
        # SQLAlchemy, which not every process loads, wraps what a lost connection says before a statement is executed.
        wrapped = getattr(error, "orig", None)
        if not isinstance(wrapped, psycopg.Error):
            raise
        raise translate(where, wrapped) from error


def translate(where: str, error: psycopg.Error) -> ReplicationError:
    """Return the error as its class, by its SQLSTATE; a lost connection has none and is transient."""
    state = error.sqlstate
    message = f"{where}: {_first_line(error)}"
    detail = error.diag.message_detail
    if detail:
        message = f"{message} ({detail})"
    if state == "2D000":
        return ConfigurationError(
            f"{message}: a procedure ended the transaction by itself",
            **Codes.POSTGRES.value.numbered(state),
            remedy="a procedure that applies commands holds no COMMIT and no ROLLBACK: the commands of a commit batch "
            "and the watermark are committed together",
        )
    kind = Codes.POSTGRES.value.kind(state)
    remedy = error.diag.message_hint if kind is ErrorKind.CONFIGURATION else None
    return CLASS_OF_KIND[kind](message, **Codes.POSTGRES.value.numbered(state), remedy=remedy)


def _first_line(error: psycopg.Error) -> str:
    return error.diag.message_primary or (str(error).strip().splitlines() or [type(error).__name__])[0]
