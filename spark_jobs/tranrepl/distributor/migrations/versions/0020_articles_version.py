"""By which articles a log reader that stays up has read the log"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "mspublications",
        sa.Column(
            "articles_version",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="How often articles were changed other than by a batch",
        ),
    )


def downgrade() -> None:
    op.drop_column("mspublications", "articles_version")
