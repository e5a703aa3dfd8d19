"""How far the tables are that a snapshot copies"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "msdistribution_history",
        sa.Column("snapshot", sa.JSON(), nullable=True, comment="TableProgress of each table that a snapshot copies"),
    )


def downgrade() -> None:
    op.drop_column("msdistribution_history", "snapshot")
