"""The model's tables at a Subscriber: for every kind of database, in the types that it has.

Source: `MSreplication_subscriptions`, `MSreplication_objects`, `MSsubscription_articles` and `MSrepl_version`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tranrepl import __version__
from tranrepl.errors import ConfigurationError, newer_version
from tranrepl.remedies import RUN_SETUP
from tranrepl.subscriber.subscription import SubscriptionKey

METADATA = sa.MetaData()
_BINARY = "utf8mb4_bin"
"""The collation of MariaDB and MySQL that compares characters by their numbers. It implies their character set."""
_POSITION = sa.LargeBinary(16).with_variant(sa.VARBINARY(16), "mysql")
_LONG_TEXT = sa.Text().with_variant(sa.Text(2**32 - 1, _BINARY), "mysql")


def _name(length: int) -> sa.String:
    """Return the type of a name, compared by its bytes: other collations make one of two names that differ in case."""
    binary = sa.String(length, _BINARY)
    return sa.String(length).with_variant(binary, "mysql").with_variant(sa.Text(), "postgresql")


def _text(length: int) -> sa.String:
    return sa.String(length).with_variant(sa.Text(), "postgresql")


def _time() -> sa.Column[datetime]:
    """Return a column of the time of a change: UTC, or where the database knows them, with the session's time zone."""
    moment = sa.DateTime().with_variant(sa.DateTime(timezone=True), "postgresql")
    return sa.Column("time", moment, nullable=False, server_default=sa.func.current_timestamp())


def _subscription_key() -> list[sa.Column[str]]:
    """Return the columns that say which subscription a row is of; the first, where its Publisher was reached last."""
    key = {"publisher_system": 32, "publisher_db": 128, "publication": 64, "subscription": 64}
    publisher = sa.Column("publisher", _name(255), nullable=False)
    return [publisher, *(sa.Column(name, _name(length), primary_key=True) for name, length in key.items())]


WATERMARKS = sa.Table(
    "msreplication_subscriptions",
    METADATA,
    *_subscription_key(),
    sa.Column("stream", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("subscription_type", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("description", _text(255)),
    sa.Column("transaction_timestamp", _POSITION, nullable=False),
    _time(),
    sa.Column("batch_after", _POSITION),
    sa.Column("batch_streams", sa.SmallInteger),
    sa.Column("batch_division", _LONG_TEXT),
    sa.Column("change_seqno", _POSITION),
    sa.Column("change_command_id", sa.BigInteger),
    sa.Column("change_columns", _LONG_TEXT),
)
OBJECTS = sa.Table(
    "msreplication_objects",
    METADATA,
    sa.Column("publisher", _name(255), nullable=False),
    sa.Column("publisher_db", _name(128), nullable=False),
    sa.Column("publication", _name(64), nullable=False),
    sa.Column("article", _name(255), nullable=False),
    sa.Column("object_name", _name(128), primary_key=True),
    sa.Column("object_type", sa.String(1).with_variant(sa.CHAR(1), "postgresql"), nullable=False),
    sa.Column("object_text", _LONG_TEXT, nullable=False),
)
SNAPSHOTS = sa.Table(
    "msreplication_snapshots",
    METADATA,
    *_subscription_key(),
    sa.Column("article", _name(255), primary_key=True),
    sa.Column("range_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("snapshot", _text(64), nullable=False),
    sa.Column("row_count", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("byte_count", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("xact_seqno", _POSITION),
    _time(),
    sa.Column("created", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("deferred", _LONG_TEXT),
    sa.Column("article_id", sa.Integer),
    sa.Column("loading_seqno", _POSITION),
    sa.Column("range_count", sa.Integer),
    sa.Column("range_bounds", _LONG_TEXT),
)
"""Row 0 of an article says whether setup made its table (`created`), what is built after the load (`deferred`), and of
the snapshot that loads it: by which definition, as of which transaction, and in how many ranges; of ranges of keys,
where those after the first begin (`range_bounds`)."""
ARTICLES = sa.Table(
    "mssubscription_articles",
    METADATA,
    *_subscription_key(),
    sa.Column("article", _name(255), primary_key=True),
    sa.Column("article_id", sa.Integer, nullable=False),
    _time(),
    sa.Column("destination", _text(520)),
    sa.Column("filter_clause", _LONG_TEXT),
    sa.Column("whole_table", sa.Boolean),
)
"""Which definition of each article its table and procedures stand at, and which table that is: other publications may
deliver to it too."""
VERSION = sa.Table(
    "msrepl_version",
    METADATA,
    sa.Column("revision", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("version", _text(64), nullable=False),
    _time(),
)
REPLICATION_TABLES = tuple(METADATA.tables)
"""Names of the model's tables."""


def of_subscription(table: sa.Table, key: SubscriptionKey) -> sa.ColumnElement[bool]:
    """Return what chooses one subscription's rows of a model's table."""
    return sa.and_(of_publication(table, key), table.c.subscription == key.subscription)


def of_publication(table: sa.Table, key: SubscriptionKey) -> sa.ColumnElement[bool]:
    """Return what chooses the rows of one publication's subscriptions."""
    columns = table.c
    return sa.and_(
        columns.publisher_system == key.publisher_system,
        columns.publisher_db == key.publisher_db,
        columns.publication == key.publication,
    )


REVISION = 3
"""The revision of the model's tables at a Subscriber, whatever its database. It grows when one of them changes."""


@dataclass(frozen=True, slots=True)
class TablesVersion:
    """The tables' revision, and the version of tranrepl that made them or migrated them last."""

    revision: int
    version: str

    def __str__(self) -> str:
        return f"revision {self.revision} ({self.version})"

    def require_not_newer(self, where: str) -> None:
        """Raise ConfigurationError where a newer version than this one made the tables."""
        if self.revision > REVISION:
            raise newer_version(f"the tables of {where}", self.version)

    def require_current(self, where: str) -> None:
        """Raise ConfigurationError where another version made the tables."""
        self.require_not_newer(where)
        if self.revision < REVISION:
            raise ConfigurationError(f"the tables of {where} are of an earlier version of tranrepl", remedy=RUN_SETUP)


THIS_VERSION = TablesVersion(REVISION, __version__)
