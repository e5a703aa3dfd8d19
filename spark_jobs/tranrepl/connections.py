"""Connections to databases, from where Airflow keeps them: `AIRFLOW_CONN_<ID>`, as JSON or as a URI.

Source of both forms: Airflow's "Managing Connections", storing connections in environment variables, and
`airflow.sdk.Connection`, which reads them for tasks. Of what an extra holds: `PostgresHook` of Airflow's provider.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tranrepl.errors import ConfigurationError
from tranrepl.spelling import likeliest

POSTGRES_KINDS = ("postgres", "postgresql")
# Otherwise a call to a server that is cut off waits for two hours, which is the system's default.
KEEPALIVE_IDLE_SECONDS = 60
KEEPALIVE_INTERVAL_SECONDS = 10
KEEPALIVE_COUNT = 6
UNANSWERED_MILLISECONDS = 120_000
_NOTICING_DEAD_PEERS = {
    "connect_timeout": "15",
    "keepalives_idle": str(KEEPALIVE_IDLE_SECONDS),
    "keepalives_interval": str(KEEPALIVE_INTERVAL_SECONDS),
    "keepalives_count": str(KEEPALIVE_COUNT),
    "tcp_user_timeout": str(UNANSWERED_MILLISECONDS),
}
"""libpq's keywords; a connection's own options win."""
_LIBPQ_TRUTHS = {"true": "1", "false": "0"}
_HOOKS_OWN = "Airflow's hook has it for itself"
_NO_TOKENS = "no token is fetched: give the connection a login and a password of the database"
_SESSIONS_OWN = "tranrepl's sessions set it themselves"
_NOT_LIBPQ = {
    **dict.fromkeys(("cursor", "sqlalchemy_scheme", "sqlalchemy_query"), _HOOKS_OWN),
    **dict.fromkeys(
        (
            *("iam", "aws_conn_id", "azure_conn_id", "redshift", "cluster-identifier"),
            *("redshift-serverless", "workgroup-name"),
        ),
        _NO_TOKENS,
    ),
    **dict.fromkeys(("autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory"), _SESSIONS_OWN),
    **dict.fromkeys(("application_name", "client_encoding", "replication"), _SESSIONS_OWN),
}
"""What Airflow's hook takes in an extra, and libpq does not, or not from there: why it is not used."""
_FIELDS_IN_EXTRA = {"host": "host", "user": "login", "password": "password", "dbname": "database"}
"""libpq's keywords for what a connection has fields for. In the hook, the extra's win."""
_WHOLE_EXTRA = "__extra__"
"""The key of a URI's query that holds all of an extra, in JSON."""


class _RaisedAnyway(logging.Filter):
    """Refuses what drivers log, some with a traceback, of a session that is over: why it is was raised before."""

    _TEXTS = ("error ignored", "Exception during reset or similar", "Exception terminating ", "Exception closing ")

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(self._TEXTS)


for _driver in ("psycopg", "psycopg.transaction", "sqlalchemy.pool.impl.NullPool", "sqlalchemy.pool.impl.QueuePool"):
    logging.getLogger(_driver).addFilter(_RaisedAnyway())


@dataclass(frozen=True, slots=True)
class Connection:
    """One database, and who we are there. No secret appears in its repr."""

    connection_id: str
    kind: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """What its extra holds, in text: what is no text there, in JSON's."""

    def __str__(self) -> str:
        where = f"{self.host or ''}:{self.port}" if self.port else self.host or ""
        return f"{self.connection_id} ({self.login or ''}@{where}/{self.database or ''})"

    @property
    def place(self) -> tuple[str, str | None, int | None, str | None]:
        """The database that it leads to, whichever login connects."""
        return self.kind, self.host, self.port, self.database

    def libpq_parameters(self, application_name: str) -> dict[str, str]:
        """Return keywords for libpq, as `psycopg.connect` takes them."""
        parameters = {
            "host": self.host,
            "port": str(self.port) if self.port else None,
            "user": self.login,
            "password": self.password,
            "dbname": self.database,
            "application_name": application_name,
        }
        options = {
            name: _LIBPQ_TRUTHS.get(value, value)
            for name, value in self.options.items()
            if value and name not in _NOT_LIBPQ
        }
        return {**_NOTICING_DEAD_PEERS, **options, **{name: v for name, v in parameters.items() if v}}

    def unused_by_libpq(self) -> dict[str, str]:
        """Return why each of its options that Airflow's hook takes is not used, by name."""
        return {name: _NOT_LIBPQ[name] for name, value in used(self.options).items() if name in _NOT_LIBPQ}


_DRIVERS = {
    "pymysql": ("pymysql>=1.2", "mysql"),
    "pymssql": ("pymssql>=2.4", "mssql"),
    "obstore": ("obstore>=0.12", "object-store"),
}
"""Drivers that are not installed with tranrepl: how pip knows them, and tranrepl's extra that has them, by module."""


def driver_is_missing(error: ModuleNotFoundError, where: str) -> ConfigurationError:
    """Return the error that says how the driver of a database is installed."""
    module = (error.name or "").partition(".")[0]
    package, extra = _DRIVERS.get(module, (module, None))
    of_extra = "" if extra is None else f" (tranrepl's extra {extra})"
    return ConfigurationError(
        f"{where}: the driver {module}{of_extra} is not installed",
        remedy=f"{sys.executable} -m pip install '{package}'",
    )


def require_postgres(connection: Connection) -> None:
    if connection.kind not in POSTGRES_KINDS:
        raise ConfigurationError(
            f"connection {connection.connection_id!r} is of type {connection.kind!r}",
            remedy=f"allowed: {', '.join(POSTGRES_KINDS)}",
        )


