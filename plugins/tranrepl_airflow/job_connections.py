"""The connections a Spark job needs, from any secrets backend of Airflow, to the job's environment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

from airflow.sdk import BaseHook, Connection as AirflowConnection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from tranrepl.connections import Connection, from_environment, variable_name
from tranrepl.errors import ConfigurationError

_SECRET_OPTIONS = (
    *("password", "secret", "client_key", "server_key"),
    *("session_token", "secret_access_key", "sas_token", "account_key", "connection_string", "keyfile_dict"),
)


@dataclass(frozen=True, slots=True)
class JobConnections:
    """Resolved connections. Its repr shows their ids alone."""

    by_id: Mapping[str, Connection] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    """`AIRFLOW_CONN_<ID>` as JSON: the only way secrets travel to a job."""
    secrets: tuple[str, ...] = field(repr=False)

    def redact(self, text: str) -> str:
        """Return `text` without the passwords, in each of the spellings that a driver or a URL may give them."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def resolve_connections(connection_ids: Iterable[str]) -> JobConnections:
    """Read the connections and mask their passwords in Airflow's logs.

    Raises ConfigurationError that names every connection which Airflow does not have.
    """
    ids = list(dict.fromkeys(connection_ids))
    found = {connection_id: find_connection(connection_id) for connection_id in ids}
    missing = [connection_id for connection_id, connection in found.items() if connection is None]
    if missing:
        raise ConfigurationError(
            f"not defined in Airflow: connection {', '.join(missing)}",
            remedy="define it under Admin, Connections, in the secrets backend, or as in "
            f"airflow connections add {missing[0]} --conn-uri postgres://user:password@host:5432/database",
        )
    connections = [connection for connection in found.values() if connection is not None]
    environment = {variable_name(connection.conn_id): connection.as_json() for connection in connections}
    by_id = {connection_id: from_environment(connection_id, environment) for connection_id in ids}
    spellings = {it for connection in by_id.values() for secret in _secrets(connection) for it in _spellings(secret)}
    secrets = tuple(sorted(spellings, key=len, reverse=True))
    for secret in secrets:
        mask_secret(secret)
    return JobConnections(
        by_id=by_id,
        environment=environment,
        secrets=secrets,
    )


def find_connection(connection_id: str) -> AirflowConnection | None:
    """Return the connection, or None where no secrets backend has it. Any other error is raised."""
    try:
        return BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        return None


def _secrets(connection: Connection) -> list[str]:
    """Return the password, and what of the extra is one, as libpq's `sslpassword`."""
    options = (value for name, value in connection.options.items() if name.endswith(_SECRET_OPTIONS))
    return [it for it in (connection.password, *options) if it]


def _spellings(password: str) -> set[str]:
    # Airflow masks the plain password only; a URL or a JSON text that holds it would pass.
    return {password, quote_plus(password), quote(password, safe=""), json.dumps(password)[1:-1]}
