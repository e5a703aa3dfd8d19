"""Which version of tranrepl made these tables"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "msrepl_version",
        sa.Column("revision", sa.Text(), nullable=False, comment="Alembic's, of these tables"),
        sa.Column("version", sa.Text(), nullable=False, comment="Of tranrepl, which made them or migrated them last"),
        sa.Column("time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_msrepl_version")),
    )


def downgrade() -> None:
    op.drop_table("msrepl_version")
