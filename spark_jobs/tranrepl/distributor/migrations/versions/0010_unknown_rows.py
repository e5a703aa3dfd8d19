"""Which file a published table was in, and why an article's rows are not known"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "msarticles",
        sa.Column(
            "source_file",
            sa.JSON(),
            nullable=True,
            comment="TableFile of the source table, as it was when it was last looked at",
        ),
    )
    op.add_column(
        "msarticles",
        sa.Column(
            "begins_after",
            sa.LargeBinary(16),
            nullable=True,
            comment="LSN after which its rows begin anew: what does not fit before is left",
        ),
    )
    op.add_column(
        "msarticle_subscriptions",
        sa.Column("reason", sa.Text(), nullable=True, comment="Why it waits, or was stopped"),
    )
    op.add_column(
        "msarticle_subscriptions",
        sa.Column(
            "earlier_filter",
            sa.Text(),
            nullable=True,
            comment="Of rows that it had until then, where its filter changed",
        ),
    )


def downgrade() -> None:
    op.drop_column("msarticle_subscriptions", "earlier_filter")
    op.drop_column("msarticle_subscriptions", "reason")
    op.drop_column("msarticles", "begins_after")
    op.drop_column("msarticles", "source_file")
