"""Labels of enumerated types that are renamed: articles that have the type are reinitialized, or stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.remedies import Command, commands_of, execute_command
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run, whole_run
from tranrepl.admin.check import check
from tranrepl.connections import Connection

_TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad', 'so so')",
    "CREATE DOMAIN lasting AS mood",
    "CREATE TYPE pair AS (mood mood, note text)",
)
_TABLES = {
    "item": "feeling mood",
    "keyed": "feeling mood, n int, PRIMARY KEY (id, feeling)",
    "many": "all_of_them mood[]",
    "derived": "feeling lasting, two pair",
}
_ROWS = {
    "item": "'{}'",
    "keyed": "'{}', 1",
    "many": "'{{{0},NULL,{0}}}'",
    "derived": "'{0}', '({0},x)'",
}
_COPIED = {"pre_creation_cmd": "delete"}
_SWAP = (("sad", "blue"), ("glad", "sad"), ("blue", "glad"))


@pytest.fixture(params=["from_15_to_18", pytest.param("from_18_to_15", marks=pytest.mark.slow)])
def ends(request: pytest.FixtureRequest) -> Databases:
    found: Databases = request.getfixturevalue(request.param)
    return found


def _rename(before: str, now: str) -> str:
    return f"ALTER TYPE mood RENAME VALUE '{before}' TO '{now}'"


def _insert(number: int, label: str) -> list[str]:
    return [f"INSERT INTO {it} VALUES ({number}, {_ROWS[it].format(label)})" for it in _TABLES]


@contextmanager
def _open_transaction(site: Site, *statements: str) -> Iterator[psycopg.Connection]:
    """Open a transaction that writes, and commit it at the end."""
    with psycopg.connect(**site.databases.publisher.libpq_parameters("test")) as session:  # type: ignore[arg-type]
        for it in statements:
            session.execute(it.encode())
        yield session


def _site_of(ends: Databases, tmp_path: Path) -> Site:
    """Return a publication of columns of an enumerated type, and of types that are made of it, to PostgreSQL and
    SQLite."""
    site = Site(
        ends,
        tmp_path / "store",
        [{"source": f"public.{it}", **_COPIED, **STATEMENTS} for it in _TABLES],
        SparkHere(),
        [{"name": it, "connection": it, "sync_type": "automatic"} for it in ("subscriber", "sqlite")],
        replicate_ddl=True,
    )
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=str(tmp_path / "subscriber.db"))
    site.at_publisher(*_TYPES)
    for name, columns in _TABLES.items():
        key = "" if "PRIMARY KEY" in columns else " PRIMARY KEY"
        site.at_publisher(f"CREATE TABLE {name} (id int{key}, {columns})")
    site.at_subscriber(*_TYPES)
    site.at_publisher(*_insert(1, "sad"), *_insert(2, "glad"))
    site.set_up()
    good_run(site)
    return site


def _differences(site: Site) -> list[str]:
    at_sqlite, found = sqlite_execute(str(site.connections["sqlite"].database)), []
    for table in _TABLES:
        columns = (
            "SELECT attname::text FROM pg_attribute WHERE attnum > 0 AND attrelid = '{}'::regclass ORDER BY attnum"
        )
        names = [it for (it,) in site.at_publisher(columns.format(table))]
        texts = ", ".join(f"{it}::text" for it in names)
        wanted = site.at_publisher(f"SELECT {texts} FROM {table} ORDER BY id")
        there = {
            "PostgreSQL": site.at_subscriber(f"SELECT {texts} FROM {table} ORDER BY id"),
            "SQLite": at_sqlite(f"SELECT {', '.join(f'CAST({it} AS text)' for it in names)} FROM {table} ORDER BY id"),
        }
        found += [f"{table} at {name}: {rows}, not {wanted}" for name, rows in there.items() if rows != wanted]
    return found


@pytest.mark.parametrize(
    "renames", [(("sad", "blue"), ("so so", "so")), _SWAP], ids=["other names", "names of each other"]
)
def test_articles_of_the_type_are_reinitialized(
    ends: Databases, tmp_path: Path, renames: tuple[tuple[str, str], ...]
) -> None:
    site = _site_of(ends, tmp_path)
    site.at_publisher(*_insert(3, "sad"), "UPDATE item SET feeling = 'sad' WHERE id = 2")
    site.read_log().raise_error()
    with _open_transaction(site, *_insert(4, "sad"), "DELETE FROM many WHERE id = 2"):
        site.at_publisher(*(_rename(*it) for it in renames), *_insert(5, renames[0][1] if len(renames) == 2 else "sad"))
        read = site.read_log()
        read.raise_error()
    assert sum("a label of type public.mood was renamed" in it for it in read.notices) >= 2 * len(_TABLES)
    site.at_publisher(*_insert(6, "glad"), "ALTER TABLE item ADD COLUMN other mood DEFAULT 'glad'")
    for _ in range(2):
        good_run(site)
    assert _differences(site) == []


def test_an_article_is_copied_before_another_one_delivers_the_old_name(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site_of(databases(), tmp_path)
    site.at_publisher(*_insert(3, "sad"))
    site.read_log().raise_error()
    site.at_publisher(_rename("sad", "blue"), *_insert(4, "blue"))
    site.at_publisher("ALTER TABLE keyed ALTER COLUMN n TYPE bigint")
    good_run(site)
    good_run(site)
    assert _differences(site) == []


def test_another_publication_goes_on_with_the_old_name_until_it_reads_the_rename(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    """Its commands wait in the store, while the first one's snapshot is there already."""
    site = _site_of(databases(), tmp_path)
    site.at_publisher("CREATE TABLE beside (id int PRIMARY KEY, feeling mood)")
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    other = Site(
        site.databases,
        tmp_path / "other",
        [{"source": "public.beside", **_COPIED}],
        SparkHere(),
        [subscription],
        publication="sales",
        replicate_ddl=True,
    )
    other.set_up()
    good_run(other)
    other.at_publisher("INSERT INTO beside VALUES (1, 'sad')")
    other.read_log().raise_error()
    site.at_publisher(_rename("sad", "blue"), "INSERT INTO beside VALUES (2, 'blue')")
    good_run(site)
    other.deliver().raise_error()
    assert other.at_subscriber("SELECT feeling::text FROM beside") == [("sad",)]
    good_run(other)
    assert other.differences() == []


