"""The distribution database's tables, as migrations make them and as the code declares them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
import sqlalchemy as sa

from conftest import DatabaseFactory
from support.databases import sqlalchemy_url
from support.site import execute
from tranrepl.connections import Connection
from tranrepl.distributor import version
from tranrepl.distributor.database import DistributionDatabase, connection
from tranrepl.distributor.tables import VERSION_TABLE, metadata
from tranrepl.errors import ConfigurationError

_OURS = f"n.nspname = 'public' AND c.relname <> '{VERSION_TABLE}'"
_TABLES = f"""
SELECT c.relname, obj_description(c.oid, 'pg_class')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND {_OURS}
"""
_COLUMNS = f"""
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
       pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND {_OURS}
"""
_CONSTRAINTS = f"""
SELECT c.relname, k.conname, pg_get_constraintdef(k.oid), k.condeferrable, k.convalidated
  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_OURS}
"""
_INDEXES = f"""
SELECT c.relname, pg_get_indexdef(i.indexrelid)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_OURS}
"""


def _catalogue(made: Connection) -> dict[str, list[tuple[object, ...]]]:
    """Return what the catalogue says of the tables, by kind of object; the order of columns is left out."""
    queries = {"tables": _TABLES, "columns": _COLUMNS, "constraints": _CONSTRAINTS, "indexes": _INDEXES}
    return {kind: _sorted(execute(made, query)) for kind, query in queries.items()}


def _sorted(rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows, key=str)


def test_migrations_make_the_tables_that_the_code_declares(database: DatabaseFactory) -> None:
    migrated, declared = database("migrated"), database("declared")
    with DistributionDatabase(migrated) as distribution:
        distribution.migrate()
        distribution.migrate()
    engine = sa.create_engine(sqlalchemy_url(declared), poolclass=sa.NullPool)
    metadata.create_all(engine)
    assert _catalogue(migrated) == _catalogue(declared)
    assert [name for name, _ in _catalogue(migrated)["tables"]] == sorted(metadata.tables)
    engine.dispose()


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
        distribution.migrate()
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
    assert execute(made, "SELECT publication, owner FROM apart.mspublications") == [("p", "nobody")]
    with DistributionDatabase(made) as distribution, pytest.raises(ConfigurationError, match="newer than this one"):
        distribution.is_current()
