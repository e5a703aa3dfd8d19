"""Latency by leg, and what was delivered minute by minute"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_DIFFERENCE = "Microseconds by which the Publisher's clock was ahead of the distribution database's"
_QUANTILES = "Seconds within which 50, 95 and 99 % of the commands were there, by leg"


def upgrade() -> None:
    op.add_column("msrepl_batches", sa.Column("clock_difference", sa.BigInteger(), nullable=True, comment=_DIFFERENCE))
    op.add_column("msdistribution_history", sa.Column("latency", sa.JSON(), nullable=True, comment=_QUANTILES))
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
            ["subscription_id"], ["mssubscriptions.subscription_id"], name="fk_msrepl_deliveries_mssubscriptions"
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name="fk_msrepl_deliveries_mspublications"
        ),
        sa.PrimaryKeyConstraint("subscription_id", "time", name="pk_msrepl_deliveries"),
    )
    op.create_index("ix_msrepl_deliveries_publication_id_time", "msrepl_deliveries", ["publication_id", "time"])


def downgrade() -> None:
    op.drop_table("msrepl_deliveries")
    op.drop_column("msdistribution_history", "latency")
    op.drop_column("msrepl_batches", "clock_difference")
