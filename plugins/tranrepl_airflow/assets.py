"""A Subscriber's tables as Airflow's assets, for DAGs that are scheduled by their deliveries.

Each table has two: one of ours, which names publication and subscription, and one with the address that providers of
Airflow and OpenLineage give the same table. Sources: the `asset-uris` of Airflow's providers; OpenLineage, "Naming".

The watermark is in each event's extra, and not in Airflow's `asset_state_store` (3.3) besides: a task that has an
outlet by an alias gets no access to the state of its assets. It would have to name its own alias as an inlet, which
costs a request at the start of every task, shows the DAG as one that waits for itself, and finds an asset from its
second event on. Of an asset that no DAG names, which most are, each write is an error 404.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, Context

from tranrepl.connections import Connection
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Publication
from tranrepl_airflow.job_connections import resolve_connections

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Scheme:
    """How the tables of a kind of database are addressed."""

    name: str
    port: int
    """The one that is meant where the connection names none."""
    schemas: bool = True
    """A database has schemas; else a schema is a database."""


_MYSQL = _Scheme("mysql", 3306, schemas=False)
_POSTGRES = _Scheme("postgres", 5432)
_SCHEMES = {
    "postgres": _POSTGRES,
    "postgresql": _POSTGRES,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "mssql": _Scheme("mssql", 1433),
}
"""By the kind of connection. Tables of others have no address that other DAGs would know."""


@dataclass(frozen=True, slots=True)
class TableAddress:
    """A table by the names that providers of Airflow and OpenLineage give it."""

    namespace: str
    """`scheme://host:port`, the port always written."""
    parts: tuple[str, ...]
    """Database, schema and table, or as many of them as the kind of database has."""

    @property
    def name(self) -> str:
        """The table's name in OpenLineage."""
        return ".".join(self.parts)


def table_address(connection: Connection, table: TableName) -> TableAddress | None:
    """Return a table's address; None where the kind of database has none, or the connection names no single host."""
    scheme, host = _SCHEMES.get(connection.kind), connection.host or ""
    if scheme is None or not host or host.startswith("/") or "," in host or "\\" in host:
        return None
    database = connection.database or "" if scheme.schemas else table.schema
    if not database:
        return None
    parts = (database, table.schema, table.table) if scheme.schemas else (database, table.table)
    server = f"[{host}]" if ":" in host else host
    return TableAddress(f"{scheme.name}://{server}:{connection.port or scheme.port}", parts)


def subscriber_table(publication: str, subscription: str, table: TableName) -> Asset:
    """Return the asset of a Subscriber's table: `x-tranrepl://publication/subscription/schema.table`."""
    return Asset(uri=f"x-tranrepl://{publication}/{subscription}/{quote(str(table))}")


def standard_asset(connection: Connection, table: TableName) -> Asset | None:
    """Return the asset of a table by its address, as `postgres://host:port/database/schema/table`; None without one."""
    address = table_address(connection, table)
    if address is None:
        return None
    return Asset(uri="/".join((address.namespace, *(quote(it, safe="") for it in address.parts))))


def subscription_alias(publication: str, subscription: str) -> AssetAlias:
    """Return the outlet of a task that writes to the subscription's tables; which of them it wrote to, it says as it
    runs."""
    return AssetAlias(f"{publication}/{subscription}")


def add_events(context: Context, publication: Publication, subscription: str, extras: Mapping[str, Any]) -> None:
    """Let the task, of which `subscription_alias` is an outlet, emit an event for each asset of each article's table at
    the Subscriber when it succeeds.

    `extras` holds by article (source table) what the event says besides.
    """
    events = context["outlet_events"][subscription_alias(publication.publication, subscription)]
    delivered = list(_delivered(publication.at(subscription), extras))
    for table, extra in delivered:
        events.add(subscriber_table(publication.publication, subscription, table), extra=extra)
    wanted = publication.subscription(subscription).connection
    try:
        connection = resolve_connections([wanted]).by_id[wanted]
        for table, extra in delivered:
            standard = standard_asset(connection, table)
            if standard is not None:
                events.add(standard, extra=extra)
    except Exception as error:  # noqa: BLE001 - what was delivered stays delivered, whatever a secrets backend raises
        log.warning("events with the tables' addresses were not emitted: %s", type(error).__name__)


def _delivered(publication: Publication, extras: Mapping[str, Any]) -> Iterator[tuple[TableName, Any]]:
    """Yield the Subscriber's tables to which something was written, and what the events say besides."""
    for source, extra in extras.items():
        article = publication.article(TableName.parse(source))
        if article is not None:
            yield article.destination_table, extra
