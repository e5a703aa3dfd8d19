"""How commands were applied"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TABLE = "msdistribution_history"


def upgrade() -> None:
    bulk = sa.Column(
        "bulk_commands", sa.BigInteger(), nullable=False, server_default="0", comment="Of delivered_commands"
    )
    op.add_column(_TABLE, bulk)
    fallbacks = sa.Column(
        "fallbacks", sa.JSON(), nullable=True, comment="Why steps in bulk went one by one after all, and how often"
    )
    op.add_column(_TABLE, fallbacks)


def downgrade() -> None:
    op.drop_column(_TABLE, "fallbacks")
    op.drop_column(_TABLE, "bulk_commands")
