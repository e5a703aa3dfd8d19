"""The command that an error is about, and whether it was skipped"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("msrepl_errors", sa.Column("command", sa.Text, comment="As sp_browsereplcmds shows it"))
    op.add_column("msrepl_errors", sa.Column("skipped", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    for name in ("skipped", "command"):
        op.drop_column("msrepl_errors", name)
