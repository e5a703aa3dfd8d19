"""The model's tables"""

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
            "registered_lsn", sa.LargeBinary(length=16), nullable=True, comment="End of the log part that is registered"
        ),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("publication_id", name=op.f("pk_mspublications")),
        sa.UniqueConstraint("publication", name=op.f("uq_mspublications_publication")),
    )
    op.create_table(
        "msarticles",
        sa.Column("article_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("source_owner", sa.Text(), nullable=False),
        sa.Column("source_object", sa.Text(), nullable=False),
        sa.Column("destination_owner", sa.Text(), nullable=False),
        sa.Column("destination_object", sa.Text(), nullable=False),
        sa.Column("source_object_id", sa.BigInteger(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False, comment="PublishedColumn, in order"),
        sa.Column("ins_cmd", sa.Text(), nullable=False),
        sa.Column("upd_cmd", sa.Text(), nullable=False),
        sa.Column("del_cmd", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
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
        sa.Column("last_commit_time", sa.DateTime(timezone=True), nullable=False, comment="The latest, not the last's"),
        sa.Column("transactions", sa.BigInteger(), nullable=False),
        sa.Column("commands", sa.BigInteger(), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("entry_time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_msrepl_batches_mspublications")
        ),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_msrepl_batches")),
        sa.UniqueConstraint(
            "publication_id", "first_xact_seqno", name=op.f("uq_msrepl_batches_publication_id_first_xact_seqno")
        ),
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
        sa.Column("article", sa.Text(), nullable=True),
        sa.Column("xact_seqno", sa.LargeBinary(length=16), nullable=True),
        sa.Column("command_id", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_msrepl_errors_mspublications")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_msrepl_errors")),
    )
    op.create_table(
        "mssubscriptions",
        sa.Column("subscription_id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("subscription", sa.Text(), nullable=False),
        sa.Column("subscriber_db", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("subscription_time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name=op.f("fk_mssubscriptions_mspublications")
        ),
        sa.PrimaryKeyConstraint("subscription_id", name=op.f("pk_mssubscriptions")),
        sa.UniqueConstraint(
            "publication_id", "subscription", name=op.f("uq_mssubscriptions_publication_id_subscription")
        ),
    )
    op.create_table(
        "msdistribution_history",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("runstatus", sa.SmallInteger(), nullable=False),
        sa.Column("start_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("duration", sa.Float(), nullable=False, comment="Seconds"),
        sa.Column("comments", sa.Text(), nullable=False),
        sa.Column("xact_seqno", sa.LargeBinary(length=16), nullable=True),
        sa.Column("delivered_transactions", sa.BigInteger(), nullable=False),
        sa.Column("delivered_commands", sa.BigInteger(), nullable=False),
        sa.Column("delivery_rate", sa.Float(), nullable=False, comment="Commands a second"),
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


def downgrade() -> None:
    op.drop_index(op.f("ix_mslogreader_history_publication_id_time"), table_name="mslogreader_history")
    op.drop_table("mslogreader_history")
    op.drop_index(op.f("ix_msdistribution_history_publication_id_time"), table_name="msdistribution_history")
    op.drop_table("msdistribution_history")
    op.drop_table("mssubscriptions")
    op.drop_table("msrepl_errors")
    op.drop_table("msrepl_batches")
    op.drop_table("msarticles")
    op.drop_table("mspublications")
