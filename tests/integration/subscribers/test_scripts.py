"""Scripts are for PostgreSQL Subscribers: others pass over them, and say so."""

from __future__ import annotations

from pathlib import Path

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from tranrepl.admin.exec_script import exec_script
from tranrepl.connections import Connection


def test_a_subscriber_of_another_database_passes_over_a_script(databases: DatabasesFactory, tmp_path: Path) -> None:
    path = str(tmp_path / "subscriber.db")
    article = {"source": "public.t", **STATEMENTS}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [{"name": "local", "connection": "sqlite"}])
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=path)
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY)")
    site.set_up()
    script = tmp_path / "views.sql"
    script.write_text("CREATE VIEW seen AS SELECT id FROM t")
    site.at_publisher("INSERT INTO t VALUES (1)")
    written = exec_script(site.topology, script)
    assert (written.runs_at, written.not_run_at) == ((), ("local (SQLite)",))
    site.at_publisher("INSERT INTO t VALUES (2)")
    delivered = site.run()
    assert any("script views.sql at 0x" in it and "was not run" in it for it in delivered.notices)
    seen = "SELECT id, (SELECT count(*) FROM sqlite_master WHERE type = 'view') FROM t ORDER BY id"
    assert sqlite_execute(path)(seen) == [(1, 0), (2, 0)]