def _stopped_site(databases: DatabasesFactory, tmp_path: Path, **article: object) -> Site:
    site = Site(
        databases(),
        tmp_path / "store",
        [{"source": "public.item", "on_unknown_rows": "stop", **_COPIED, **article}],
        SparkHere(),
        [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}],
        replicate_ddl=True,
    )
    site.at_publisher(*_TYPES, "CREATE TABLE item (id int PRIMARY KEY, feeling mood)")
    site.at_subscriber(*_TYPES)
    site.at_publisher("INSERT INTO item VALUES (1, 'sad'), (2, 'glad')")
    site.set_up()
    good_run(site)
    return site


@pytest.mark.parametrize("way", [0, 1])
def test_each_way_on_of_a_stopped_article_works(databases: DatabasesFactory, tmp_path: Path, way: int) -> None:
    site = _stopped_site(databases, tmp_path)
    site.at_publisher("INSERT INTO item VALUES (3, 'sad')")
    site.read_log().raise_error()
    site.at_publisher(*(_rename(*it) for it in _SWAP), "INSERT INTO item VALUES (4, 'sad')")
    (error,) = [it.error for it in whole_run(site).values() if it.error is not None]
    assert "a label of type public.mood was renamed" in error.message
    (command,) = commands_of(error.remedy)[way]
    assert execute_command(site, command) == []
    good_run(site)
    assert site.differences() == []


_FILTERS: tuple[tuple[str, str | None], ...] = (
    ("feeling = 'sad' OR feeling = 'glad'", "feeling = 'blue' OR feeling = 'glad'"),
    ("feeling <> 'glad'", None),
)


