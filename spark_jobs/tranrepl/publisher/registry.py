"""Which Publisher a connection's kind means."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tranrepl.connections import POSTGRES_KINDS, Connection, driver_is_missing
from tranrepl.errors import ConfigurationError
from tranrepl.publisher.publisher import Publisher, PublisherDatabase

MYSQL_KINDS = ("mariadb", "mysql")
KINDS = (*POSTGRES_KINDS, *MYSQL_KINDS)
"""Kinds of connection that a Publisher may have."""


def publisher_database(connection: Connection) -> PublisherDatabase:
    """Return the kind of database that the connection leads to, loaded when it is first needed.

    Raises ConfigurationError where no Publisher is known of that kind.
    """
    if connection.kind in POSTGRES_KINDS:
        from tranrepl.publisher.postgres.publisher import PostgresPublisherDatabase

        return PostgresPublisherDatabase()
    if connection.kind in MYSQL_KINDS:
        try:
            from tranrepl.publisher.mysql.publisher import MySqlPublisherDatabase
        except ModuleNotFoundError as error:
            raise driver_is_missing(error, f"a connection of type {connection.kind!r}") from None
        return MySqlPublisherDatabase()
    raise ConfigurationError(
        f"connection {connection.connection_id!r} is of type {connection.kind!r}", remedy=f"allowed: {', '.join(KINDS)}"
    )


def publisher_databases() -> tuple[PublisherDatabase, ...]:
    """Return every kind of database at which set-up makes something."""
    from tranrepl.publisher.postgres.publisher import PostgresPublisherDatabase

    return (PostgresPublisherDatabase(),)


def open_publisher(
    connection: Connection, publication: str, application_name: str
) -> AbstractContextManager[Publisher]:
    """Connect to a publication's Publisher. Raises ConfigurationError, or TransientError where it is not there."""
    return publisher_database(connection).open(connection, publication, application_name)
