"""Which replica identities tables had before setup"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "msreplica_identities",
        sa.Column("publisher_system", sa.Text(), nullable=False),
        sa.Column("publisher_db", sa.Text(), nullable=False),
        sa.Column("source_object_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("replica_identity", sa.Text(), nullable=False, comment="Of the table, before setup: d, f, i or n"),
        sa.Column("index_name", sa.Text(), nullable=True, comment="Where it was an index"),
        sa.PrimaryKeyConstraint(
            "publisher_system", "publisher_db", "source_object_id", name=op.f("pk_msreplica_identities")
        ),
    )


def downgrade() -> None:
    op.drop_table("msreplica_identities")
