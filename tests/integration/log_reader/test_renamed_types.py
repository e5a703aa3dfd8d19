"""Enumerated types that get another name or another schema: the Subscriber's follow, and their labels after them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run
from tranrepl.connections import Connection

_TYPE = "CREATE TYPE mood AS ENUM ('a', 'b')"
_TYPES = """SELECT attrelid::regclass::text, attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid IN ('item'::regclass, 'log'::regclass) AND attnum > 0 AND NOT attisdropped ORDER BY 1, 2"""
_RENAMED = (
    "INSERT INTO item VALUES (2, 'b')",
    "ALTER TYPE mood RENAME TO temper",
    "ALTER TYPE temper ADD VALUE 'c' BEFORE 'b'",
    "INSERT INTO item VALUES (3, 'c'); INSERT INTO log VALUES (3, '{c,a}')",
    'BEGIN; ALTER TYPE temper RENAME TO "a state"; ALTER TYPE "a state" ADD VALUE \'d\'; COMMIT',
    "INSERT INTO item VALUES (4, 'd'); UPDATE log SET moods = '{d}'",
    "CREATE SCHEMA kinds",
    'ALTER TYPE "a state" SET SCHEMA kinds',
    "ALTER TYPE kinds.\"a state\" RENAME VALUE 'a' TO 'b2'",
    "ALTER TABLE item ADD COLUMN other kinds.\"a state\" DEFAULT 'd'",
    "INSERT INTO item VALUES (5, 'b2', 'c')",
    "ALTER SCHEMA kinds RENAME TO sorts",
    "INSERT INTO item VALUES (6, 'b2', 'c')",
)


_BOTH_RENAMED = {
    "its name, then its label": "ALTER TYPE mood RENAME TO temper; ALTER TYPE temper RENAME VALUE 'a' TO 'first'",
    "its label, then its name": "ALTER TYPE mood RENAME VALUE 'a' TO 'first'; ALTER TYPE mood RENAME TO temper",
}
_OF = {"itself": ("mood", "{}"), "array": ("mood[]", "{{{}}}")}
_CASES = list(product(_BOTH_RENAMED, _OF))


@pytest.fixture(scope="module")
def elsewhere(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    """Yield a site with a table of each case, `item_0` and so on, and the file of SQLite that followed them."""
    folder = tmp_path_factory.mktemp("renamed_types")
    file = str(folder / "subscriber.db")
    subscription = {"name": "reporting", "connection": "sqlite", "sync_type": "automatic"}
    articles = [
        {"source": f"public.item_{n}", "pre_creation_cmd": "delete", **STATEMENTS} for n, _ in enumerate(_CASES)
    ]
    with shared_databases(postgres, "renamed_types") as databases:
        site = Site(databases, folder / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
        site.connections["sqlite"] = Connection("sqlite", "sqlite", database=file)
        for n, (_, kind) in enumerate(_CASES):
            of, value = _OF[kind]
            site.at_publisher(
                _numbered(_TYPE, n),
                f"CREATE TABLE item_{n} (id int PRIMARY KEY, mood {_numbered(of, n)})",
                f"INSERT INTO item_{n} VALUES (1, '{value.format('a')}')",
            )
        site.set_up()
        good_run(site)
        for n, (renamed, kind) in enumerate(_CASES):
            site.at_publisher(
                f"BEGIN; {_numbered(_BOTH_RENAMED[renamed], n)}; COMMIT",
                f"INSERT INTO item_{n} VALUES (2, '{_OF[kind][1].format('first')}')",
            )
        for _ in range(2):
            good_run(site)
        yield site, file


def _numbered(statement: str, n: int) -> str:
    return statement.replace("mood", f"mood_{n}").replace("temper", f"temper_{n}")


@pytest.mark.parametrize(("renamed", "of"), _CASES)
def test_rows_elsewhere_follow_a_label_of_a_type_that_is_renamed_with_it(
    elsewhere: tuple[Site, str], renamed: str, of: str
) -> None:
    site, file = elsewhere
    rows = f"SELECT id, mood{{}} FROM item_{_CASES.index((renamed, of))} ORDER BY id"
    assert sqlite_execute(file)(rows.format("")) == site.at_publisher(rows.format("::text"))


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    articles = [{"source": f"public.{it}", "pre_creation_cmd": "delete"} for it in ("item", "log")]
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher(
        _TYPE,
        "CREATE TABLE item (id int PRIMARY KEY, mood mood)",
        "CREATE TABLE log (id int PRIMARY KEY, moods mood[])",
        "INSERT INTO item VALUES (1, 'a')",
        "INSERT INTO log VALUES (1, '{a}')",
    )
    site.at_subscriber(_TYPE)
    site.set_up()
    good_run(site)
    return site


@pytest.mark.parametrize("together", [True, False], ids=["in one run", "in a run each"])
def test_a_renamed_type_is_renamed_at_the_subscriber(site: Site, *, together: bool) -> None:
    for statements in _RENAMED:
        site.at_publisher(*([statements] if statements.startswith("BEGIN") else statements.split("; ")))
        if not together:
            good_run(site)
    good_run(site)
    assert differing_rows(site) == {}
    assert site.at_subscriber(_TYPES) == site.at_publisher(_TYPES)


def test_a_type_that_cannot_be_renamed_gets_its_labels(site: Site) -> None:
    """Somebody uses the new name for another type."""
    site.at_subscriber("CREATE TYPE temper AS ENUM ('hot')")
    site.at_publisher(*_RENAMED[:2])
    assert any("there is another type public.temper" in it for it in good_run(site)["reporting"].notices)
    site.at_publisher(*_RENAMED[2:4], "ALTER TYPE temper RENAME VALUE 'a' TO 'first'")
    good_run(site)
    assert differing_rows(site) == {}


def test_a_column_that_is_no_enumerated_type_stays_as_it_is(site: Site) -> None:
    site.at_subscriber("ALTER TABLE item ALTER mood TYPE text", "ALTER TABLE log ALTER moods TYPE text[]")
    site.at_subscriber("DROP TYPE mood CASCADE")
    site.set_up()
    site.at_publisher(*_RENAMED[:4])
    good_run(site)
    rows = "SELECT id, mood::text FROM item ORDER BY id"
    assert site.at_subscriber(rows) == site.at_publisher(rows)
