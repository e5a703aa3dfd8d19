"""What tells a distribution database from others: the command store is marked with it"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "msrepl_distributor",
        sa.Column(
            "distribution_id",
            sa.Text(),
            server_default=sa.text("gen_random_uuid()::text"),
            nullable=False,
            comment="Tells this distribution database from others: its stores are marked with it",
        ),
        sa.PrimaryKeyConstraint("distribution_id"),
    )
    op.execute("INSERT INTO msrepl_distributor DEFAULT VALUES")


def downgrade() -> None:
    op.drop_table("msrepl_distributor")
