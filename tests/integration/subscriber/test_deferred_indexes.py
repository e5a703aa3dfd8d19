"""Indexes that a snapshot builds after the load: names say all of them, and nothing written down becomes SQL but
names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import sql

from conftest import DatabasesFactory
from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, connect
from tranrepl.subscriber.postgres.deferred_indexes import deferrable_indexes, is_referenced, read, readable, written

_TABLE = TableName("public", 'a "child" %s')
_NAME = '"a ""child"" %s"'
_PLAIN = {
    "primary": f'ALTER TABLE {_NAME} ADD CONSTRAINT "primary" PRIMARY KEY (id, "No")',
    "unique": f'ALTER TABLE {_NAME} ADD CONSTRAINT "unique" UNIQUE (code) DEFERRABLE INITIALLY DEFERRED',
    "unique index": f'CREATE UNIQUE INDEX "unique index" ON {_NAME} ("No")',
    "an index": f'CREATE INDEX "an index" ON {_NAME} (code, "No")',
    "to parent": f'ALTER TABLE {_NAME} ADD CONSTRAINT "to parent" FOREIGN KEY ("No") REFERENCES parent (id) DEFERRABLE',
}
_OTHERS = (
    f"CREATE INDEX ON {_NAME} (code DESC)",
    f"CREATE INDEX ON {_NAME} (lower(code))",
    f"CREATE INDEX ON {_NAME} (code) WHERE id > 5",
    f"CREATE INDEX ON {_NAME} (code text_pattern_ops)",
    f"CREATE INDEX ON {_NAME} (id) INCLUDE (code)",
    f"CREATE INDEX ON {_NAME} (id) WITH (fillfactor = 50)",
    f"CREATE INDEX ON {_NAME} USING hash (id)",
    f'ALTER TABLE {_NAME} ADD FOREIGN KEY ("No") REFERENCES parent (id) ON DELETE CASCADE',
    f'ALTER TABLE {_NAME} ADD FOREIGN KEY ("No") REFERENCES parent (id) NOT VALID',
)
_DEFINITIONS = """
SELECT pg_catalog.pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint WHERE conrelid = %(table)s
UNION ALL SELECT pg_catalog.pg_get_indexdef(indexrelid) FROM pg_catalog.pg_index WHERE indrelid = %(table)s ORDER BY 1
"""


@pytest.fixture
def session(databases: DatabasesFactory) -> Iterator[Session]:
    with connect(databases().subscriber, "test", autocommit=True) as session:
        session.execute("SET search_path = public")
        session.execute("CREATE TABLE parent (id int PRIMARY KEY)")
        session.execute(f'CREATE TABLE {_NAME} (id int, "No" int, code text)'.encode())
        for statement in (*_PLAIN.values(), *_OTHERS):
            session.execute(statement.encode())
        session.execute("SET search_path = pg_catalog, pg_temp")
        yield session


def test_what_names_alone_say_is_dropped_and_built_again(session: Session) -> None:
    ((table,),) = session.execute("SELECT %s::regclass::oid::bigint", [f"public.{_NAME}"]).fetchall()
    before = session.execute(_DEFINITIONS, {"table": table}).fetchall()
    found = deferrable_indexes(session, table)
    assert {it.name for it in found} == set(_PLAIN)
    kept = read(written(found), "Subscriber reporting")
    assert kept == tuple(found)
    for it in sorted(found, key=lambda it: not it.is_foreign_key):
        session.execute(it.drop(_TABLE))
    assert len(session.execute(_DEFINITIONS, {"table": table}).fetchall()) < len(before)
    for it in kept:
        session.execute(it.build(_TABLE))
    assert session.execute(_DEFINITIONS, {"table": table}).fetchall() == before


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE vendor",
        '[[1, "CREATE INDEX i ON vendor (id)"]]',
        '[{"kind": "check", "name": "c", "columns": []}]',
        '[{"kind": "index", "name": "i", "columns": ["id"], "expression": "f()"}]',
    ],
)
def test_anything_else_that_is_written_there_is_refused(text: str) -> None:
    assert readable(text) is None
    with pytest.raises(ConfigurationError, match="is no index and no constraint"):
        read(text, "Subscriber reporting")


def test_a_key_stays_where_a_foreign_key_that_stays_refers_to_it(session: Session) -> None:
    session.execute("ALTER TABLE public.parent ADD child int REFERENCES public.parent (id) ON DELETE CASCADE")
    ((table,),) = session.execute("SELECT 'public.parent'::regclass::oid::bigint").fetchall()
    ((child,),) = session.execute("SELECT %s::regclass::oid::bigint", [f"public.{_NAME}"]).fetchall()
    plain = {of: [it.name for it in deferrable_indexes(session, of) if it.is_foreign_key] for of in (table, child)}
    assert plain == {table: [], child: ["to parent"]}
    assert is_referenced(session, table, [(child, "to parent")])
    session.execute("ALTER TABLE public.parent DROP COLUMN child")
    assert is_referenced(session, table, [(child, "to parent")])
    for (name,) in session.execute(
        "SELECT conname::text FROM pg_constraint WHERE conrelid = %s AND contype = 'f' AND conname <> 'to parent'",
        [child],
    ).fetchall():
        session.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(qualified(_TABLE), sql.Identifier(name)))
    assert not is_referenced(session, table, [(child, "to parent")])
    assert is_referenced(session, table, [])
