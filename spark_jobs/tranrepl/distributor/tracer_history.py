"""Arrivals of tracer tokens, recorded by the process that applies."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.postgres.session import Session

_RECORD = """
INSERT INTO mstracer_history (parent_tracer_id, subscription_id, subscriber_commit)
SELECT tracer_id, %(subscription_id)s, clock_timestamp()
  FROM mstracer_tokens WHERE tracer_id = ANY (%(arrived)s)
ON CONFLICT DO NOTHING
"""


def record_arrivals(session: Session, subscription_id: int, tracer_ids: Sequence[int]) -> None:
    """Write down that a subscription has these tokens, by the database's clock. Raises psycopg.Error."""
    session.execute(_RECORD, {"subscription_id": subscription_id, "arrived": list(tracer_ids)})
