"""Errors that a person has acknowledged, and which ways on they have"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    columns = (
        sa.Column("acknowledged_at", sa.DateTime(timezone=True), comment="When a person acknowledged it"),
        sa.Column("acknowledged_by", sa.Text(), comment="Who did"),
        sa.Column("not_repaired", sa.Text(), comment="Why a validation does not correct the article's rows"),
        sa.Column(
            "schema_change",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="Whether the delivery stopped before a schema change",
        ),
    )
    for column in columns:
        op.add_column("msrepl_errors", column)


def downgrade() -> None:
    for column in ("schema_change", "not_repaired", "acknowledged_by"):
        op.drop_column("msrepl_errors", column)
    op.drop_column("msrepl_errors", "acknowledged_at")
