"""Sessions at MariaDB and MySQL, without SQLAlchemy: what a Publisher's log and catalogue are read by."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql

from tranrepl.connections import (
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE_SECONDS,
    KEEPALIVE_INTERVAL_SECONDS,
    UNANSWERED_MILLISECONDS,
    Connection,
)
from tranrepl.error_numbers import Codes
from tranrepl.errors import CLASS_OF_KIND, ConfigurationError, ReplicationError, TransientError
from tranrepl.mysql.connection_options import CHARSET, driver_arguments

Rows = list[tuple[Any, ...]]
_SQL_MODE = "NO_BACKSLASH_ESCAPES,ANSI_QUOTES,ALLOW_INVALID_DATES"
"""Tables may have dates that do not exist: without the last word the server reads 2024-02-31 as a date of zeros."""
WHOLE_ANSWERS = (
    "sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_safe_updates = 0, sql_auto_is_null = 0, "
    "completion_type = 0"
    "/*M!100300 , max_statement_time = 0, idle_transaction_timeout = 0, idle_write_transaction_timeout = 0, "
    "idle_readonly_transaction_timeout = 0 */ /*!80000 , max_execution_time = 0, "
    "information_schema_stats_expiry = 0 */"
)
"""By these settings each query is answered with all of its rows, and no transaction is ended, whatever the server's
defaults; MySQL's catalogue says how a table is now. MariaDB passes over comments for MySQL 8, and MySQL over those for
MariaDB."""
_REFUSED = (1044, 1045, 1049, 1698)
"""No such database, or not for this login."""
_REFUSED_PLAIN = (1045, 3159)
"""What a server says that demands TLS: MariaDB what it says of a wrong password, too."""
_KEEPALIVE = {
    "TCP_KEEPIDLE": KEEPALIVE_IDLE_SECONDS,
    "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_SECONDS,
    "TCP_KEEPCNT": KEEPALIVE_COUNT,
    "TCP_USER_TIMEOUT": UNANSWERED_MILLISECONDS,
}


class Session:
    """A session in autocommit mode, in which times are UTC and text is UTF-8."""

    def __init__(self, driver: pymysql.Connection[Any], database: str) -> None:
        self.driver = driver
        self.database = database

    def execute(self, statement: str, values: Sequence[object] | None = None) -> Rows:
        """Return the statement's rows. Values are bound by `%s`; with them, even with none, `%` is written `%%`."""
        with self.driver.cursor() as cursor:
            cursor.execute(statement, None if values is None else tuple(values))
            return list(cursor.fetchall())


@contextmanager
def connect(connection: Connection) -> Iterator[Session]:
    """Open a session, and close it. Raises TransientError or ConfigurationError where the server does not let us."""
    try:
        driver = pymysql.connect(
            host=connection.host or "127.0.0.1",
            port=connection.port or 3306,
            user=connection.login,
            # The driver would write it in Latin-1.
            password=(connection.password or "").encode(),
            database=connection.database,
            charset=CHARSET,
            autocommit=True,
            **driver_arguments(connection),
        )
    except (pymysql.err.Error, OSError) as error:
        raise refused_tls(connection, error) or _refused(connection, error) from error
    notice_dead_peers(driver)
    try:
        session = Session(driver, connection.database or "")
        with translated_errors(f"connection {connection}"):
            session.execute(f"SET time_zone = '+00:00', sql_mode = '{_SQL_MODE}', {WHOLE_ANSWERS}")
        yield session
    finally:
        if driver.open:
            driver.close()


def notice_dead_peers(driver: Any) -> None:
    """Let the system ask whether the server is still there, as for PostgreSQL: its own pace is two hours."""
    connected: socket.socket = driver._sock
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        # Not every system has them all.
        if (known := getattr(socket, option, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, known, value)


def refused_tls(connection: Connection, error: BaseException) -> ConfigurationError | None:
    """Return the error of a connection whose TLS is not what one of its ends asks for; None where that is not why."""
    cause = getattr(error, "original_exception", error)
    where = f"connection {connection}"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConfigurationError(
            f"{where}: the server's certificate is not trusted: {cause.verify_message}",
            remedy="ssl_ca in its extra names the certificate that has signed the server's; with "
            '"ssl_mode": "VERIFY_CA" the name of its host does not count',
        )
    if isinstance(error, OSError):
        # The driver keeps for itself what the network raises: this is of the files that it reads before.
        return ConfigurationError(
            f"{where}: a certificate or key that its extra names cannot be read: {error_text(error)}",
            remedy="ssl_ca, ssl_capath, ssl_cert and ssl_key are paths on each machine that connects",
        )
    if error_number(error) in _REFUSED_PLAIN and "ssl_disabled" in driver_arguments(connection):
        return ConfigurationError(
            f"{where}: {error_text(error)}",
            remedy="check login and password of this connection; where the server or the login demands TLS, "
            '"ssl_mode": "REQUIRED" in its extra, in place of what disables TLS',
        )
    return None


def _refused(connection: Connection, error: Exception) -> ReplicationError:
    message = f"connection {connection}: {error_text(error)}"
    if error_number(error) in _REFUSED:
        return ConfigurationError(message, remedy="check login, password and database of this connection")
    return TransientError(message, remedy="check host and port, and that the server runs")


@contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Turn a driver's error into one of ours. `where` names the place."""
    try:
        yield
    except pymysql.err.InterfaceError as error:
        raise TransientError(f"{where}: the session has ended") from error
    except (pymysql.err.Error, OSError) as error:
        raise translate(where, error) from error


def translate(where: str, error: Exception) -> ReplicationError:
    """Return the error as its class, by its number."""
    number = error_number(error)
    code = None if number is None else str(number)
    kind = Codes.MARIADB.value.kind(code)
    if number is None and isinstance(error, pymysql.err.ProgrammingError):
        return ConfigurationError(f"{where}: {error_text(error)}")
    if number is None:
        return TransientError(f"{where}: {error_text(error)}")
    return CLASS_OF_KIND[kind](f"{where}: {error_text(error)}", **Codes.MARIADB.value.numbered(code))


def error_number(error: BaseException) -> int | None:
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) and isinstance(error, pymysql.err.Error) else None


def error_text(error: BaseException) -> str:
    return " ".join(str(error.args[1] if len(error.args) > 1 else error).split())


def account(session: Session) -> str:
    """Return our login with its host as the server knows it, to be granted to: without one it would be any host's."""
    ((current,),) = session.execute("SELECT CURRENT_USER()")
    return "@".join("'" + it.replace("'", "''") + "'" for it in str(current).rsplit("@", 1))


def tells_apart(collation: str) -> bool:
    """Return whether texts that differ are unlike in a collation, whatever its blanks at the end; so is what has
    none."""
    return not collation or collation.endswith(("binary", "_bin", "_as_cs"))


def quoted(name: str) -> str:
    """Return an identifier in SQL."""
    return "`" + name.replace("`", "``") + "`"
