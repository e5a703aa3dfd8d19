"""Articles with a row filter whose table is altered and copied again: rows that they had go, whatever becomes of the
columns that the filter reads, and rows of others stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.child_job import ChildJob
from support.mariadb import MariaDbServer
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run
from tranrepl.connections import Connection
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_TABLE = (
    "CREATE TABLE vendor (id int PRIMARY KEY, size text, area text)",
    "INSERT INTO vendor SELECT n, 'abc', CASE WHEN n % 2 = 0 THEN 'in' ELSE 'out' END FROM generate_series(1, 8) n",
)
_OTHERS = "INSERT INTO {}vendor VALUES (100, 'own', 'elsewhere')"
_RETYPE = "ALTER TABLE vendor ALTER area TYPE varchar(30)"
_GO = ("DELETE FROM vendor WHERE id IN (4, 6)", "UPDATE vendor SET area = 'out' WHERE id = 2")
_KEPT = (100, "own", None)
"""Another article's row, once its column was dropped and added."""


class _Ends:
    """A publication of one filtered table with these Subscribers, all of which have a row of another's in it."""

    def __init__(self, site: Site, schema: str, mariadb: MariaDbServer) -> None:
        self.site = site
        self._schema, self._mariadb = schema, mariadb

    def rows(self, name: str) -> Rows:
        return self.execute(name, "SELECT * FROM {}vendor ORDER BY id")

    def execute(self, name: str, statement: str) -> Rows:
        if name == "postgres":
            return self.site.at_subscriber(statement.format(f"{self._schema}."))
        if name == "mariadb":
            return self._mariadb.execute(statement.format(""), database=self._schema)
        return sqlite_execute(self.site.connections["sqlite"].database or "")(statement.format(""))

    def wanted(self, *others: object, where: str = "area = 'in'") -> Rows:
        return [*self.site.at_publisher(f"SELECT * FROM vendor WHERE {where} ORDER BY id"), *others]  # type: ignore[list-item]

    def change_filter(self, text: str) -> None:
        (article,) = self.site.publication.articles
        changed = article.model_copy(update={"filter": text})
        self.site.publication = self.site.publication.model_copy(update={"articles": [changed]})
        self.site.set_up()


