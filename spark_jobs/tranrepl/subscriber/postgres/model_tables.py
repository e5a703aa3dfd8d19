"""The model's tables at a PostgreSQL Subscriber.

Source: `MSreplication_subscriptions`, `MSreplication_objects`.
"""

from __future__ import annotations

from psycopg import sql

from tranrepl.postgres.session import Session
from tranrepl.subscriber.dialect import SubscriptionKey
from tranrepl.subscriber.postgres.procedures import SCHEMA

WATERMARKS = sql.Identifier(SCHEMA, "msreplication_subscriptions")
OBJECTS = sql.Identifier(SCHEMA, "msreplication_objects")
SNAPSHOTS = sql.Identifier(SCHEMA, "msreplication_snapshots")
_PRIMARY_KEYS = (
    (WATERMARKS, ("publisher_system", "publisher_db", "publication", "subscription", "stream")),
    (SNAPSHOTS, ("publisher_system", "publisher_db", "publication", "subscription", "article", "range_number")),
)

_TABLES = (
    """CREATE TABLE IF NOT EXISTS {watermarks} (
    publisher text NOT NULL,
    publisher_db text NOT NULL,
    publication text NOT NULL,
    subscription text NOT NULL,
    stream smallint NOT NULL,
    subscription_type smallint NOT NULL DEFAULT 0,
    description text,
    transaction_timestamp bytea NOT NULL,
    time timestamptz NOT NULL DEFAULT now(),
    batch_after bytea,
    batch_streams smallint,
    batch_division text,
    publisher_system text NOT NULL DEFAULT '',
    PRIMARY KEY (publisher_system, publisher_db, publication, subscription, stream))""",
    """ALTER TABLE {watermarks} ADD COLUMN IF NOT EXISTS batch_after bytea,
    ADD COLUMN IF NOT EXISTS batch_streams smallint, ADD COLUMN IF NOT EXISTS batch_division text,
    ADD COLUMN IF NOT EXISTS publisher_system text NOT NULL DEFAULT ''""",
    """CREATE TABLE IF NOT EXISTS {objects} (
    publisher text NOT NULL,
    publisher_db text NOT NULL,
    publication text NOT NULL,
    article text NOT NULL,
    object_name text NOT NULL,
    object_type char(1) NOT NULL,
    object_text text NOT NULL,
    PRIMARY KEY (object_name))""",
    """CREATE TABLE IF NOT EXISTS {snapshots} (
    publisher text NOT NULL,
    publisher_db text NOT NULL,
    publication text NOT NULL,
    subscription text NOT NULL,
    article text NOT NULL,
    range_number integer NOT NULL,
    snapshot text NOT NULL,
    created boolean NOT NULL DEFAULT false,
    deferred text,
    row_count bigint NOT NULL DEFAULT 0,
    byte_count bigint NOT NULL DEFAULT 0,
    xact_seqno bytea,
    time timestamptz NOT NULL DEFAULT now(),
    publisher_system text NOT NULL DEFAULT '',
    PRIMARY KEY (publisher_system, publisher_db, publication, subscription, article, range_number))""",
    """ALTER TABLE {snapshots} ADD COLUMN IF NOT EXISTS xact_seqno bytea,
    ADD COLUMN IF NOT EXISTS publisher_system text NOT NULL DEFAULT ''""",
)

_KEY_OF = """
SELECT c.conname, EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.conrelid
                             AND a.attname = 'publisher_system' AND a.attnum = ANY (c.conkey))
  FROM pg_catalog.pg_constraint c WHERE c.contype = 'p' AND c.conrelid = to_regclass(%s)
"""


MINE = sql.SQL("publisher_system = %s AND publisher_db = %s AND publication = %s AND subscription = %s")
"""Rows of one subscription. Its values are those of `key_values` without the first."""


def key_values(key: SubscriptionKey) -> list[str]:
    """Return the values of `publisher`, `publisher_system`, `publisher_db`, `publication` and `subscription`."""
    return [key.publisher, key.publisher_system, key.publisher_db, key.publication, key.subscription]


def has_table(session: Session, table: sql.Identifier) -> bool:
    return session.execute("SELECT to_regclass(%s)", [table.as_string(None)]).fetchone() != (None,)


def create_model_tables(session: Session) -> None:
    """Create the model's tables, inside a transaction. Idempotent; tables of earlier versions get what they lack."""
    for statement in _TABLES:
        session.execute(sql.SQL(statement).format(watermarks=WATERMARKS, objects=OBJECTS, snapshots=SNAPSHOTS))
    for table, columns in _PRIMARY_KEYS:
        found = session.execute(_KEY_OF, [table.as_string(session)]).fetchone()
        if found is not None and not found[1]:
            session.execute(
                sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}, ADD PRIMARY KEY ({})").format(
                    table, sql.Identifier(found[0]), sql.SQL(", ").join(map(sql.Identifier, columns))
                )
            )


def adopt_unidentified_rows(session: Session, key: SubscriptionKey) -> None:
    """Give rows that an earlier version wrote, which did not say which server the Publisher is, the identity of this
    one, where they were written for its address. Inside a transaction."""
    mine = [key.publisher_db, key.publication, key.subscription]
    known = session.execute(
        sql.SQL("SELECT publisher_system, publisher FROM {} WHERE {} AND stream = 0").format(WATERMARKS, _OF_NAME), mine
    ).fetchall()
    systems: dict[str, str] = dict(known)
    if key.publisher_system in systems or systems.get("") != key.publisher:
        return
    for table in (WATERMARKS, SNAPSHOTS):
        session.execute(
            sql.SQL("UPDATE {} SET publisher_system = %s WHERE {} AND publisher_system = ''").format(table, _OF_NAME),
            [key.publisher_system, *mine],
        )


_OF_NAME = sql.SQL("publisher_db = %s AND publication = %s AND subscription = %s")
