"""The distribution database's tables: made as the code declares them, then changed by revisions of Alembic's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conftest import DatabaseFactory
from support.site import execute
from tranrepl.distributor import version
from tranrepl.distributor.database import DistributionDatabase, connection
from tranrepl.errors import ConfigurationError

_NEXT_REVISION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0002", "0001", None, None


def upgrade() -> None:
    op.add_column("mspublications", sa.Column("owner", sa.Text(), server_default="nobody", nullable=False))
"""


@pytest.mark.new_sessions
def test_a_database_of_this_version_goes_on_with_the_next_revision(
    database: DatabaseFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = database("migrated")
    execute(made, "CREATE SCHEMA apart", f'ALTER DATABASE "{made.database}" SET search_path = apart')
    with DistributionDatabase(made) as distribution:
        assert distribution.migrate() is None
        assert distribution.migrate() == version.this_version()
    rows = "INSERT INTO apart.mspublications (publication, publisher_db, slot_name, store) VALUES ('p', 'd', 's', '/x')"
    execute(made, rows)
    with monkeypatch.context() as next_version:
        shutil.copytree(connection._MIGRATIONS, tmp_path / "migrations")
        (tmp_path / "migrations" / "versions" / "0002_owner.py").write_text(_NEXT_REVISION)
        next_version.setattr(connection, "_MIGRATIONS", tmp_path / "migrations")
        for module in (connection, version):
            next_version.setattr(module, "REVISION", "0002")
        with DistributionDatabase(made) as distribution:
            assert distribution.is_earlier()
            distribution.migrate()
            assert distribution.is_current()
        fresh = database("fresh")
        with DistributionDatabase(fresh) as distribution:
            distribution.migrate()
        # Its tables are the last revision's: none is applied to them.
        assert execute(fresh, "SELECT version_num FROM tranrepl_version") == [("0002",)]
        columns = "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'mspublications'"
        assert ("owner",) not in execute(fresh, columns)
    assert execute(made, "SELECT publication, owner FROM apart.mspublications") == [("p", "nobody")]
    with DistributionDatabase(made) as distribution, pytest.raises(ConfigurationError, match="newer than this one"):
        distribution.is_current()
