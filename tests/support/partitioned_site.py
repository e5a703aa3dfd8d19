"""A publication of a partitioned table: leaves of other column order, several levels, a default partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from support.databases import Databases
from support.equality import differing_rows
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from support.whole_run import good_run
from tranrepl.connections import Connection

AUTOMATIC = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
ITEM = (
    "CREATE TABLE item (id int, kind text, note text, PRIMARY KEY (id, kind)) PARTITION BY RANGE (id)",
    "CREATE TABLE item_low PARTITION OF item FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE item_high (note text, gone int, kind text NOT NULL, spare int, id int NOT NULL)",
    "ALTER TABLE item_high DROP COLUMN gone, DROP COLUMN spare",
    "ALTER TABLE item ATTACH PARTITION item_high FOR VALUES FROM (100) TO (200)",
    "CREATE TABLE item_deep PARTITION OF item FOR VALUES FROM (200) TO (300) PARTITION BY LIST (kind)",
    "CREATE TABLE item_deep_a PARTITION OF item_deep FOR VALUES IN ('a')",
    "CREATE TABLE item_deep_rest PARTITION OF item_deep DEFAULT",
    "CREATE TABLE item_rest PARTITION OF item DEFAULT",
)
ROWS = (
    "INSERT INTO item SELECT n, CASE n % 3 WHEN 0 THEN 'a' ELSE 'b' END, 'row ' || n FROM generate_series(0, 390, 10) n"
)
MADE_AGAIN = (
    """DO $$ DECLARE one regclass; BEGIN
    FOR one IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'item'::regclass LOOP
    EXECUTE 'DROP TABLE ' || one; END LOOP; END $$""",
    "DROP TABLE IF EXISTS item_low, item_high, item_deep, item_rest",
    *ITEM[1:],
    ROWS,
)
"""Statements that leave the table as it was at first, whatever partitions it has."""
PARTITIONS = {"item_low", "item_high", "item_deep_a", "item_deep_rest", "item_rest"}


def partitioned_site(
    databases: Databases,
    folder: Path,
    subscription: Mapping[str, object] = AUTOMATIC,
    *,
    replicate_ddl: bool = False,
    tables: Sequence[str] = ("item",),
    **article: object,
) -> Site:
    """Return a site of such tables with these settings of their articles; both ends have the published rows."""
    items = [{"source": f"public.{it}", "pre_creation_cmd": "truncate", **article} for it in tables]
    site = Site(databases, folder / "store", items, SparkHere(), [subscription], replicate_ddl=replicate_ddl)
    for table in tables:
        site.at_publisher(*(it.replace("item", table) for it in (*ITEM, ROWS)))
    site.set_up()
    good_run(site)
    assert "filter" in article or differing_rows(site) == {}
    return site


def division(connection: Connection, table: str = "item") -> Rows:
    """Return how a table is partitioned, on all levels."""
    return execute(
        connection,
        "SELECT relid::regclass::text, parentrelid::regclass::text, level, pg_get_partkeydef(relid), "
        "pg_get_expr(c.relpartbound, c.oid) "
        f"FROM pg_partition_tree('{table}') JOIN pg_class c ON c.oid = relid ORDER BY 1",
    )


def run_without_snapshot(site: Site) -> None:
    """Bring the changes over by the log alone."""
    results = good_run(site)
    assert list(results) == ["log reader", "reporting"], results["log reader"].notices
    assert differing_rows(site) == {}


def run_with_snapshot(site: Site) -> str:
    """Bring the changes over where the log does not have them all; return what the log reader said of it."""
    (notice,) = run_with_snapshots(site)
    return notice


def run_with_snapshots(site: Site) -> Sequence[str]:
    """Do as `run_with_snapshot` does, where the log reader says more than one thing."""
    results = good_run(site)
    assert list(results) == ["log reader", "reporting snapshot", "reporting"]
    assert differing_rows(site) == {}
    return results["log reader"].notices
