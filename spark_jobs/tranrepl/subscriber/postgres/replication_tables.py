"""The model's tables at a PostgreSQL Subscriber.

Source: `MSreplication_subscriptions`, `MSreplication_objects`, `MSsubscription_articles`.
"""

from __future__ import annotations

from psycopg import sql

from tranrepl.subscriber.postgres.procedures import SCHEMA

OBJECTS = sql.Identifier(SCHEMA, "msreplication_objects")
