"""Arrivals of tracer tokens, recorded by the process that applies."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from tranrepl.distributor.schema import find_schema
from tranrepl.distributor.tables import mstracer_history, mstracer_tokens
from tranrepl.postgres.session import Session

_RECORD = sql.SQL("""
INSERT INTO {history} (parent_tracer_id, subscription_id, subscriber_commit)
SELECT tracer_id, %(subscription_id)s, clock_timestamp()
  FROM {tokens} WHERE tracer_id = ANY (%(arrived)s)
ON CONFLICT DO NOTHING
""")


def record_arrivals(session: Session, subscription_id: int, tracer_ids: Sequence[int]) -> None:
    """Write down that a subscription has these tokens, by the database's clock. Raises psycopg.Error,
    and ConfigurationError where its tables are not found."""
    schema = find_schema(session)
    record = _RECORD.format(
        history=sql.Identifier(schema, mstracer_history.name), tokens=sql.Identifier(schema, mstracer_tokens.name)
    )
    session.execute(record, {"subscription_id": subscription_id, "arrived": list(tracer_ids)})
