"""Snapshots: which articles of a subscription wait for one, and what those that had one hold of the log"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "mspublications",
        sa.Column(
            "start_lsn",
            sa.LargeBinary(16),
            nullable=True,
            comment="Where reading the log began; NULL where an earlier version began it",
        ),
    )
    op.add_column(
        "mssubscriptions",
        sa.Column(
            "subscription_seqno",
            sa.LargeBinary(16),
            nullable=True,
            comment="Watermark of the snapshot that it began with",
        ),
    )
    op.create_table(
        "msarticle_subscriptions",
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column("article", sa.Text(), nullable=False, comment="Its source table"),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column(
            "subscription_seqno",
            sa.LargeBinary(16),
            nullable=True,
            comment="What the Subscriber's table holds of the log: commands up to it are in the article's snapshot",
        ),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["mssubscriptions.subscription_id"],
            name=op.f("fk_msarticle_subscriptions_mssubscriptions"),
        ),
        sa.PrimaryKeyConstraint("subscription_id", "article", name=op.f("pk_msarticle_subscriptions")),
    )


def downgrade() -> None:
    op.drop_table("msarticle_subscriptions")
    op.drop_column("mssubscriptions", "subscription_seqno")
    op.drop_column("mspublications", "start_lsn")
