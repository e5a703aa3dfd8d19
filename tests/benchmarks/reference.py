"""PostgreSQL's own logical replication, draining the same backlog into a database of its own."""

from __future__ import annotations

import time

from psycopg import conninfo, sql

from sandbox.site import execute
from tranrepl.connections import Connection

NAME = "reference"
_POLL_SECONDS = 0.02
_MOST_SECONDS = 600.0


class BuiltInReplication:
    """A subscription with default settings, enabled only while it drains."""

    def __init__(self, publisher: Connection, subscriber: Connection, publication: str) -> None:
        self._publisher = publisher
        self._subscriber = subscriber
        self._publication = publication

    def set_up(self) -> None:
        """Create the subscription on tables that exist; publisher and subscriber may be one cluster, so the slot is
        made by hand."""
        source = conninfo.make_conninfo("", **self._publisher.libpq_parameters("reference"))
        execute(self._publisher, f"SELECT pg_create_logical_replication_slot('{NAME}', 'pgoutput')")
        statement = sql.SQL(
            "CREATE SUBSCRIPTION {name} CONNECTION {source} PUBLICATION {publication} "
            "WITH (create_slot = false, slot_name = {slot}, enabled = false, copy_data = false)"
        ).format(
            name=sql.Identifier(NAME),
            source=sql.Literal(source),
            publication=sql.Identifier(self._publication),
            slot=sql.Literal(NAME),
        )
        execute(self._subscriber, statement.as_string(None))

    def drain(self, marker: int) -> float:
        """Seconds until the row `marker`, the backlog's last, is there."""
        execute(self._subscriber, f"ALTER SUBSCRIPTION {NAME} ENABLE")
        started = time.perf_counter()
        while not execute(self._subscriber, f"SELECT 1 FROM marker WHERE id = {marker}"):
            if time.perf_counter() - started > _MOST_SECONDS:
                raise TimeoutError(f"built-in replication did not drain the backlog in {_MOST_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        seconds = time.perf_counter() - started
        execute(self._subscriber, f"ALTER SUBSCRIPTION {NAME} DISABLE")
        return seconds

    def drop(self) -> None:
        execute(
            self._subscriber,
            f"ALTER SUBSCRIPTION {NAME} DISABLE",
            f"ALTER SUBSCRIPTION {NAME} SET (slot_name = NONE)",
            f"DROP SUBSCRIPTION {NAME}",
        )
