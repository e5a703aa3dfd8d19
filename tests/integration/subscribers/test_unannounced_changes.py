"""Commands that announced nothing, and one after them that does: what the log does not say is not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases, shared_databases
from support.embedded_postgres import PostgresServer
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run

_UNANNOUNCED = {
    "retyped": "ALTER TABLE {} ALTER rating TYPE bigint USING rating * 2",
    "retyped to text": "ALTER TABLE {} ALTER rating TYPE text USING 'rated ' || rating",
    "of computed values": "ALTER TABLE {} ADD COLUMN price int DEFAULT random() * 100 + 1",
    "of a known value": "ALTER TABLE {} ADD COLUMN price int DEFAULT 5; INSERT INTO {} VALUES (2, 2, 8)",
    "dropped and added": "ALTER TABLE {} DROP COLUMN rating; ALTER TABLE {} ADD COLUMN rating int DEFAULT 7",
}
_ADDED = "ALTER TABLE {} ADD COLUMN d int DEFAULT 6"
_CASES = {
    f"{name}, then {then}": (
        unannounced,
        _ADDED
        if then == "another column"
        else f"ALTER TABLE {{}} ALTER {'price' if 'price' in unannounced else 'rating'} SET NOT NULL",
    )
    for name, unannounced in _UNANNOUNCED.items()
    for then in ("another column", "the same column")
}
_TABLES = {name: f"item_{n}" for n, name in enumerate(_CASES)}


def _site(databases: Databases, folder: Path, *tables: str) -> Site:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    articles = [{"source": f"public.{it}", "pre_creation_cmd": "delete"} for it in tables]
    site = Site(databases, folder / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
    for table in tables:
        site.at_publisher(
            f"CREATE TABLE {table} (id integer PRIMARY KEY, rating integer)", f"INSERT INTO {table} VALUES (1, 1)"
        )
    site.set_up()
    good_run(site)
    return site


@pytest.fixture(scope="module")
def copied(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the tables of all cases after their changes, which one run brought over."""
    with shared_databases(postgres, "unannounced") as databases:
        site = _site(databases, tmp_path_factory.mktemp("unannounced"), *_TABLES.values())
        for name, (unannounced, then) in _CASES.items():
            statements = f"SET event_triggers = off; {unannounced}; RESET event_triggers", "VACUUM FULL {}", then
            site.at_publisher(*(it.replace("{}", _TABLES[name]) for it in statements))
        good_run(site)
        good_run(site)
        yield site


def _assert_equal(site: Site, table: str = "item") -> None:
    columns = (
        "SELECT string_agg(format('%I', attname), ', ' ORDER BY attname) FROM pg_attribute "
        f"WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    ((names,),) = site.at_publisher(columns)
    rows = f"SELECT {names} FROM {table} ORDER BY id"
    assert site.at_subscriber(rows) == site.at_publisher(rows)


@pytest.mark.parametrize("case", _CASES)
def test_what_was_not_announced_is_copied_again_with_the_next_change(copied: Site, case: str) -> None:
    _assert_equal(copied, _TABLES[case])


def test_a_partitioned_table_without_partitions_has_no_rows_to_copy(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), replicate_ddl=True)
    site.at_publisher("CREATE TABLE item (id integer PRIMARY KEY, rating integer) PARTITION BY RANGE (id)")
    site.set_up()
    good_run(site)
    site.at_publisher(
        "ALTER TABLE item ALTER rating TYPE bigint, ADD COLUMN price integer DEFAULT 5",
        "CREATE TABLE item_low PARTITION OF item FOR VALUES FROM (0) TO (100)",
        "INSERT INTO item VALUES (1, 5000000000, 3)",
    )
    good_run(site)
    good_run(site)
    _assert_equal(site)


def test_an_owner_who_forgot_to_announce_one_command_has_the_table_copied_with_the_next(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, "item")
    site.at_publisher(
        "DO $$ DECLARE it name; BEGIN FOR it IN SELECT evtname FROM pg_event_trigger LOOP "
        "EXECUTE format('DROP EVENT TRIGGER %I', it); END LOOP; END $$",
        _UNANNOUNCED["of computed values"].replace("{}", "item"),
        "BEGIN; ALTER TABLE item ADD COLUMN d int DEFAULT 6; SELECT tranrepl.announce('item'); COMMIT",
    )
    good_run(site)
    good_run(site)
    _assert_equal(site)
