"""Commands that announced nothing, and one after them that does: what the log does not say is not guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run

_UNANNOUNCED = {
    "retyped": "ALTER TABLE item ALTER rating TYPE bigint USING rating * 2",
    "retyped to text": "ALTER TABLE item ALTER rating TYPE text USING 'rated ' || rating",
    "of computed values": "ALTER TABLE item ADD COLUMN price int DEFAULT random() * 100 + 1",
    "of a known value": "ALTER TABLE item ADD COLUMN price int DEFAULT 5; INSERT INTO item VALUES (2, 2, 8)",
    "dropped and added": "ALTER TABLE item DROP COLUMN rating; ALTER TABLE item ADD COLUMN rating int DEFAULT 7",
}


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    article = {"source": "public.item", "pre_creation_cmd": "delete"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher("CREATE TABLE item (id integer PRIMARY KEY, rating integer)", "INSERT INTO item VALUES (1, 1)")
    site.set_up()
    good_run(site)
    return site


def _assert_equal(site: Site) -> None:
    good_run(site)
    good_run(site)
    columns = (
        "SELECT string_agg(format('%I', attname), ', ' ORDER BY attname) FROM pg_attribute "
        "WHERE attrelid = 'item'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    ((names,),) = site.at_publisher(columns)
    rows = f"SELECT {names} FROM item ORDER BY id"
    assert site.at_subscriber(rows) == site.at_publisher(rows)


@pytest.mark.parametrize("unannounced", _UNANNOUNCED.values(), ids=_UNANNOUNCED)
def test_what_was_not_announced_is_copied_again_with_the_next_change(site: Site, unannounced: str) -> None:
    site.at_publisher(
        f"SET event_triggers = off; {unannounced}; RESET event_triggers",
        "VACUUM FULL item",
        "ALTER TABLE item ADD COLUMN d int DEFAULT 6",
    )
    _assert_equal(site)


@pytest.mark.parametrize("unannounced", _UNANNOUNCED.values(), ids=_UNANNOUNCED)
def test_so_it_is_where_the_next_change_is_of_the_same_column(site: Site, unannounced: str) -> None:
    column = "price" if "price" in unannounced else "rating"
    site.at_publisher(
        f"SET event_triggers = off; {unannounced}; RESET event_triggers",
        "VACUUM FULL item",
        f"ALTER TABLE item ALTER {column} SET NOT NULL",
    )
    _assert_equal(site)


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
    _assert_equal(site)


def test_an_owner_who_forgot_to_announce_one_command_has_the_table_copied_with_the_next(site: Site) -> None:
    site.at_publisher(
        "DO $$ DECLARE it name; BEGIN FOR it IN SELECT evtname FROM pg_event_trigger LOOP "
        "EXECUTE format('DROP EVENT TRIGGER %I', it); END LOOP; END $$",
        _UNANNOUNCED["of computed values"],
        "BEGIN; ALTER TABLE item ADD COLUMN d int DEFAULT 6; SELECT tranrepl.announce('item'); COMMIT",
    )
    _assert_equal(site)