def used(options: Mapping[str, str]) -> dict[str, str]:
    """Return options that ask for something."""
    return {name: value for name, value in options.items() if value not in ("", "false")}


def variable_name(connection_id: str) -> str:
    """Return the name of the environment variable that holds this connection."""
    return f"AIRFLOW_CONN_{connection_id.upper()}"


def from_environment(connection_id: str, environment: Mapping[str, str] | None = None) -> Connection:
    """Read `AIRFLOW_CONN_<ID>`.

    Raises ConfigurationError where it is not set or not readable; the value itself is never repeated.
    """
    variable = variable_name(connection_id)
    value = (os.environ if environment is None else environment).get(variable, "").strip()
    if not value:
        prefix = variable_name("")
        known = os.environ if environment is None else environment
        # The prefix would make all of them alike.
        others = {it[len(prefix) :]: it for it in known if it.upper().startswith(prefix)}
        near = likeliest(connection_id, others)
        question = "" if near is None else f"did you mean {others[near]}, which is set? Else: "
        raise ConfigurationError(
            f"connection {connection_id!r} is not defined",
            remedy=f"{question}define it in Airflow, or set {variable} (JSON or URI), as in "
            f"{variable}=postgres://user:password@host:5432/database",
        )
    try:
        read = _from_json if value.startswith("{") else _from_uri
        return _with_fields_of_extra(read(connection_id, value))
    except (ValueError, TypeError, AttributeError):
        # The text of the original error may hold the password.
        raise ConfigurationError(
            f"{variable} is neither a connection in JSON nor a URI",
            remedy='allowed: {"conn_type": "postgres", "host": …, "login": …, "password": …, "port": …, "schema": …} '
            "or postgres://user:password@host:5432/database",
        ) from None


def in_environment() -> tuple[list[Connection], list[ConfigurationError]]:
    """Return every connection of the environment, by its id in lower case and in order, and the error of each that is
    not readable."""
    found: list[Connection] = []
    errors: list[ConfigurationError] = []
    prefix = variable_name("")
    for name in sorted(it.removeprefix(prefix).lower() for it in os.environ if it.startswith(prefix)):
        try:
            found.append(from_environment(name))
        except ConfigurationError as error:
            errors.append(error)
    return found, errors


def all_from_environment(connection_ids: Iterable[str]) -> dict[str, Connection]:
    """Return each connection by its id.

    Raises one ConfigurationError for all that are not set or not readable.
    """
    found: dict[str, Connection] = {}
    errors: list[ConfigurationError] = []
    for name in connection_ids:
        try:
            found[name] = from_environment(name)
        except ConfigurationError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        # Each with its own remedy: one below all of them would be read as that of the first.
        problems = [f"{it.message} → {it.report.remedy}" for it in errors[:-1]]
        raise ConfigurationError("\n".join([*problems, errors[-1].message]), remedy=errors[-1].report.remedy)
    return found


def _with_fields_of_extra(connection: Connection) -> Connection:
    """Return the connection as libpq is to take it: one place for each thing. Several ports stay among the options."""
    if connection.kind not in POSTGRES_KINDS:
        return connection
    options = dict(connection.options)
    given = {name: options.pop(keyword) for keyword, name in _FIELDS_IN_EXTRA.items() if options.get(keyword)}
    port = connection.port
    if options.get("port"):
        port = int(options.pop("port")) if options["port"].isdecimal() else None
    return replace(connection, **given, port=port, options=options)


def _from_json(connection_id: str, value: str) -> Connection:
    fields = json.loads(value)
    texts = {name: _in_text(fields.get(name)) or None for name in ("host", "login", "password", "schema")}
    return Connection(
        connection_id,
        kind=_kind(fields["conn_type"].lower()) if fields.get("conn_type") else "",
        host=texts["host"],
        port=int(fields["port"]) if fields.get("port") else None,
        login=texts["login"],
        password=texts["password"],
        database=texts["schema"],
        options=_options(fields.get("extra")),
    )


def _from_uri(connection_id: str, value: str) -> Connection:
    """Read a URI as `Connection.from_uri` does in Airflow, whose host may have a protocol of its own."""
    scheme, schemes = urlsplit(value).scheme, value.count("://")
    # What such a text has for a database's name, which messages have, would be the password, too.
    without_host = not schemes and "@" in value
    if not scheme or schemes > 2 or without_host:
        raise ValueError("no scheme, or too many")
    rest = value.replace(f"{scheme}://", "" if schemes == 2 else "//")
    if schemes == 2 and set("@:") & set(rest.split("://", 1)[0]):
        raise ValueError("a login before the second scheme")
    parts = urlsplit(rest)
    host, query = _host(parts), dict(parse_qsl(parts.query, keep_blank_values=True))
    return Connection(
        connection_id,
        kind=_kind(scheme),
        host=f"{parts.scheme}://{host}" if host and schemes == 2 and parts.scheme else host or None,
        port=parts.port,
        login=unquote(parts.username or "") or None,
        password=unquote(parts.password or "") or None,
        database=unquote(parts.path[1:]) or None,
        options=_options(query.get(_WHOLE_EXTRA, query)),
    )


def _host(parts: SplitResult) -> str:
    """Return the host. A path, which is where a socket is, keeps its capital letters."""
    host = unquote(parts.hostname or "")
    return unquote(parts.netloc.rpartition("@")[2].partition(":")[0]) if "/" in host else host


def _kind(scheme: str) -> str:
    return "postgres" if scheme == "postgresql" else scheme.replace("-", "_")


def _options(extra: Any) -> dict[str, str]:
    """Return an extra, which is an object or an object's text in JSON, as options."""
    found = json.loads(extra) if isinstance(extra, str) and extra else extra or {}
    return {name: text for name, value in found.items() if (text := _in_text(value)) is not None}


def _in_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
