"""Definitions that setup changes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "mspublications",
        sa.Column(
            "redefined_xact_seqno",
            sa.LargeBinary(16),
            comment="Place behind the last transaction at which setup changed definitions of articles",
        ),
    )


def downgrade() -> None:
    op.drop_column("mspublications", "redefined_xact_seqno")
