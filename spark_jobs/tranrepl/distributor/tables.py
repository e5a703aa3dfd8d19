"""The distribution database's tables, named after SQL Server's (lower case, as the database folds names).

Source: the pages of the same names in SQL Server's "Replication Tables". `setup` makes them as they are
declared here, and changes those that an earlier version made by Alembic's revisions (`migrations`).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import sqlalchemy as sa

VERSION_TABLE = "tranrepl_version"
"""Where Alembic writes down which revision the schema has."""

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


class ArticleStatus(StrEnum):
    ACTIVE = "active"
    INACTIVE = "inactive"
    """Replaced by a later definition, or no longer published; stored commands still refer to it."""
    ENDED = "ended"
    """Its table was dropped, or taken out of the publication, though the article's file still names it."""


class SubscriptionStatus(StrEnum):
    """The status of a subscription, and of an article of it (`status` of MSsubscriptions)."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    SUBSCRIBED = "subscribed"
    """It waits for its snapshot."""
    INITIATED = "initiated"
    """A snapshot is on its way, or was interrupted."""


WITHOUT_SNAPSHOT = (SubscriptionStatus.SUBSCRIBED, SubscriptionStatus.INITIATED)
"""The states of what waits for its snapshot, not begun or not ended."""


class RunStatus(IntEnum):
    """`runstatus` of the history tables (MSdistribution_history)."""

    START = 1
    SUCCEED = 2
    IN_PROGRESS = 3
    IDLE = 4
    RETRY = 5
    FAIL = 6

    @property
    def in_words(self) -> str:
        """How a run goes or went, in the words of the terminal and of Replication Monitor."""
        return _IN_WORDS[self]


_IN_WORDS = {
    RunStatus.START: "Started",
    RunStatus.SUCCEED: "Succeeded",
    RunStatus.IN_PROGRESS: "In progress",
    RunStatus.IDLE: "Idle",
    RunStatus.RETRY: "Failed",
    RunStatus.FAIL: "Failed",
}

_Time = sa.DateTime(timezone=True)
_Seqno = sa.LargeBinary(16)


def _publication() -> sa.Column[int]:
    return sa.Column("publication_id", sa.ForeignKey("mspublications.publication_id"), nullable=False)


mspublications = sa.Table(
    "mspublications",
    metadata,
    sa.Column("publication_id", sa.Integer, sa.Identity(), primary_key=True),
    sa.Column("publication", sa.Text, nullable=False, unique=True),
    sa.Column("publisher_db", sa.Text, nullable=False),
    sa.Column("slot_name", sa.Text, nullable=False),
    sa.Column("store", sa.Text, nullable=False),
    sa.Column("registered_xact_seqno", _Seqno, comment="Log reader watermark: last transaction registered"),
    sa.Column("registered_to", _Seqno, comment="End of the part of the Publisher's log that is registered"),
    sa.Column(
        "registered_proof",
        sa.Text,
        comment="What tells the log before registered_to from another one; NULL where its timeline does",
    ),
    sa.Column("removed_xact_seqno", _Seqno, comment="Last transaction whose commands clean-up has removed"),
    sa.Column("read_from", _Seqno, comment="Where reading the log began; NULL before it has begun"),
    sa.Column("time", _Time, nullable=False, server_default=sa.func.now()),
    sa.Column("publisher_system", sa.Text, comment="System identifier of the server whose log is registered"),
    sa.Column("timeline", sa.Integer, comment="The log's timeline at registered_to"),
    sa.Column("registered_commit_time", _Time, comment="A time by which the last registered transaction was committed"),
    sa.Column("scripts", sa.JSON, comment="SHA-256 of each script that `tranrepl exec FILE` wrote into the log"),
    sa.Column("tracer_posted", _Time, comment="When tracer_interval last posted a tracer token"),
    sa.Column(
        "pending_definitions",
        sa.JSON,
        comment="Definitions of articles that setup wrote down, and the log reader has not come to yet",
    ),
    sa.Column(
        "articles_version",
        sa.Integer,
        nullable=False,
        server_default="0",
        comment="How often articles were changed other than by a batch",
    ),
    sa.Column(
        "compared_state",
        sa.Text,
        comment="SHA-256 of the state in which tables and articles were last found alike",
    ),
)

msrepl_version = sa.Table(
    "msrepl_version",
    metadata,
    sa.Column("revision", sa.Text, primary_key=True, comment="Alembic's revision of these tables"),
    sa.Column(
        "version", sa.Text, nullable=False, comment="Version of tranrepl that made these tables, or migrated them last"
    ),
    sa.Column("time", _Time, nullable=False, server_default=sa.func.now()),
)

msrepl_distributor = sa.Table(
    "msrepl_distributor",
    metadata,
    sa.Column(
        "distribution_id",
        sa.Text,
        primary_key=True,
        server_default=sa.text("gen_random_uuid()::text"),
        comment="Tells this distribution database from others: its stores are marked with it",
    ),
)

msarticles = sa.Table(
    "msarticles",
    metadata,
    sa.Column("article_id", sa.Integer, sa.Identity(), primary_key=True),
    _publication(),
    sa.Column("source_owner", sa.Text, nullable=False),
    sa.Column("source_object", sa.Text, nullable=False),
    sa.Column("destination_owner", sa.Text, nullable=False),
    sa.Column("destination_object", sa.Text, nullable=False),
    sa.Column(
        "destinations",
        sa.JSON,
        nullable=False,
        server_default="{}",
        comment="Tables of subscriptions that have another destination",
    ),
    sa.Column("source_object_id", sa.BigInteger, nullable=False),
    sa.Column("columns", sa.JSON, nullable=False, comment="The published columns, in order"),
    sa.Column("ins_cmd", sa.Text, nullable=False),
    sa.Column("upd_cmd", sa.Text, nullable=False),
    sa.Column("del_cmd", sa.Text, nullable=False),
    sa.Column("filter_clause", sa.Text),
    sa.Column("update_policy", sa.Text, nullable=False, server_default="pairs"),
    sa.Column("truncate", sa.Text, nullable=False, server_default="replicate"),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("source_file", sa.JSON, comment="File of the source table when it was last looked at"),
    sa.Column(
        "begins_after",
        _Seqno,
        comment="Position at which it was reinitialized: earlier changes that do not fit are skipped",
    ),
    sa.Column("source_definition", sa.JSON, comment="The source table as setup or the last schema change left it"),
    sa.Column("file_names", sa.JSON, comment="Names in the article's file when setup last read it"),
)

msreplica_identities = sa.Table(
    "msreplica_identities",
    metadata,
    sa.Column("publisher_system", sa.Text, primary_key=True),
    sa.Column("publisher_db", sa.Text, primary_key=True),
    sa.Column("source_object_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column(
        "replica_identity", sa.Text, nullable=False, comment="The table's replica identity before setup: d, f, i or n"
    ),
    sa.Column("index_name", sa.Text, comment="Name of the index, where the replica identity was one"),
)

mssubscriptions = sa.Table(
    "mssubscriptions",
    metadata,
    sa.Column("subscription_id", sa.Integer, sa.Identity(), primary_key=True),
    _publication(),
    sa.Column("subscription", sa.Text, nullable=False),
    sa.Column("subscriber_db", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("subscription_time", _Time, nullable=False, server_default=sa.func.now()),
    sa.Column(
        "delivered_commands", sa.JSON, comment="Commands by article, from history rows that clean-up has removed"
    ),
    sa.Column("subscription_seqno", _Seqno, comment="Watermark of the snapshot that it began with"),
    sa.UniqueConstraint("publication_id", "subscription"),
)

msarticle_subscriptions = sa.Table(
    "msarticle_subscriptions",
    metadata,
    sa.Column("subscription_id", sa.ForeignKey("mssubscriptions.subscription_id"), primary_key=True),
    sa.Column("article", sa.Text, primary_key=True, comment="The article's source table"),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column(
        "subscription_seqno",
        _Seqno,
        comment="Commands up to this transaction are in the article's snapshot",
    ),
    sa.Column("time", _Time, nullable=False, server_default=sa.func.now()),
    sa.Column("reason", sa.Text, comment="Why it waits, or was stopped"),
    sa.Column("earlier_filter", sa.Text, comment="The row filter until then, where it changed"),
)

msrepl_batches = sa.Table(
    "msrepl_batches",
    metadata,
    sa.Column("batch_id", sa.BigInteger, sa.Identity(), primary_key=True),
    _publication(),
    sa.Column("folder", sa.Text, nullable=False, comment="Below the publication's store"),
    sa.Column("first_xact_seqno", _Seqno, nullable=False),
    sa.Column("last_xact_seqno", _Seqno, nullable=False),
    sa.Column("first_commit_time", _Time, nullable=False),
    sa.Column("last_commit_time", _Time, nullable=False, comment="Latest commit time of its transactions"),
    sa.Column("transactions", sa.BigInteger, nullable=False),
    sa.Column("commands", sa.BigInteger, nullable=False),
    sa.Column("log_bytes", sa.BigInteger, nullable=False),
    sa.Column("entry_time", _Time, nullable=False, server_default=sa.func.now()),
    sa.Column(
        "clock_difference",
        sa.BigInteger,
        comment="Microseconds by which the Publisher's clock was ahead of the distribution database's",
    ),
    sa.Column(
        "article_ids",
        sa.JSON(none_as_null=True),
        comment="Its commands' definitions; NULL where they are many",
    ),
    sa.UniqueConstraint("publication_id", "first_xact_seqno"),
    sa.Index(None, "publication_id", "last_xact_seqno"),
)

msrepl_replaced_folders = sa.Table(
    "msrepl_replaced_folders",
    metadata,
    sa.Column("folder", sa.Text, primary_key=True, comment="Below the publication's store"),
    _publication(),
    sa.Column(
        "replaced_time", _Time, nullable=False, server_default=sa.func.now(), comment="When it was replaced or found"
    ),
)

msschema_changes = sa.Table(
    "msschema_changes",
    metadata,
    sa.Column("publication_id", sa.ForeignKey("mspublications.publication_id"), primary_key=True),
    sa.Column("xact_seqno", _Seqno, primary_key=True),
    sa.Column("command_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("article_id", sa.ForeignKey("msarticles.article_id"), comment="Definition before; NULL for a script"),
    sa.Column(
        "new_article_id",
        sa.ForeignKey("msarticles.article_id", name="fk_msschema_changes_msarticles_new"),
        comment="Definition after",
    ),
    sa.Column("change", sa.JSON, nullable=False, comment="What changed, as the command has it; a script's name"),
    sa.Column("entry_time", _Time, nullable=False, server_default=sa.func.now()),
)


mstracer_tokens = sa.Table(
    "mstracer_tokens",
    metadata,
    sa.Column("tracer_id", sa.Integer, sa.Identity(), primary_key=True),
    _publication(),
    sa.Column("publisher_commit", _Time, nullable=False, comment="When it was committed, by the Publisher's clock"),
    sa.Column(
        "distributor_commit",
        _Time,
        nullable=False,
        server_default=sa.func.now(),
        comment="When it was registered, by the distribution database's clock",
    ),
    sa.Column("xact_seqno", _Seqno, nullable=False),
    sa.Column("command_id", sa.BigInteger, nullable=False),
    sa.Column("token", sa.Text, nullable=False, comment="What the Publisher's log has of it"),
    sa.Column(
        "clock_difference",
        sa.BigInteger,
        comment="Microseconds by which the Publisher's clock was ahead of the distribution database's",
    ),
    sa.UniqueConstraint("publication_id", "xact_seqno", "command_id"),
)

mstracer_history = sa.Table(
    "mstracer_history",
    metadata,
    sa.Column("parent_tracer_id", sa.ForeignKey("mstracer_tokens.tracer_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("subscription_id", sa.ForeignKey("mssubscriptions.subscription_id"), primary_key=True),
    sa.Column(
        "subscriber_commit",
        _Time,
        nullable=False,
        server_default=sa.func.now(),
        comment="When the Subscriber had it, by the distribution database's clock",
    ),
)

msrepl_deliveries = sa.Table(
    "msrepl_deliveries",
    metadata,
    sa.Column("subscription_id", sa.ForeignKey("mssubscriptions.subscription_id"), primary_key=True),
    sa.Column("time", _Time, primary_key=True, comment="When the time span begins"),
    _publication(),
    sa.Column("seconds", sa.Integer, nullable=False, comment="How long the time span is: 60, or 3600 once it is old"),
    sa.Column("transactions", sa.BigInteger, nullable=False, comment="Committed at the Subscriber within it"),
    sa.Column("commands", sa.BigInteger, nullable=False, comment="Committed at the Subscriber within it"),
    sa.Column(
        "undelivered_commands", sa.BigInteger, comment="The most that a run within it left undelivered; NULL for none"
    ),
    sa.Column("latency", sa.JSON, nullable=False, comment="Commands by leg and bucket, by how long they took"),
    sa.Index(None, "publication_id", "time"),
)

msrepl_warnings = sa.Table(
    "msrepl_warnings",
    metadata,
    sa.Column("publication_id", sa.ForeignKey("mspublications.publication_id"), primary_key=True),
    sa.Column("subscription", sa.Text, primary_key=True, comment="Its name; empty for the Publisher's log"),
    sa.Column("warning", sa.Text, primary_key=True, comment="The subject of the warning"),
    sa.Column("time", _Time, nullable=False, server_default=sa.func.now(), comment="When it was sent"),
)


def _history(name: str, *own: sa.Column[int]) -> sa.Table:
    return sa.Table(
        name,
        metadata,
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        _publication(),
        *own,
        sa.Column("runstatus", sa.SmallInteger, nullable=False),
        sa.Column("start_time", _Time, nullable=False),
        sa.Column("time", _Time, nullable=False, server_default=sa.func.now()),
        sa.Column("duration", sa.Float, nullable=False, comment="Seconds"),
        sa.Column("comments", sa.Text, nullable=False),
        sa.Column("xact_seqno", _Seqno),
        sa.Column("delivered_transactions", sa.BigInteger, nullable=False),
        sa.Column("delivered_commands", sa.BigInteger, nullable=False),
        sa.Column("delivery_rate", sa.Float, nullable=False, comment="Commands a second"),
        sa.Column(
            "delivery_latency",
            sa.BigInteger,
            comment="Milliseconds from the last transaction's commit until it was stored or delivered",
        ),
        sa.Column("commands_by_article", sa.JSON, nullable=False),
        sa.Column("error_id", sa.ForeignKey("msrepl_errors.id")),
        sa.Index(None, "publication_id", "time"),
    )


msrepl_errors = sa.Table(
    "msrepl_errors",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    _publication(),
    sa.Column("subscription", sa.Text),
    sa.Column("time", _Time, nullable=False, server_default=sa.func.now()),
    sa.Column("error_type", sa.Text, nullable=False),
    sa.Column("error_code", sa.Text),
    sa.Column("error_text", sa.Text, nullable=False),
    sa.Column("remedy", sa.Text, comment="What to do about it"),
    sa.Column("article", sa.Text),
    sa.Column("xact_seqno", _Seqno),
    sa.Column("command_id", sa.BigInteger),
    sa.Column("command", sa.Text, comment="As sp_browsereplcmds shows it"),
    sa.Column("skipped", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("row_key", sa.Text, comment="The row's key, as id = 5"),
    sa.Column("acknowledged_at", _Time, comment="When a person acknowledged it"),
    sa.Column("acknowledged_by", sa.Text, comment="Who did"),
    sa.Column("not_repaired", sa.Text, comment="Why a validation does not correct the article's rows"),
    sa.Column(
        "schema_change",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="Whether the delivery stopped before a schema change",
    ),
    sa.Column(
        "damaged_batch",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="Whether a batch is not in the store as it was registered",
    ),
    sa.Index(None, "publication_id", "id"),
)

mslogreader_history = _history("mslogreader_history")
msdistribution_history = _history(
    "msdistribution_history",
    sa.Column("subscription_id", sa.ForeignKey("mssubscriptions.subscription_id"), nullable=False),
    sa.Column(
        "bulk_commands",
        sa.BigInteger,
        nullable=False,
        server_default="0",
        comment="How many of delivered_commands were applied in bulk",
    ),
    sa.Column("fallbacks", sa.JSON, comment="Why steps that were tried in bulk were applied serially, and how often"),
    sa.Column("snapshot", sa.JSON, comment="Progress of each table that a snapshot copies"),
    sa.Column("latency", sa.JSON, comment="Seconds within which 50, 95 and 99 % of the commands were there, by leg"),
)
sa.Index(None, msdistribution_history.c.subscription_id, msdistribution_history.c.id)
sa.Index(None, msdistribution_history.c.subscription_id, msdistribution_history.c.time)
