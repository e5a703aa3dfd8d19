"""Columns and comments say what they hold in plain words, and in no one database's"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_RENAMED = (("registered_lsn", "registered_to"), ("start_lsn", "read_from"))
_COMMENTS = (
    (
        "mspublications",
        "registered_to",
        "End of the log part that is registered",
        "End of the part of the Publisher's log that is registered",
    ),
    ("mspublications", "timeline", "Of that log, at registered_lsn", "The log's timeline at registered_to"),
    (
        "mspublications",
        "registered_commit_time",
        "By which the last registered transaction was committed",
        "A time by which the last registered transaction was committed",
    ),
    ("msrepl_version", "revision", "Alembic's, of these tables", "Alembic's revision of these tables"),
    (
        "msrepl_version",
        "version",
        "Of tranrepl, which made them or migrated them last",
        "Version of tranrepl that made these tables, or migrated them last",
    ),
    ("msarticles", "columns", "PublishedColumn, in order", "The published columns, in order"),
    (
        "msarticles",
        "source_file",
        "TableFile of the source table, as it was when it was last looked at",
        "File of the source table when it was last looked at",
    ),
    (
        "msarticles",
        "begins_after",
        "LSN after which its rows begin anew: what does not fit before is left",
        "Position at which it was reinitialized: earlier changes that do not fit are skipped",
    ),
    (
        "msreplica_identities",
        "replica_identity",
        "Of the table, before setup: d, f, i or n",
        "The table's replica identity before setup: d, f, i or n",
    ),
    (
        "msreplica_identities",
        "index_name",
        "Where it was an index",
        "Name of the index, where the replica identity was one",
    ),
    (
        "mssubscriptions",
        "delivered_commands",
        "By article, of history that clean-up has removed",
        "Commands by article, from history rows that clean-up has removed",
    ),
    (
        "msarticle_subscriptions",
        "subscription_seqno",
        "What the Subscriber's table holds of the log: commands up to it are in the article's snapshot",
        "Commands up to this transaction are in the article's snapshot",
    ),
    ("msarticle_subscriptions", "article", "Its source table", "The article's source table"),
    (
        "msarticle_subscriptions",
        "earlier_filter",
        "Of rows that it had until then, where its filter changed",
        "The row filter until then, where it changed",
    ),
    ("msrepl_batches", "last_commit_time", "The latest, not the last's", "Latest commit time of its transactions"),
    (
        "msdistribution_history",
        "bulk_commands",
        "Of delivered_commands",
        "How many of delivered_commands were applied in bulk",
    ),
    (
        "msdistribution_history",
        "fallbacks",
        "Why steps in bulk went one by one after all, and how often",
        "Why steps that were tried in bulk were applied serially, and how often",
    ),
    (
        "msdistribution_history",
        "snapshot",
        "TableProgress of each table that a snapshot copies",
        "Progress of each table that a snapshot copies",
    ),
    (
        "mslogreader_history",
        "delivery_latency",
        "Milliseconds from the commit at the Publisher, of the last transaction",
        "Milliseconds from the last transaction's commit until it was stored or delivered",
    ),
    (
        "msdistribution_history",
        "delivery_latency",
        "Milliseconds from the commit at the Publisher, of the last transaction",
        "Milliseconds from the last transaction's commit until it was stored or delivered",
    ),
)
"""Table, column, comment before, comment after."""


def upgrade() -> None:
    for before, after in _RENAMED:
        op.alter_column("mspublications", before, new_column_name=after)
    for table, column, before, after in _COMMENTS:
        op.alter_column(table, column, comment=after, existing_comment=before)


def downgrade() -> None:
    for table, column, before, after in _COMMENTS:
        op.alter_column(table, column, comment=before, existing_comment=after)
    for before, after in _RENAMED:
        op.alter_column("mspublications", after, new_column_name=before)
