"""What clean-up has removed, and the latency of runs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "mspublications",
        sa.Column(
            "removed_xact_seqno",
            sa.LargeBinary(16),
            nullable=True,
            comment="Last transaction whose commands clean-up has removed",
        ),
    )
    op.add_column(
        "mssubscriptions",
        sa.Column(
            "delivered_commands",
            sa.JSON(),
            nullable=True,
            comment="By article, of history that clean-up has removed",
        ),
    )


def downgrade() -> None:
    op.drop_column("mssubscriptions", "delivered_commands")
    op.drop_column("mspublications", "removed_xact_seqno")
