"""Connections to databases, from where Airflow keeps them: `AIRFLOW_CONN_<ID>`, as JSON or as a URI.

Source of both forms: Airflow's "Managing Connections", storing connections in environment variables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from sqlalchemy import URL

from tranrepl.errors import ConfigurationError
from tranrepl.spelling import likeliest

POSTGRES_KINDS = ("postgres", "postgresql")
_NOTICING_DEAD_PEERS = {
    "connect_timeout": "15",
    # Otherwise a call to a server that is cut off waits for two hours, which is the system's default.
    "keepalives_idle": "60",
    "keepalives_interval": "10",
    "keepalives_count": "6",
    "tcp_user_timeout": "120000",
}
"""libpq's keywords; a connection's own options win."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One database, and who we are there. The password never appears in its repr."""

    connection_id: str
    kind: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        where = f"{self.host or ''}:{self.port}" if self.port else self.host or ""
        return f"{self.connection_id} ({self.login or ''}@{where}/{self.database or ''})"

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
        return {**_NOTICING_DEAD_PEERS, **self.options, **{name: v for name, v in parameters.items() if v}}

    def sqlalchemy_url(self) -> URL:
        """Return the URL of the distribution database, which is PostgreSQL. Raises ConfigurationError for
        another kind."""
        require_postgres(self)
        return URL.create(
            "postgresql+psycopg", self.login, self.password, self.host, self.port, self.database, dict(self.options)
        )


def require_postgres(connection: Connection) -> None:
    if connection.kind not in POSTGRES_KINDS:
        raise ConfigurationError(
            f"connection {connection.connection_id!r} is of type {connection.kind!r}",
            remedy=f"allowed: {', '.join(POSTGRES_KINDS)}",
        )


def variable_name(connection_id: str) -> str:
    """Return the name of the environment variable that holds this connection."""
    return f"AIRFLOW_CONN_{connection_id.upper()}"


def from_environment(connection_id: str, environment: Mapping[str, str] | None = None) -> Connection:
    """Read `AIRFLOW_CONN_<ID>`.

    Raises ConfigurationError where it is not set or not readable; the value itself is never repeated.
    """
    variable = variable_name(connection_id)
    value = (os.environ if environment is None else environment).get(variable)
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
        return _from_json(connection_id, value) if value.lstrip().startswith("{") else _from_uri(connection_id, value)
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
        message = "\n".join(it.message for it in errors)
        raise ConfigurationError(message, remedy="\n".join(it.report.remedy for it in errors if it.report.remedy))
    return found


def _from_json(connection_id: str, value: str) -> Connection:
    fields = json.loads(value)
    extra = fields.get("extra") or {}
    if isinstance(extra, str):
        extra = json.loads(extra)
    return Connection(
        connection_id,
        kind=fields["conn_type"].lower() if fields.get("conn_type") else "",
        host=fields.get("host"),
        port=int(fields["port"]) if fields.get("port") else None,
        login=fields.get("login"),
        password=fields.get("password"),
        database=fields.get("schema"),
        options={name: str(option) for name, option in extra.items()},
    )


def _from_uri(connection_id: str, value: str) -> Connection:
    parts = urlsplit(value)
    if not parts.scheme:
        raise ValueError("no scheme")
    host = unquote(parts.hostname) if parts.hostname else None
    return Connection(
        connection_id,
        kind=parts.scheme.replace("-", "_"),
        host=host,
        port=parts.port,
        login=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        database=unquote(parts.path.removeprefix("/")) or None,
        options=dict(parse_qsl(parts.query)),
    )
