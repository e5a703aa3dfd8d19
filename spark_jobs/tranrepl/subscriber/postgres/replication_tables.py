"""The model's tables at a PostgreSQL Subscriber.

Source: `MSreplication_subscriptions`, `MSreplication_objects`, `MSsubscription_articles`.
"""

from __future__ import annotations

from psycopg import sql

from tranrepl.subscriber.postgres.procedures import SCHEMA
from tranrepl.subscriber.subscription import SubscriptionKey

WATERMARKS = sql.Identifier(SCHEMA, "msreplication_subscriptions")
OBJECTS = sql.Identifier(SCHEMA, "msreplication_objects")
SNAPSHOTS = sql.Identifier(SCHEMA, "msreplication_snapshots")
ARTICLES = sql.Identifier(SCHEMA, "mssubscription_articles")
VERSION = sql.Identifier(SCHEMA, "msrepl_version")

MINE = sql.SQL("publisher_system = %s AND publisher_db = %s AND publication = %s AND subscription = %s")
"""Rows of one subscription. Its values are those of `key_values` without the first."""


def key_values(key: SubscriptionKey) -> list[str]:
    """Return the values of `publisher`, `publisher_system`, `publisher_db`, `publication` and `subscription`."""
    return [key.publisher, key.publisher_system, key.publisher_db, key.publication, key.subscription]
