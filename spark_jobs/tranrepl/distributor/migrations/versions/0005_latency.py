"""The latency of runs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TABLES = ("mslogreader_history", "msdistribution_history")
_COMMENT = "Milliseconds from the commit at the Publisher, of the last transaction"


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("delivery_latency", sa.BigInteger(), nullable=True, comment=_COMMENT))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "delivery_latency")
