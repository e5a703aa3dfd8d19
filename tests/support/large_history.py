"""A publication of many articles and subscriptions with a long history, made by SQL, and commands of its store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pyarrow as pa

from support.registered import unused_fields
from tranrepl.connections import Connection
from tranrepl.distributor.command_file import write_commands
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.store import store_at
from tranrepl.distributor.tables import mspublications
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import XACT_SEQNO_BYTES, Operation
from tranrepl.model.names import TableName

ROW_KEY = "471100815"
"""The key of the rows that errors are about."""


@dataclass(frozen=True, slots=True)
class Size:
    articles: int = 200
    subscriptions: int = 50
    runs: int = 100_000
    """History rows of all subscriptions together, over two days."""


_PUBLICATION = """
INSERT INTO mspublications (publication, publisher_db, slot_name, store, registered_to, publisher_system)
VALUES (%(name)s, 'shop', 'tranrepl_large', '/store/large', decode('000000ffffffffff', 'hex'), '7')
"""
_ARTICLES = """
INSERT INTO msarticles (publication_id, source_owner, source_object, destination_owner, destination_object,
                        source_object_id, columns, ins_cmd, upd_cmd, del_cmd, status, source_definition, file_names)
SELECT publication_id, 'public', 'item_' || n, 'public', 'item_' || n, 20000 + n,
       (SELECT json_agg(json_build_object('name', 'column_' || c, 'ordinal', c, 'type_oid', 25, 'type_modifier', -1,
                                          'type_name', 'text', 'key_ordinal', CASE WHEN c = 1 THEN 1 END))
          FROM generate_series(1, 20) c),
       'CALL', 'SCALL', 'CALL', 'active', %(source_definition)s, %(file_names)s
  FROM mspublications, generate_series(1, %(articles)s) n WHERE publication = %(name)s
"""
_SUBSCRIPTIONS = """
INSERT INTO mssubscriptions (publication_id, subscription, subscriber_db, status)
SELECT publication_id, 'shop_' || lpad(n::text, 3, '0'), 'copy_' || n, 'active'
  FROM mspublications, generate_series(1, %(subscriptions)s) n WHERE publication = %(name)s
"""
# One batch, one run of the log reader, and one run of each subscription a minute or so: in most of them something.
_SEQNO = "decode(lpad(to_hex({0} * 8), 16, '0'), 'hex')"
_BATCHES = f"""
INSERT INTO msrepl_batches (publication_id, folder, first_xact_seqno, last_xact_seqno, first_commit_time,
                            last_commit_time, transactions, commands, log_bytes, entry_time)
SELECT publication_id, 'batch_' || n, {_SEQNO.format("(n * 10 - 9)")}, {_SEQNO.format("n * 10")},
       at - interval '3 s', at - interval '2 s', 10, 100, 10000, at
  FROM mspublications, generate_series(1, %(rounds)s) n,
       LATERAL (SELECT now() - interval '2 days' * (1 - n::float / %(rounds)s) AS at) a
 WHERE publication = %(name)s
"""
_HISTORY = """
       {status} AS runstatus, at - interval '1 s', at, 1.0,
       CASE WHEN {status} = 4 THEN 'No replicated transactions are available.'
            ELSE '10 transactions with 100 commands delivered, 100 of them in bulk, 0 serially.' END,
       {seqno}, CASE WHEN {status} = 4 THEN 0 ELSE 10 END, CASE WHEN {status} = 4 THEN 0 ELSE 100 END,
       CASE WHEN {status} = 4 THEN 0 ELSE 100.0 END, CASE WHEN {status} = 4 THEN NULL ELSE 500 + n %% 700 END,
       CASE WHEN {status} = 4 THEN json_build_object()
            ELSE json_build_object('public.item_' || (1 + n %% %(articles)s), 60,
                                   'public.item_' || (1 + (n + 1) %% %(articles)s), 40) END
"""
_COLUMNS = """runstatus, start_time, time, duration, comments, xact_seqno, delivered_transactions, delivered_commands,
              delivery_rate, delivery_latency, commands_by_article"""
_LOG_READER = f"""
INSERT INTO mslogreader_history (publication_id, {_COLUMNS})
SELECT publication_id, {_HISTORY.format(status="2", seqno=_SEQNO.format("n * 10"))}
  FROM mspublications, generate_series(1, %(rounds)s) n,
       LATERAL (SELECT now() - interval '2 days' * (1 - n::float / %(rounds)s) AS at) a
 WHERE publication = %(name)s
