"""The model's tables at a Subscriber that SQLAlchemy reaches.

Source: `MSreplication_subscriptions` and `MSreplication_objects`.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from tranrepl.commands import FIRST_XACT_SEQNO
from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.dialect import SubscriptionKey, fenced, not_set_up

_METADATA = sa.MetaData()


def _name(length: int) -> sa.String:
    """A collation would make two subscriptions one whose names differ in case."""
    return sa.String(length).with_variant(mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql")


WATERMARKS = sa.Table(
    "msreplication_subscriptions",
    _METADATA,
    sa.Column("publisher", _name(255), nullable=False),
    sa.Column("publisher_db", _name(128), primary_key=True),
    sa.Column("publication", _name(64), primary_key=True),
    sa.Column("subscription", _name(64), primary_key=True),
    sa.Column("stream", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("subscription_type", sa.SmallInteger, nullable=False),
    sa.Column("description", sa.String(255)),
    sa.Column(
        "transaction_timestamp",
        sa.LargeBinary(16).with_variant(mysql.VARBINARY(16), "mysql"),
        nullable=False,
    ),
    sa.Column("time", sa.DateTime, nullable=False, server_default=sa.func.current_timestamp()),
)
OBJECTS = sa.Table(
    "msreplication_objects",
    _METADATA,
    sa.Column("publisher", _name(255), nullable=False),
    sa.Column("publisher_db", _name(128), nullable=False),
    sa.Column("publication", _name(64), nullable=False),
    sa.Column("article", _name(255), nullable=False),
    sa.Column("object_name", _name(128), primary_key=True),
    sa.Column("object_type", sa.String(1), nullable=False),
    sa.Column("object_text", sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql"), nullable=False),
)


class Watermark:
    """One subscription's row, read and written in whatever transaction is open."""

    def __init__(self, session: sa.Connection, key: SubscriptionKey, where: str) -> None:
        self._session = session
        self._key = key
        self._where = where
        columns = WATERMARKS.c
        self._mine = sa.and_(
            columns.publisher_db == key.publisher_db,
            columns.publication == key.publication,
            columns.subscription == key.subscription,
            columns.stream == 0,
        )

    def exists(self) -> bool:
        """Whether the table does."""
        return sa.inspect(self._session).has_table(WATERMARKS.name)

    def find(self) -> bytes | None:
        value = self._session.scalar(sa.select(WATERMARKS.c.transaction_timestamp).where(self._mine))
        return None if value is None else bytes(value)

    def locked(self) -> bytes:
        """Lock the row where the database can. Raises ConfigurationError where there is none."""
        query = (
            sa.select(WATERMARKS.c.transaction_timestamp)
            .where(self._mine)
            .with_for_update()
            .with_hint(WATERMARKS, "WITH (UPDLOCK, HOLDLOCK)", "mssql")
        )
        value = self._session.scalar(query)
        if value is None:
            raise not_set_up(self._where, self._key, self._session.engine.url.database or "")
        return bytes(value)

    def fence(self, expected: bytes) -> None:
        """Raises FencedError where another delivery was here."""
        if self.locked() != expected:
            raise fenced(self._where)

    def advance(self, xact_seqno: bytes) -> None:
        self._session.execute(
            sa.update(WATERMARKS)
            .where(self._mine)
            .values(transaction_timestamp=xact_seqno, time=sa.func.current_timestamp())
        )

    def start(self) -> bool:
        """A new subscription has received nothing. False where it is there already."""
        if self.find() is not None:
            return False
        self._session.execute(
            sa.insert(WATERMARKS).values(
                publisher=self._key.publisher,
                publisher_db=self._key.publisher_db,
                publication=self._key.publication,
                subscription=self._key.subscription,
                stream=0,
                subscription_type=0,
                transaction_timestamp=FIRST_XACT_SEQNO,
            )
        )
        return True


def create_tables(session: sa.Connection, where: str) -> None:
    """Idempotent. Raises ConfigurationError where tables of these names are another's, as SQL Server's own are."""
    _METADATA.create_all(session, checkfirst=True)
    for table in _METADATA.tables.values():
        found = {column["name"] for column in sa.inspect(session).get_columns(table.name)}
        if not found >= {column.name for column in table.columns}:
            raise ConfigurationError(
                f"{where}: table {table.name} is another program's: SQL Server's own replication has one of that name",
                remedy="deliver into a database that takes part in no other replication",
            )
