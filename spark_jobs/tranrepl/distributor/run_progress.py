"""What a delivery records while it goes on: its history row's counts, and tracer tokens that have arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql
from psycopg.types.json import Json

from tranrepl.distributor.schema import find_schema
from tranrepl.distributor.tables import RunStatus, msdistribution_history, mstracer_history, mstracer_tokens
from tranrepl.postgres.session import Session

# A worker that the job did not outlive, or that is late, changes nothing of a run that has ended.
_ADD = sql.SQL("""
UPDATE {} AS run
SET runstatus = %(in_progress)s,
    time = now(),
    duration = greatest(run.duration, extract(epoch FROM now() - run.start_time)),
    delivered_transactions = run.delivered_transactions + %(transactions)s,
    delivered_commands = run.delivered_commands + %(commands)s,
    delivery_rate = (run.delivered_commands + %(commands)s)
        / greatest(1, run.duration, extract(epoch FROM now() - run.start_time)),
    bulk_commands = run.bulk_commands + %(in_bulk)s,
    commands_by_article = (
        SELECT coalesce(json_object_agg(article, commands), '{{}}')
        FROM (
            SELECT article, sum(commands::bigint) AS commands
            FROM (
                SELECT * FROM json_each_text(run.commands_by_article)
                UNION ALL
                SELECT * FROM json_each_text(%(by_article)s)
            ) AS counts (article, commands)
            GROUP BY article
        ) AS summed
    ),
    comments = format(
        '%%s %%s with %%s %%s delivered.',
        to_char(run.delivered_transactions + %(transactions)s, 'FM999,999,999,999'),
        CASE run.delivered_transactions + %(transactions)s WHEN 1 THEN 'transaction' ELSE 'transactions' END,
        to_char(run.delivered_commands + %(commands)s, 'FM999,999,999,999'),
        CASE run.delivered_commands + %(commands)s WHEN 1 THEN 'command' ELSE 'commands' END
    )
WHERE id = %(run_id)s AND runstatus IN (%(start)s, %(in_progress)s)
""")


def add_to_run(
    session: Session,
    schema: str,
    run_id: int,
    transactions: int,
    commands: int,
    in_bulk: int,
    by_article: Mapping[str, int],
) -> None:
    """Add what was committed meanwhile to the history row of a run that goes on. Raises psycopg.Error.

    `schema` is where our tables are."""
    session.execute(
        _ADD.format(sql.Identifier(schema, msdistribution_history.name)),
        {
            "run_id": run_id,
            "start": RunStatus.START.value,
            "in_progress": RunStatus.IN_PROGRESS.value,
            "transactions": transactions,
            "commands": commands,
            "in_bulk": in_bulk,
            "by_article": Json(by_article),
        },
    )


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
