"""An article's column list: changes in other columns are no commands, and the list says nothing of their order."""

from __future__ import annotations

from pathlib import Path

from conftest import DatabasesFactory
from support.equality import differing_rows
from support.observed import distribution_rows, slot_position
from support.site import Site
from support.spark_here import SparkHere
from support.vendor_site import VENDOR
from tranrepl.publisher.postgres.lsn import lsn_number


def test_changes_of_unpublished_columns_alone_send_nothing(databases: DatabasesFactory, tmp_path: Path) -> None:
    article = {"source": "public.vendor", "columns": ["id", "name"]}
    site = Site(databases(), tmp_path / "store", [article], SparkHere())
    site.at_publisher(VENDOR)
    site.set_up()
    site.at_publisher("INSERT INTO vendor SELECT n, 'Name', n, 'note' FROM generate_series(1, 9) n")
    site.run()
    site.at_publisher("UPDATE vendor SET rating = rating + 1, note = NULL", "UPDATE vendor SET name = name")
    written = lsn_number(site.at_publisher("SELECT pg_current_wal_lsn()::text")[0][0])
    read = site.read_log()
    assert (read.error, read.transactions, read.commands) == (None, 0, 0)
    assert slot_position(site) >= written
    assert distribution_rows(site, "SELECT count(*) FROM msrepl_batches") == [(1,)]
    assert len(list((tmp_path / "store").glob("[!_]*"))) == 1

    site.at_publisher("UPDATE vendor SET rating = 0, name = 'Other' WHERE id = 3")
    delivered = site.run()
    assert (delivered.transactions, delivered.commands) == (1, 1)
    assert differing_rows(site) == {}


def test_a_change_in_unpublished_columns_only_is_no_command(databases: DatabasesFactory, tmp_path: Path) -> None:
    article = {"source": "public.t", "columns": ["v", "id"], "destination": "public.subset"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere())
    site.at_publisher("CREATE TABLE t (secret text, id int PRIMARY KEY, v text, more int NOT NULL DEFAULT 0)")
    site.set_up()
    site.at_publisher("INSERT INTO t SELECT 's' || n, n, 'v' || n FROM generate_series(1, 5) n")
    site.run()
    site.at_publisher("UPDATE t SET secret = 'other', more = 7", "UPDATE t SET secret = NULL, v = 'w' WHERE id = 3")
    read = site.read_log()
    assert (read.transactions, read.commands) == (1, 1)
    site.deliver().raise_error()
    assert site.differences() == []
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'subset'::regclass AND attnum > 0 ORDER BY attnum"
    assert site.at_subscriber(columns) == [("id",), ("v",)]
