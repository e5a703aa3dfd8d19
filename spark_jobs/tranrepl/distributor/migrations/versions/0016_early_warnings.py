"""Early warnings"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "msrepl_warnings",
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("subscription", sa.Text(), nullable=False, comment="Its name; empty for the Publisher's log"),
        sa.Column("warning", sa.Text(), nullable=False, comment="What is warned of"),
        sa.Column(
            "time",
            sa.DateTime(timezone=True),
            server_default=sa.func.now(),
            nullable=False,
            comment="When it was told",
        ),
        sa.ForeignKeyConstraint(
            ["publication_id"], ["mspublications.publication_id"], name="fk_msrepl_warnings_mspublications"
        ),
        sa.PrimaryKeyConstraint("publication_id", "subscription", "warning", name="pk_msrepl_warnings"),
    )


def downgrade() -> None:
    op.drop_table("msrepl_warnings")
