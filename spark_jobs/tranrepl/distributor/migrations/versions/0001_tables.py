"""The tables of the distribution database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "mspublications",
        sa.Column("publication_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("publication", sa.Text(), nullable=False),
        sa.Column("publisher_db", sa.Text(), nullable=False),
        sa.Column("slot_name", sa.Text(), nullable=False),
        sa.Column("store", sa.Text(), nullable=False),
        sa.Column(
            "registered_xact_seqno",
            sa.LargeBinary(length=16),
            nullable=True,
            comment="Log reader watermark: last transaction registered",
        ),
        sa.Column(
            "registered_to",
            sa.LargeBinary(length=16),
            nullable=True,
            comment="End of the part of the Publisher's log that is registered",
        ),
        sa.Column(
            "registered_proof",
            sa.Text(),
            nullable=True,
            comment="What tells the log before registered_to from another one; NULL where its timeline does",
        ),
        sa.Column(
            "removed_xact_seqno",
            sa.LargeBinary(length=16),
            nullable=True,
            comment="Last transaction whose commands clean-up has removed",
        ),
        sa.Column(
            "read_from",
            sa.LargeBinary(length=16),
            nullable=True,
            comment="Where reading the log began; NULL before it has begun",
        ),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "publisher_system",
            sa.Text(),
            nullable=True,
            comment="System identifier of the server whose log is registered",
        ),
        sa.Column("timeline", sa.Integer(), nullable=True, comment="The log's timeline at registered_to"),
        sa.Column(
            "registered_commit_time",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="A time by which the last registered transaction was committed",
        ),
        sa.Column(
            "scripts",
            sa.JSON(),
            nullable=True,
            comment="SHA-256 of each script that `tranrepl exec FILE` wrote into the log",
        ),
        sa.Column(
            "tracer_posted",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When tracer_interval last posted a tracer token",
        ),
        sa.Column(
            "pending_definitions",
            sa.JSON(),
            nullable=True,
            comment="Definitions of articles that setup wrote down, and the log reader has not come to yet",
        ),
        sa.Column(
            "articles_version",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="How often articles were changed other than by a batch",
        ),
        sa.Column(
            "compared_state",
            sa.Text(),
            nullable=True,
            comment="SHA-256 of the state in which tables and articles were last found alike",
        ),
        sa.PrimaryKeyConstraint("publication_id", name=op.f("pk_mspublications")),
        sa.UniqueConstraint("publication", name=op.f("uq_mspublications_publication")),
    )
    distributor = op.create_table(
        "msrepl_distributor",
        sa.Column(
            "distribution_id",
            sa.Text(),
            server_default=sa.text("gen_random_uuid()::text"),
            nullable=False,
            comment="Tells this distribution database from others: its stores are marked with it",
        ),
        sa.PrimaryKeyConstraint("distribution_id", name=op.f("pk_msrepl_distributor")),
    )
    op.execute(sa.insert(distributor).values())
    op.create_table(
        "msrepl_version",
        sa.Column("revision", sa.Text(), nullable=False, comment="Alembic's revision of these tables"),
        sa.Column(
            "version",
            sa.Text(),
            nullable=False,
            comment="Version of tranrepl that made these tables, or migrated them last",
        ),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_msrepl_version")),
    )
    op.create_table(
        "msreplica_identities",
        sa.Column("publisher_system", sa.Text(), nullable=False),
        sa.Column("publisher_db", sa.Text(), nullable=False),
        sa.Column("source_object_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "replica_identity",
            sa.Text(),
            nullable=False,
            comment="The table's replica identity before setup: d, f, i or n",
        ),
        sa.Column(
            "index_name", sa.Text(), nullable=True, comment="Name of the index, where the replica identity was one"
        ),
        sa.PrimaryKeyConstraint(
            "publisher_system", "publisher_db", "source_object_id", name=op.f("pk_msreplica_identities")
        ),
    )
    op.create_table(
        "msarticles",
        sa.Column("article_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("source_owner", sa.Text(), nullable=False),
        sa.Column("source_object", sa.Text(), nullable=False),
        sa.Column("destination_owner", sa.Text(), nullable=False),
        sa.Column("destination_object", sa.Text(), nullable=False),
        sa.Column(
            "destinations",
            sa.JSON(),
            server_default="{}",
            nullable=False,
            comment="Tables of subscriptions that have another destination",
        ),
        sa.Column("source_object_id", sa.BigInteger(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False, comment="The published columns, in order"),
        sa.Column("ins_cmd", sa.Text(), nullable=False),
        sa.Column("upd_cmd", sa.Text(), nullable=False),
        sa.Column("del_cmd", sa.Text(), nullable=False),
        sa.Column("filter_clause", sa.Text(), nullable=True),
        sa.Column("update_policy", sa.Text(), server_default="pairs", nullable=False),
        sa.Column("truncate", sa.Text(), server_default="replicate", nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column(
            "source_file", sa.JSON(), nullable=True, comment="File of the source table when it was last looked at"
        ),
        sa.Column(
            "begins_after",
            sa.LargeBinary(length=16),
            nullable=True,
            comment="Position at which it was reinitialized: earlier changes that do not fit are skipped",
        ),
        sa.Column(
            "source_definition",
            sa.JSON(),
            nullable=True,
            comment="The source table as setup or the last schema change left it",
        ),
        sa.Column(
            "file_names", sa.JSON(), nullable=True, comment="Names in the article's file when setup last read it"
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_msarticles_mspublications")
        ),
        sa.PrimaryKeyConstraint("article_id", name=op.f("pk_msarticles")),
    )
    op.create_table(
        "msrepl_batches",
        sa.Column("batch_id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False, comment="Below the publication's store"),
        sa.Column("first_xact_seqno", sa.LargeBinary(length=16), nullable=False),
        sa.Column("last_xact_seqno", sa.LargeBinary(length=16), nullable=False),
        sa.Column("first_commit_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "last_commit_time",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="Latest commit time of its transactions",
        ),
        sa.Column("transactions", sa.BigInteger(), nullable=False),
        sa.Column("commands", sa.BigInteger(), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("entry_time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "clock_difference",
            sa.BigInteger(),
            nullable=True,
            comment="Microseconds by which the Publisher's clock was ahead of the distribution database's",
        ),
        sa.Column(
            "article_ids",
            sa.JSON(none_as_null=True),
            nullable=True,
            comment="Its commands' definitions; NULL where they are many",
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_msrepl_batches_mspublications")
        ),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_msrepl_batches")),
        sa.UniqueConstraint(
            "publication_id", "first_xact_seqno", name=op.f("uq_msrepl_batches_publication_id_first_xact_seqno")
        ),
    )
    op.create_index(
        op.f("ix_msrepl_batches_publication_id_last_xact_seqno"),
        "msrepl_batches",
        ["publication_id", "last_xact_seqno"],
        unique=False,
    )
    op.create_table(
        "msrepl_replaced_folders",
        sa.Column("folder", sa.Text(), nullable=False, comment="Below the publication's store"),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column(
            "replaced_time",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was replaced or found",
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"],
            ["mspublications.publication_id"],
            name=op.f("fk_msrepl_replaced_folders_mspublications"),
        ),
        sa.PrimaryKeyConstraint("folder", name=op.f("pk_msrepl_replaced_folders")),
    )
    op.create_table(
        "msrepl_errors",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("subscription", sa.Text(), nullable=True),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("error_type", sa.Text(), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_text", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=True, comment="What to do about it"),
        sa.Column("article", sa.Text(), nullable=True),
        sa.Column("xact_seqno", sa.LargeBinary(length=16), nullable=True),
        sa.Column("command_id", sa.BigInteger(), nullable=True),
        sa.Column("command", sa.Text(), nullable=True, comment="As sp_browsereplcmds shows it"),
        sa.Column("skipped", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("row_key", sa.Text(), nullable=True, comment="The row's key, as id = 5"),
        sa.Column(
            "acknowledged_at", sa.DateTime(timezone=True), nullable=True, comment="When a person acknowledged it"
        ),
        sa.Column("acknowledged_by", sa.Text(), nullable=True, comment="Who did"),
        sa.Column(
            "not_repaired", sa.Text(), nullable=True, comment="Why a validation does not correct the article's rows"
        ),
        sa.Column(
            "schema_change",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Whether the delivery stopped before a schema change",
        ),
        sa.Column(
            "damaged_batch",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Whether a batch is not in the store as it was registered",
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_msrepl_errors_mspublications")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_msrepl_errors")),
    )
    op.create_index(op.f("ix_msrepl_errors_publication_id_id"), "msrepl_errors", ["publication_id", "id"], unique=False)
    op.create_table(
        "msrepl_warnings",
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("subscription", sa.Text(), nullable=False, comment="Its name; empty for the Publisher's log"),
        sa.Column("warning", sa.Text(), nullable=False, comment="The subject of the warning"),
        sa.Column(
            "time",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was sent",
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_msrepl_warnings_mspublications")
        ),
        sa.PrimaryKeyConstraint("publication_id", "subscription", "warning", name=op.f("pk_msrepl_warnings")),
    )
    op.create_table(
        "mssubscriptions",
        sa.Column("subscription_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("subscription", sa.Text(), nullable=False),
        sa.Column("subscriber_db", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("subscription_time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "delivered_commands",
            sa.JSON(),
            nullable=True,
            comment="Commands by article, from history rows that clean-up has removed",
        ),
        sa.Column(
            "subscription_seqno",
            sa.LargeBinary(length=16),
            nullable=True,
            comment="Watermark of the snapshot that it began with",
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_mssubscriptions_mspublications")
        ),
        sa.PrimaryKeyConstraint("subscription_id", name=op.f("pk_mssubscriptions")),
        sa.UniqueConstraint(
            "publication_id", "subscription", name=op.f("uq_mssubscriptions_publication_id_subscription")
        ),
    )
    op.create_table(
        "mstracer_tokens",
        sa.Column("tracer_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column(
            "publisher_commit",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="When it was committed, by the Publisher's clock",
        ),
        sa.Column(
            "distributor_commit",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was registered, by the distribution database's clock",
        ),
        sa.Column("xact_seqno", sa.LargeBinary(length=16), nullable=False),
        sa.Column("command_id", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False, comment="What the Publisher's log has of it"),
        sa.Column(
            "clock_difference",
            sa.BigInteger(),
            nullable=True,
            comment="Microseconds by which the Publisher's clock was ahead of the distribution database's",
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_mstracer_tokens_mspublications")
        ),
        sa.PrimaryKeyConstraint("tracer_id", name=op.f("pk_mstracer_tokens")),
        sa.UniqueConstraint(
            "publication_id",
            "xact_seqno",
            "command_id",
            name=op.f("uq_mstracer_tokens_publication_id_xact_seqno_command_id"),
        ),
    )
    op.create_table(
        "msarticle_subscriptions",
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("article", sa.Text(), nullable=False, comment="The article's source table"),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column(
            "subscription_seqno",
            sa.LargeBinary(length=16),
            nullable=True,
            comment="Commands up to this transaction are in the article's snapshot",
        ),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True, comment="Why it waits, or was stopped"),
        sa.Column("earlier_filter", sa.Text(), nullable=True, comment="The row filter until then, where it changed"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["mssubscriptions.subscription_id"],
            name=op.f("fk_msarticle_subscriptions_mssubscriptions"),
        ),
        sa.PrimaryKeyConstraint("subscription_id", "article", name=op.f("pk_msarticle_subscriptions")),
    )
    op.create_table(
        "msdistribution_history",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column(
            "bulk_commands",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="How many of delivered_commands were applied in bulk",
        ),
        sa.Column(
            "fallbacks",
            sa.JSON(),
            nullable=True,
            comment="Why steps that were tried in bulk were applied serially, and how often",
        ),
        sa.Column("snapshot", sa.JSON(), nullable=True, comment="Progress of each table that a snapshot copies"),
        sa.Column(
            "latency",
            sa.JSON(),
            nullable=True,
            comment="Seconds within which 50, 95 and 99 % of the commands were there, by leg",
        ),
        sa.Column("runstatus", sa.SmallInteger(), nullable=False),
        sa.Column("start_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("duration", sa.Float(), nullable=False, comment="Seconds"),
        sa.Column("comments", sa.Text(), nullable=False),
        sa.Column("xact_seqno", sa.LargeBinary(length=16), nullable=True),
        sa.Column("delivered_transactions", sa.BigInteger(), nullable=False),
        sa.Column("delivered_commands", sa.BigInteger(), nullable=False),
        sa.Column("delivery_rate", sa.Float(), nullable=False, comment="Commands a second"),
        sa.Column(
            "delivery_latency",
            sa.BigInteger(),
            nullable=True,
            comment="Milliseconds from the last transaction's commit until it was stored or delivered",
        ),
        sa.Column("commands_by_article", sa.JSON(), nullable=False),
        sa.Column("error_id", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["error_id"], ["msrepl_errors.id"], name=op.f("fk_msdistribution_history_msrepl_errors")
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_msdistribution_history_mspublications")
        ),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["mssubscriptions.subscription_id"],
            name=op.f("fk_msdistribution_history_mssubscriptions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_msdistribution_history")),
    )
    op.create_index(
        op.f("ix_msdistribution_history_publication_id_time"),
        "msdistribution_history",
        ["publication_id", "time"],
        unique=False,
    )
    op.create_index(
        op.f("ix_msdistribution_history_subscription_id_id"),
        "msdistribution_history",
        ["subscription_id", "id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_msdistribution_history_subscription_id_time"),
        "msdistribution_history",
        ["subscription_id", "time"],
        unique=False,
    )
    op.create_table(
        "mslogreader_history",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("runstatus", sa.SmallInteger(), nullable=False),
        sa.Column("start_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("duration", sa.Float(), nullable=False, comment="Seconds"),
        sa.Column("comments", sa.Text(), nullable=False),
        sa.Column("xact_seqno", sa.LargeBinary(length=16), nullable=True),
        sa.Column("delivered_transactions", sa.BigInteger(), nullable=False),
        sa.Column("delivered_commands", sa.BigInteger(), nullable=False),
        sa.Column("delivery_rate", sa.Float(), nullable=False, comment="Commands a second"),
        sa.Column(
            "delivery_latency",
            sa.BigInteger(),
            nullable=True,
            comment="Milliseconds from the last transaction's commit until it was stored or delivered",
        ),
        sa.Column("commands_by_article", sa.JSON(), nullable=False),
        sa.Column("error_id", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["error_id"], ["msrepl_errors.id"], name=op.f("fk_mslogreader_history_msrepl_errors")),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_mslogreader_history_mspublications")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mslogreader_history")),
    )
    op.create_index(
        op.f("ix_mslogreader_history_publication_id_time"),
        "mslogreader_history",
        ["publication_id", "time"],
        unique=False,
    )
    op.create_table(
        "msrepl_deliveries",
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False, comment="When the time span begins"),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column(
            "seconds", sa.Integer(), nullable=False, comment="How long the time span is: 60, or 3600 once it is old"
        ),
        sa.Column("transactions", sa.BigInteger(), nullable=False, comment="Committed at the Subscriber within it"),
        sa.Column("commands", sa.BigInteger(), nullable=False, comment="Committed at the Subscriber within it"),
        sa.Column(
            "undelivered_commands",
            sa.BigInteger(),
            nullable=True,
            comment="The most that a run within it left undelivered; NULL for none",
        ),
        sa.Column("latency", sa.JSON(), nullable=False, comment="Commands by leg and bucket, by how long they took"),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_msrepl_deliveries_mspublications")
        ),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["mssubscriptions.subscription_id"], name=op.f("fk_msrepl_deliveries_mssubscriptions")
        ),
        sa.PrimaryKeyConstraint("subscription_id", "time", name=op.f("pk_msrepl_deliveries")),
    )
    op.create_index(
        op.f("ix_msrepl_deliveries_publication_id_time"), "msrepl_deliveries", ["publication_id", "time"], unique=False
    )
    op.create_table(
        "msschema_changes",
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("xact_seqno", sa.LargeBinary(length=16), nullable=False),
        sa.Column("command_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("article_id", sa.Integer(), nullable=True, comment="Definition before; NULL for a script"),
        sa.Column("new_article_id", sa.Integer(), nullable=True, comment="Definition after"),
        sa.Column("change", sa.JSON(), nullable=False, comment="What changed, as the command has it; a script's name"),
        sa.Column("entry_time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["article_id"], ["msarticles.article_id"], name=op.f("fk_msschema_changes_msarticles")),
        sa.ForeignKeyConstraint(
            ["new_article_id"], ["msarticles.article_id"], name="fk_msschema_changes_msarticles_new"
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_msschema_changes_mspublications")
        ),
        sa.PrimaryKeyConstraint("publication_id", "xact_seqno", "command_id", name=op.f("pk_msschema_changes")),
    )
    op.create_table(
        "mstracer_history",
        sa.Column("parent_tracer_id", sa.Integer(), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column(
            "subscriber_commit",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the Subscriber had it, by the distribution database's clock",
        ),
        sa.ForeignKeyConstraint(
            ["parent_tracer_id"],
            ["mstracer_tokens.tracer_id"],
            name=op.f("fk_mstracer_history_mstracer_tokens"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["mssubscriptions.subscription_id"], name=op.f("fk_mstracer_history_mssubscriptions")
        ),
        sa.PrimaryKeyConstraint("parent_tracer_id", "subscription_id", name=op.f("pk_mstracer_history")),
    )


def downgrade() -> None:
    op.drop_table("mstracer_history")
    op.drop_table("msschema_changes")
    op.drop_index(op.f("ix_msrepl_deliveries_publication_id_time"), table_name="msrepl_deliveries")
    op.drop_table("msrepl_deliveries")
    op.drop_index(op.f("ix_mslogreader_history_publication_id_time"), table_name="mslogreader_history")
    op.drop_table("mslogreader_history")
    op.drop_index(op.f("ix_msdistribution_history_subscription_id_time"), table_name="msdistribution_history")
    op.drop_index(op.f("ix_msdistribution_history_subscription_id_id"), table_name="msdistribution_history")
    op.drop_index(op.f("ix_msdistribution_history_publication_id_time"), table_name="msdistribution_history")
    op.drop_table("msdistribution_history")
    op.drop_table("msarticle_subscriptions")
    op.drop_table("mstracer_tokens")
    op.drop_table("mssubscriptions")
    op.drop_table("msrepl_warnings")
    op.drop_index(op.f("ix_msrepl_errors_publication_id_id"), table_name="msrepl_errors")
    op.drop_table("msrepl_errors")
    op.drop_table("msrepl_replaced_folders")
    op.drop_index(op.f("ix_msrepl_batches_publication_id_last_xact_seqno"), table_name="msrepl_batches")
    op.drop_table("msrepl_batches")
    op.drop_table("msarticles")
    op.drop_table("msreplica_identities")
    op.drop_table("msrepl_version")
    op.drop_table("msrepl_distributor")
    op.drop_table("mspublications")
