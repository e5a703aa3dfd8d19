"""Tracer tokens"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_BEFORE = "Microseconds by which the Publisher's clock was ahead of the distribution database's"


def upgrade() -> None:
    _create_tables()
    op.add_column(
        "mspublications",
        sa.Column(
            "tracer_posted",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When tracer_interval last posted a tracer token",
        ),
    )


def _create_tables() -> None:
    op.create_table(
        "mstracer_tokens",
        sa.Column("tracer_id", sa.Integer(), sa.Identity(), nullable=False),
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
            server_default=sa.func.now(),
            nullable=False,
            comment="When it was registered, by the distribution database's clock",
        ),
        sa.Column("xact_seqno", sa.LargeBinary(16), nullable=False),
        sa.Column("command_id", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False, comment="What the Publisher's log has of it"),
        sa.Column("clock_difference", sa.BigInteger(), nullable=True, comment=_BEFORE),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name="fk_mstracer_tokens_mspublications"
        ),
        sa.PrimaryKeyConstraint("tracer_id", name="pk_mstracer_tokens"),
        sa.UniqueConstraint(
            "publication_id",
            "xact_seqno",
            "command_id",
            name="uq_mstracer_tokens_publication_id_xact_seqno_command_id",
        ),
    )
    op.create_table(
        "mstracer_history",
        sa.Column("parent_tracer_id", sa.Integer(), nullable=False),
        sa.Column("subscription_id", sa.Integer(), nullable=False),
        sa.Column(
            "subscriber_commit",
            sa.DateTime(timezone=True),
            server_default=sa.func.now(),
            nullable=False,
            comment="When the Subscriber had it, by the distribution database's clock",
        ),
        sa.ForeignKeyConstraint(
            ["parent_tracer_id"],
            ["mstracer_tokens.tracer_id"],
            name="fk_mstracer_history_mstracer_tokens",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["mssubscriptions.subscription_id"], name="fk_mstracer_history_mssubscriptions"
        ),
        sa.PrimaryKeyConstraint("parent_tracer_id", "subscription_id", name="pk_mstracer_history"),
    )


def downgrade() -> None:
    op.drop_table("mstracer_history")
    op.drop_table("mstracer_tokens")
    op.drop_column("mspublications", "tracer_posted")
