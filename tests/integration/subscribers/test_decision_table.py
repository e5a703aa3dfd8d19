"""Each row of the table of decisions on schema changes: real DDL, by the log, to real Subscribers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.decision_rows import ROWS, TYPES, DecisionRow
from support.mariadb import MariaDbServer
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run
from tranrepl.connections import Connection

_SHAPE = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
  FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated <> ''
 WHERE a.attrelid = '{}'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1
"""
_KEY = """
SELECT a.attname FROM pg_index i, unnest(i.indkey) k, pg_attribute a
 WHERE i.indrelid = '{}'::regclass AND i.indisprimary AND a.attrelid = i.indrelid AND a.attnum = k ORDER BY 1
"""


def _site(ends: Databases, folder: Path, rows: Sequence[DecisionRow], schema: str, *others: Connection) -> Site:
    """Return a publication of a table for each row, with a PostgreSQL Subscriber and `others`; all have row 1."""
    subscriptions = [
        {"name": it.connection_id, "connection": it.connection_id, "sync_type": "automatic"} for it in others
    ]
    commands = STATEMENTS if others else {}
    site = Site(
        ends,
        folder / "store",
        [
            {
                "source": f"public.d_{it.name}",
                "destination": f"{schema}.d_{it.name}",
                "pre_creation_cmd": "delete",
                **commands,
                **it.article,
            }
            for it in rows
        ],
        SparkHere(),
        [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}, *subscriptions],
        replicate_ddl=True,
    )
    site.connections |= {it.connection_id: it for it in others}
    site.at_subscriber(*TYPES, f"CREATE SCHEMA IF NOT EXISTS {schema}")
    tables = [text for it in rows for text in it.texts((f"CREATE TABLE {{t}} ({it.columns})", it.first))]
    site.at_publisher(*TYPES, "CREATE SCHEMA elsewhere", "CREATE TABLE referenced AS SELECT 9 AS id", *tables)
    site.at_publisher("ALTER TABLE referenced ADD PRIMARY KEY (id)", "INSERT INTO referenced VALUES (1), (2), (3)")
    site.set_up()
    good_run(site)
    return site


def _change_all(site: Site, rows: Iterable[DecisionRow]) -> list[str]:
    """Let all that the rows say happen, read the log, and return what its reader says."""
    site.at_publisher(
        *(f"BEGIN; {'; '.join(it.texts((*it.before, *it.change, *it.after)))}; COMMIT" for it in rows),
        *(text for it in rows for text in it.texts(it.later)),
    )
    result = site.read_log()
    result.raise_error()
    return list(result.notices)


def _waiting(site: Site) -> set[str]:
    """Return the sources of the articles that wait for a snapshot at the PostgreSQL Subscriber."""
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        (reporting,) = (it for it in database.subscriptions.living(record) if it.subscription == "reporting")
        states = database.snapshots.article_states(reporting)
    return {source.rpartition(".")[2] for source, it in states.items() if it.status.value == "subscribed"}


def _columns(site: Site, row: DecisionRow) -> str:
    names = [name for name, *_ in site.at_publisher(_SHAPE.format(row.source))]
    return ", ".join(it for it in names if it not in row.lacking)


def _rows(row: DecisionRow, execute: Callable[[str], Rows], columns: str, table: str, condition: str = "true") -> Rows:
    return sorted(execute(f"SELECT {columns} FROM {table} WHERE {condition}"), key=repr)


def _assert_same_table(site: Site, row: DecisionRow, table: str) -> None:
    wanted = [it for it in site.at_publisher(_SHAPE.format(row.source)) if it[0] not in row.lacking]
    looser = [(*it[:2], it[2] and it[0] not in row.looser, *it[3:]) for it in wanted]
    assert (row.name, site.at_subscriber(_SHAPE.format(table))) == (row.name, looser)
    assert site.at_subscriber(_KEY.format(table)) == site.at_publisher(_KEY.format(row.source))


def _assert_told(row: DecisionRow, notices: Iterable[str]) -> None:
    told = [it for it in notices if f"d_{row.name} " in it or f"d_{row.name}: " in it]
    assert row.told is None or any(row.told in it for it in told), (row.name, told)


def _assert_rows(site: Site, rows: Iterable[DecisionRow], schema: str, execute: Callable[[str], Rows]) -> None:
    for row in rows:
        columns = _columns(site, row)
        published = _rows(row, site.at_publisher, columns, row.source, row.filtered)
        assert (row.name, _rows(row, execute, columns, f"{schema}d_{row.name}")) == (row.name, published)


@pytest.mark.parametrize("version", [pytest.param(15, marks=pytest.mark.slow), 18])
def test_each_row_at_a_postgresql_subscriber(
    version: int, databases: DatabasesFactory, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue({15: "debian_postgres", 18: "postgres"}[version])
    rows = [it for it in ROWS if it.version <= version]
    site = _site(databases(publisher=server, subscriber=server), tmp_path, rows, "public")
    notices = _change_all(site, rows)
    for row in rows:
        _assert_told(row, notices)
    assert _waiting(site) == {f"d_{it.name}" for it in rows if it.copied}
    site.deliver().raise_error()
    _assert_rows(site, [it for it in rows if not it.copied], "", site.at_subscriber)
    good_run(site)
    _assert_rows(site, rows, "", site.at_subscriber)
    for row in rows:
        _assert_same_table(site, row, f"public.d_{row.name}")


@pytest.mark.slow
def test_each_row_at_mariadb_and_sqlite(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "archive.db")
    others = (mariadb.connection(mariadb_database, "mariadb"), Connection("sqlite", "sqlite", database=file))
    site = _site(databases(), tmp_path, ROWS, mariadb_database, *others)
    _change_all(site, ROWS)
    good_run(site)
    rows = [it for it in ROWS if it.name not in ("add_stored", "add_virtual", "rename_stored")]
    _assert_rows(site, rows, "", lambda query: mariadb.execute(query, database=mariadb_database))
    _assert_rows(site, rows, "", sqlite_execute(file))
    in_mariadb = f"""
        SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = '{mariadb_database}'
           AND table_name = 'd_new_key' AND constraint_name = 'PRIMARY'"""
    assert mariadb.execute(in_mariadb) == sqlite_execute(file)(
        "SELECT name FROM pragma_table_info('d_new_key') WHERE pk > 0"
    )
    assert mariadb.execute(in_mariadb) == [("a",)]
