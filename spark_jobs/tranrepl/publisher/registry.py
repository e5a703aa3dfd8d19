"""Which Publisher a connection leads to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tranrepl.connections import Connection
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres.publisher import PostgresPublisher


@contextmanager
def open_publisher(connection: Connection, publication: str, application: str) -> Iterator[PostgresPublisher]:
    """Connect to the Publisher of a publication; the session is closed at the end.

    Raises ConfigurationError where the server refuses us, TransientError where it cannot be reached.
    """
    with connect(connection, application, autocommit=True) as session:
        yield PostgresPublisher(session, publication)
