"""PostgreSQL, as a kind of Publisher."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tranrepl.connections import Connection
from tranrepl.model.catalogue import OldRowSetting
from tranrepl.model.names import TableName
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres.lsn import LsnPositions
from tranrepl.publisher.postgres.publisher import PostgresPublisher
from tranrepl.publisher.postgres.teardown import statements_left


class PostgresPublisherDatabase:
    @property
    def positions(self) -> LsnPositions:
        return LsnPositions()

    def statements_left(self, name: str, tables: Mapping[TableName, OldRowSetting]) -> list[str]:
        return statements_left(name, tables)

    @contextmanager
    def open(self, connection: Connection, publication: str, application_name: str) -> Iterator[PostgresPublisher]:
        with connect(connection, application_name, autocommit=True) as session:
            yield PostgresPublisher(connection, session, publication)
