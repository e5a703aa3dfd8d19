"""Row filter, update policy, TRUNCATE and deferrable keys of articles"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("msarticles", sa.Column("filter_clause", sa.Text(), nullable=True))
    op.add_column("msarticles", sa.Column("update_policy", sa.Text(), server_default="pairs", nullable=False))
    op.add_column("msarticles", sa.Column("truncate", sa.Text(), server_default="replicate", nullable=False))
    op.add_column("msarticles", sa.Column("deferrable", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    for name in ("deferrable", "truncate", "update_policy", "filter_clause"):
        op.drop_column("msarticles", name)
