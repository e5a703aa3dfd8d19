"""Keys of errors, and indexes for Replication Monitor's pages"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("msrepl_errors", sa.Column("row_key", sa.Text(), comment="The row's key, as id = 5"))
    op.create_index("ix_msrepl_errors_publication_id_id", "msrepl_errors", ["publication_id", "id"])
    for column in ("id", "time"):
        name = f"ix_msdistribution_history_subscription_id_{column}"
        op.create_index(name, "msdistribution_history", ["subscription_id", column])
    op.create_index(
        "ix_msrepl_batches_publication_id_last_xact_seqno", "msrepl_batches", ["publication_id", "last_xact_seqno"]
    )


def downgrade() -> None:
    op.drop_index("ix_msrepl_batches_publication_id_last_xact_seqno", "msrepl_batches")
    for column in ("id", "time"):
        op.drop_index(f"ix_msdistribution_history_subscription_id_{column}", "msdistribution_history")
    op.drop_index("ix_msrepl_errors_publication_id_id", "msrepl_errors")
    op.drop_column("msrepl_errors", "row_key")
