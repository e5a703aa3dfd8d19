"""The tables of version 0.3.0, the first. A database without tables gets those of `distributor/tables.py` as they are
declared, and Alembic's mark of the last revision: no revision has to make them."""

from __future__ import annotations

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: no version had other tables before."""
