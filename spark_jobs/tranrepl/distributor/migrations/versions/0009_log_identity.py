"""Whose log is registered: server, timeline, and by when its last registered transaction was committed"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_COLUMNS: dict[str, tuple[sa.types.TypeEngine[Any], str]] = {
    "publisher_system": (sa.Text(), "System identifier of the server whose log is registered"),
    "timeline": (sa.Integer(), "Of that log, at registered_lsn"),
    "registered_commit_time": (
        sa.DateTime(timezone=True),
        "By which the last registered transaction was committed",
    ),
}
_KEY = "publication_id"
_PUBLICATIONS = sa.Table(
    "mspublications", sa.MetaData(), *map(sa.Column, (_KEY, "registered_xact_seqno", "registered_commit_time"))
)
_BATCHES = sa.Table("msrepl_batches", sa.MetaData(), *map(sa.Column, (_KEY, "last_xact_seqno", "last_commit_time")))


def upgrade() -> None:
    for name, (type_, comment) in _COLUMNS.items():
        op.add_column("mspublications", sa.Column(name, type_, nullable=True, comment=comment))
    op.execute(
        _PUBLICATIONS.update()
        .values(registered_commit_time=_BATCHES.c.last_commit_time)
        .where(
            _BATCHES.c.publication_id == _PUBLICATIONS.c.publication_id,
            _BATCHES.c.last_xact_seqno == _PUBLICATIONS.c.registered_xact_seqno,
        )
    )


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_column("mspublications", name)