@pytest.mark.parametrize(("condition", "now"), _FILTERS, ids=["names it", "reads it"])
@pytest.mark.parametrize("unread", [True, False])
def test_a_row_filter_of_the_type(
    databases: DatabasesFactory, tmp_path: Path, condition: str, now: str | None, unread: bool
) -> None:
    site = _stopped_site(databases, tmp_path, filter=condition, on_unknown_rows="reinitialize")
    site.at_publisher("INSERT INTO item VALUES (3, 'sad'), (4, 'glad'), (5, 'so so')")
    if not unread:
        site.read_log().raise_error()
    with _open_transaction(site, "INSERT INTO item VALUES (6, 'sad')"):
        site.at_publisher(_rename("sad", "blue"))
    site.at_publisher("INSERT INTO item VALUES (7, 'blue'), (8, 'so so')")
    error, *_ = [it.error for it in whole_run(site).values() if it.error is not None]
    assert "a label of type public.mood was renamed, whose values its row filter reads" in error.message
    assert error.remedy is not None
    assert error.remedy.startswith("write the article's `filter` with the labels of now, where it names them")
    articles = [it.model_copy(update={"filter": now or condition}) for it in site.publication.articles]
    site.publication = site.publication.model_copy(update={"articles": articles})
    for command in commands_of(error.remedy)[0]:
        assert execute_command(site, command) == []
    for _ in range(2):
        good_run(site)
    site.at_publisher("UPDATE item SET feeling = 'so so' WHERE id = 7")
    site.run()
    wanted = f"SELECT id, feeling::text FROM item WHERE {now or condition} ORDER BY id"
    assert site.at_subscriber("SELECT id, feeling::text FROM item ORDER BY id") == site.at_publisher(wanted)


def _unannounced(site: Site, *statements: str) -> None:
    enable = "ALTER EVENT TRIGGER tranrepl_ddl_end ENABLE ALWAYS"
    with _open_transaction(site, "ALTER EVENT TRIGGER tranrepl_ddl_end DISABLE", *statements, enable):
        pass


def _announced(site: Site, *statements: str) -> None:
    site.at_publisher(*statements)


@pytest.mark.parametrize("rename", [_announced, _unannounced])
def test_setup_that_finds_a_rename_reinitializes_too(
    databases: DatabasesFactory, tmp_path: Path, rename: Callable[..., None]
) -> None:
    site = _site_of(databases(), tmp_path)
    site.at_publisher(*_insert(3, "sad"))
    rename(site, _rename("sad", "blue"), "ALTER TYPE mood ADD VALUE 'ok' BEFORE 'glad'")
    site.at_publisher(*_insert(4, "blue"), *_insert(5, "ok"))
    site.set_up()
    good_run(site)
    good_run(site)
    assert _differences(site) == []


def test_setup_between_two_renames_that_undo_each_other(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site_of(databases(), tmp_path)
    swap = [_rename(*it) for it in _SWAP]
    site.at_publisher(*swap, *_insert(3, "sad"), *swap, *_insert(4, "sad"))
    site.set_up()
    good_run(site)
    good_run(site)
    assert _differences(site) == []


def test_a_snapshot_waits_for_a_rename_that_nothing_announced_until_setup(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site_of(databases(), tmp_path)
    _unannounced(site, _rename("sad", "blue"))
    (error,) = execute_command(site, Command("reinitialize", " -s subscriber"))
    assert "a label of type public.mood is not registered yet" in error.message
    for command in commands_of(error.remedy):
        assert execute_command(site, command[0]) == []
    good_run(site)
    assert _differences(site) == []


def test_a_label_in_limits_of_partitions_stops(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(
        databases(),
        tmp_path / "store",
        [{"source": "public.item", "partitions": "same", **_COPIED}],
        SparkHere(),
        [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}],
        replicate_ddl=True,
    )
    site.at_publisher(
        _TYPES[0],
        "CREATE TABLE item (id int, feeling mood, PRIMARY KEY (id, feeling)) PARTITION BY LIST (feeling)",
        "CREATE TABLE item_sad PARTITION OF item FOR VALUES IN ('sad')",
        "CREATE TABLE item_glad PARTITION OF item FOR VALUES IN ('glad')",
    )
    site.at_subscriber(_TYPES[0])
    site.set_up()
    good_run(site)
    site.at_publisher(
        "INSERT INTO item VALUES (1, 'sad')", _rename("sad", "blue"), "INSERT INTO item VALUES (2, 'blue')"
    )
    stopped = site.read_log().error
    assert stopped is not None
    assert "a label of type public.mood was renamed, whose values limits of its partitions name" in stopped.message
    site.at_subscriber(_rename("sad", "blue"))
    assert not check(site.topology).blocking
    site.set_up()
    good_run(site)
    good_run(site)
    assert site.differences() == []