@pytest.fixture
def make_ends(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> Callable[..., _Ends]:
    def make(*names: str, row_filter: str = "area = 'in'") -> _Ends:
        schema = mariadb_database
        article = {
            "source": "public.vendor",
            "destination": f"{schema}.vendor",
            "filter": row_filter,
            "pre_creation_cmd": "delete",
            **STATEMENTS,
        }
        subscriptions = [{"name": it, "connection": it, "sync_type": "automatic"} for it in names]
        site = Site(databases(), tmp_path / "store", [article], SparkHere(), subscriptions, replicate_ddl=True)
        site.connections["postgres"] = site.connections["subscriber"]
        site.connections["mariadb"] = mariadb.connection(schema, "mariadb")
        site.connections["sqlite"] = Connection("sqlite", "sqlite", database=str(tmp_path / "file.db"))
        site.at_publisher(*_TABLE)
        site.at_subscriber(f"CREATE SCHEMA {schema}")
        site.set_up()
        good_run(site)
        ends = _Ends(site, schema, mariadb)
        for it in names:
            ends.execute(it, _OTHERS)
        return ends

    return make


def test_rows_go_where_the_filters_column_gets_another_type(make_ends: Callable[..., _Ends]) -> None:
    ends = make_ends("postgres", "mariadb", "sqlite")
    ends.site.at_publisher(_RETYPE, *_GO, "UPDATE vendor SET size = 'new' WHERE id = 8")
    good_run(ends.site)
    assert ends.rows("postgres") == ends.wanted((100, "own", "elsewhere"))
    for name in ("mariadb", "sqlite"):
        assert ends.rows(name) == ends.wanted(_KEPT)
    ends.site.at_publisher("INSERT INTO vendor VALUES (10, 'abc', 'in')", "DELETE FROM vendor WHERE id = 8")
    good_run(ends.site)
    for name in ("mariadb", "sqlite"):
        assert ends.rows(name) == ends.wanted(_KEPT)


def test_rows_go_at_postgresql_where_values_do_not_go_over(make_ends: Callable[..., _Ends]) -> None:
    ends = make_ends("postgres", row_filter="area IS NOT NULL AND id < 100")
    ends.site.at_publisher("ALTER TABLE vendor ALTER area TYPE int USING length(area)")
    ends.site.at_publisher("UPDATE vendor SET area = NULL WHERE id < 6", "DELETE FROM vendor WHERE id = 7")
    good_run(ends.site)
    assert ends.rows("postgres") == ends.wanted(_KEPT, where="area IS NOT NULL")


def test_rows_go_by_the_names_that_the_table_has(make_ends: Callable[..., _Ends]) -> None:
    # Under the new names, the filter reads what was the other column.
    ends = make_ends("postgres", "mariadb", "sqlite")
    renames = (("area", "x"), ("size", "area"), ("x", "size"))
    swapped = "; ".join(f"ALTER TABLE vendor RENAME {one} TO {other}" for one, other in renames)
    ends.site.at_publisher(
        f"BEGIN; {_GO[0]}; {swapped}; ALTER TABLE vendor ALTER size TYPE varchar(30); "
        "UPDATE vendor SET size = 'out' WHERE id = 2; COMMIT"
    )
    good_run(ends.site)
    # The columns that are dropped and added come last there.
    rows = "SELECT id, size, area FROM {}vendor ORDER BY id"
    wanted = ends.site.at_publisher("SELECT id, size, area FROM vendor WHERE size = 'in' ORDER BY id")
    assert ends.execute("postgres", rows) == [*wanted, (100, "elsewhere", "own")]
    for name in ("mariadb", "sqlite"):
        assert ends.execute(name, rows) == [*wanted, (100, None, "own")]


def test_rows_go_by_filters_that_setup_changed_before_and_behind_a_change_of_type(
    make_ends: Callable[..., _Ends],
) -> None:
    ends = make_ends("postgres", "mariadb", "sqlite")
    ends.change_filter("area = 'out'")
    ends.site.at_publisher(_RETYPE, "ALTER TABLE vendor RENAME area TO place")
    ends.site.read_log().raise_error()
    ends.change_filter("place = 'out' AND id > 4")
    ends.site.at_publisher("DELETE FROM vendor WHERE id IN (1, 2, 7)")
    good_run(ends.site)
    assert ends.rows("postgres") == ends.wanted((100, "own", "elsewhere"), where="place = 'out' AND id > 4")
    for name in ("mariadb", "sqlite"):
        assert ends.rows(name) == ends.wanted(_KEPT, where="place = 'out' AND id > 4")


def test_rows_go_by_the_one_filter_that_setup_changed_behind_a_rename(make_ends: Callable[..., _Ends]) -> None:
    """The one that it replaced has the column's later name."""
    ends = make_ends("postgres", "mariadb", "sqlite")
    ends.site.at_publisher(_RETYPE, "ALTER TABLE vendor RENAME area TO place")
    ends.site.read_log().raise_error()
    ends.change_filter("place = 'out' AND id > 4")
    ends.site.at_publisher("DELETE FROM vendor WHERE id IN (1, 2, 7)")
    good_run(ends.site)
    assert ends.rows("postgres") == ends.wanted((100, "own", "elsewhere"), where="place = 'out' AND id > 4")
    for name in ("mariadb", "sqlite"):
        assert ends.rows(name) == ends.wanted(_KEPT, where="place = 'out' AND id > 4")


def test_rows_of_others_stay_that_the_one_replaced_filter_lets_through_by_other_columns(
    make_ends: Callable[..., _Ends],
) -> None:
    ends = make_ends("postgres", "mariadb", "sqlite")
    names = ("postgres", "mariadb", "sqlite")
    for name in names:
        ends.execute(name, "INSERT INTO {}vendor VALUES (101, 'in', 'elsewhere')")
    renames = (("area", "x"), ("size", "area"), ("x", "size"))
    swapped = "; ".join(f"ALTER TABLE vendor RENAME {one} TO {other}" for one, other in renames)
    ends.site.at_publisher(f"BEGIN; {swapped}; ALTER TABLE vendor ALTER size TYPE varchar(30); COMMIT")
    ends.site.read_log().raise_error()
    ends.change_filter("size = 'in' AND id > 4")
    good_run(ends.site)
    rows = "SELECT id, size, area FROM {}vendor ORDER BY id"
    wanted = ends.site.at_publisher("SELECT id, size, area FROM vendor WHERE size = 'in' AND id > 4 ORDER BY id")
    assert ends.execute("postgres", rows) == [*wanted, (100, "elsewhere", "own"), (101, "elsewhere", "in")]
    for name in names[1:]:
        assert ends.execute(name, rows) == [*wanted, (100, None, "own"), (101, None, "in")]


def test_rows_that_stay_since_no_condition_tells_them_are_told(make_ends: Callable[..., _Ends]) -> None:
    """What is known of them reads a column that the table has only once it is altered."""
    names = ("postgres", "mariadb", "sqlite")
    ends = make_ends(*names)
    ends.site.at_publisher(_RETYPE, "ALTER TABLE vendor RENAME area TO place", "DELETE FROM vendor WHERE id < 9")
    ends.site.read_log().raise_error()
    known = "UPDATE msarticle_subscriptions SET earlier_filter = 'place IS NULL AND id < 5' RETURNING 1"
    execute(ends.site.databases.distribution, known)
    results = good_run(ends.site)
    for name in names:
        (notice,) = results[f"{name} snapshot"].notices
        assert notice.startswith(f"Subscriber {name}: article public.vendor: rows that table ")
        assert notice.endswith(
            ".vendor had of it may stay: the table has no column place, which tells them from others: "
            "(area = 'in') OR (place IS NULL AND id < 5); delete by hand those that are not the Publisher's"
        )
    assert ends.rows("postgres") == [(100, "own", "elsewhere")]
    for name in names[1:]:
        assert ends.rows(name) == [*((it, "abc", None) for it in (6, 8)), _KEPT]


def test_a_job_killed_between_any_two_steps_leaves_no_rows_at_mariadb(make_ends: Callable[..., _Ends]) -> None:
    ends = make_ends("mariadb")
    ends.site.at_publisher(_RETYPE, *_GO)
    ends.site.read_log().raise_error()
    snapshot = partial(Site.take_snapshot, subscription="mariadb")
    for step in (Failpoint.EARLIER_ROWS_DELETED, Failpoint.COLUMNS_CHANGED, Failpoint.DEFINITION_RECORDED):
        assert ChildJob(snapshot, ends.site, str(step)).killed(), step
        assert [it for it in ends.rows("mariadb") if it[0] < 100] == [], step
    good_run(ends.site)
    assert ends.rows("mariadb") == ends.wanted(_KEPT)


def test_rows_that_refer_to_those_that_go_are_deleted_with_them(databases: DatabasesFactory, tmp_path: Path) -> None:
    articles = [
        {"source": "public.vendor", "filter": "area IS NOT NULL", "pre_creation_cmd": "delete"},
        {"source": "public.item", "pre_creation_cmd": "delete"},
    ]
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher(*_TABLE, "CREATE TABLE item (id int PRIMARY KEY, vendor_id int REFERENCES vendor)")
    site.at_publisher("INSERT INTO item VALUES (1, 2), (2, 4), (3, 8)")
    site.set_up()
    good_run(site)
    site.at_subscriber("ALTER TABLE item ADD FOREIGN KEY (vendor_id) REFERENCES vendor")
    site.at_publisher(
        "ALTER TABLE vendor ALTER area TYPE int USING length(area)",
        "DELETE FROM item WHERE vendor_id = 4",
        "UPDATE vendor SET area = NULL WHERE id = 4",
    )
    site.read_log().raise_error()
    mark_for_reinitialization(SnapshotRequest(publication=site.publication, subscription="reporting"), site.topology)
    good_run(site)
    rows = "SELECT * FROM vendor WHERE area IS NOT NULL ORDER BY id"
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY id") == site.at_publisher(rows)
    assert site.at_subscriber("SELECT * FROM item ORDER BY id") == site.at_publisher("SELECT * FROM item ORDER BY id")