"""
_DISTRIBUTION = f"""
INSERT INTO msdistribution_history (publication_id, subscription_id, {_COLUMNS})
SELECT publication_id, subscription_id,
       {_HISTORY.format(status="(CASE WHEN n %% 3 = 0 THEN 4 ELSE 2 END)", seqno=_SEQNO.format("n * 10"))}
  FROM mspublications JOIN mssubscriptions USING (publication_id), generate_series(1, %(rounds)s) n,
       LATERAL (SELECT now() - interval '2 days' * (1 - n::float / %(rounds)s) AS at) a
 WHERE publication = %(name)s ORDER BY n
"""
_DELIVERIES = """
INSERT INTO msrepl_deliveries (subscription_id, time, publication_id, seconds, transactions, commands,
                               undelivered_commands, latency)
SELECT subscription_id, date_trunc('minute', msdistribution_history.time, 'UTC'), publication_id, 60,
       sum(delivered_transactions), sum(delivered_commands), 0,
       json_build_object('registered', json_build_object(80 + min(id) %% 5, 40, 85 + min(id) %% 3, 60),
                         'delivered', json_build_object(70 + min(id) %% 5, 40, 75 + min(id) %% 3, 60),
                         'overall', json_build_object(86 + min(id) %% 5, 40, 91 + min(id) %% 3, 60),
                         'clock_difference', 100)
  FROM msdistribution_history JOIN mspublications USING (publication_id)
 WHERE publication = %(name)s AND delivered_commands > 0 GROUP BY 1, 2, 3
"""
_ERRORS = f"""
INSERT INTO msrepl_errors (publication_id, subscription, time, error_type, error_code, error_text, article, xact_seqno,
                           command_id, command, row_key)
SELECT publication_id, 'shop_001', now() - interval '1 min' * n, 'data', '20598', 'The row was not found.',
       'public.item_1', {_SEQNO.format("n")}, 1, '{{CALL sp_MSupd_item_1 (1, ...)}}', 'id = {ROW_KEY}'
  FROM mspublications, generate_series(1, 500) n WHERE publication = %(name)s
"""


def make_large_history(connection: Connection, size: Size, name: str) -> None:
    """Make the publication in a distribution database."""
    with DistributionDatabase(connection) as database:
        database.migrate()
    values = {
        "name": name,
        "articles": size.articles,
        "subscriptions": size.subscriptions,
        "rounds": size.runs // size.subscriptions,
        **{name: it.model_dump_json() for name, it in unused_fields(TableName("public", "item")).items()},
    }
    agents = (_BATCHES, _LOG_READER, _DISTRIBUTION, _DELIVERIES, _ERRORS)
    with psycopg.connect(**connection.libpq_parameters("test"), autocommit=True) as session:  # type: ignore[arg-type]
        for statement in (_PUBLICATION, _ARTICLES, _SUBSCRIPTIONS, *agents):
            session.execute(statement, values)
        session.execute("ANALYZE")


def store_commands(connection: Connection, name: str, store: Path, batches: int) -> None:
    """Write the commands of the publication's first batches, of all its articles in turn, each half a kilobyte."""
    with DistributionDatabase(connection) as database, database.transaction() as session:
        session.execute(mspublications.update().values(store=str(store)).where(mspublications.c.publication == name))
        record = database.publications.get(name)
        articles = sorted(database.articles.by_id(record))
    for number in range(1, batches + 1):
        rows = [_command(number * 10 - 9 + at // 10, at % 10 + 1, articles[at % len(articles)]) for at in range(100)]
        batches_of = pa.Table.from_pylist(rows, ROW_LAYOUT).to_batches()
        (store / write_commands(store_at(str(store)), batches_of)).rename(store / f"batch_{number}")


def _command(transaction: int, command_id: int, article_id: int) -> dict[str, object]:
    return {
        "xact_seqno": (transaction * 8).to_bytes(XACT_SEQNO_BYTES, "big"),
        "command_id": command_id,
        "commit_time": datetime(2026, 3, 1, tzinfo=UTC),
        "article_id": article_id,
        "operation": Operation.INSERT,
        "before": None,
        "after": "\t".join([str(transaction), *["a value of some length"] * 19]),
        "changed": None,
    }
