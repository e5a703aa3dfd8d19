"""MariaDB and MySQL, as a kind of Publisher."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tranrepl.connections import Connection
from tranrepl.model.catalogue import OldRowSetting
from tranrepl.model.names import TableName
from tranrepl.mysql.session import connect
from tranrepl.publisher.mysql.positions import BinlogPositions
from tranrepl.publisher.mysql.publisher import MySqlPublisher


class MySqlPublisherDatabase:
    @property
    def positions(self) -> BinlogPositions:
        return BinlogPositions()

    def statements_left(self, name: str, tables: Mapping[TableName, OldRowSetting]) -> list[str]:
        return []

    @contextmanager
    def open(self, connection: Connection, publication: str, application_name: str) -> Iterator[MySqlPublisher]:
        with connect(connection) as session:
            yield MySqlPublisher(connection, session, publication)
