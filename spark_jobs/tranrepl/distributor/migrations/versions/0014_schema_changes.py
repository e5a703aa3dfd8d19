"""Schema changes, and what they are found by"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "mspublications",
        sa.Column(
            "scripts",
            sa.JSON(),
            nullable=True,
            comment="SHA-256 of each script that `tranrepl exec FILE` wrote into the log",
        ),
    )
    op.add_column(
        "msarticles",
        sa.Column(
            "source_definition",
            sa.JSON(),
            nullable=True,
            comment="The source table as setup or the last schema change left it",
        ),
    )
    op.add_column(
        "msarticles",
        sa.Column(
            "file_names", sa.JSON(), nullable=True, comment="Names in the article's file when setup last read it"
        ),
    )
    op.create_table(
        "msschema_changes",
        sa.Column("publication_id", sa.Integer(), nullable=False),
        sa.Column("xact_seqno", sa.LargeBinary(16), nullable=False),
        sa.Column("command_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("article_id", sa.Integer(), nullable=True, comment="Definition before; NULL for a script"),
        sa.Column("new_article_id", sa.Integer(), nullable=True, comment="Definition after"),
        sa.Column("change", sa.JSON(), nullable=False, comment="What changed, as the command has it; a script's name"),
        sa.Column("entry_time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["publication_id"],
            ["mspublications.publication_id"],
            name=op.f("fk_msschema_changes_mspublications"),
        ),
        sa.ForeignKeyConstraint(["article_id"], ["msarticles.article_id"], name=op.f("fk_msschema_changes_msarticles")),
        sa.ForeignKeyConstraint(
            ["new_article_id"], ["msarticles.article_id"], name=op.f("fk_msschema_changes_msarticles_new")
        ),
        sa.PrimaryKeyConstraint("publication_id", "xact_seqno", "command_id", name=op.f("pk_msschema_changes")),
    )


def downgrade() -> None:
    op.drop_table("msschema_changes")
    op.drop_column("mspublications", "scripts")
    op.drop_column("msarticles", "file_names")
    op.drop_column("msarticles", "source_definition")
