"""From a PostgreSQL Publisher through Spark to Subscribers that are not PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import DatabasesFactory
from support.databases import connection_environment
from support.mariadb import MariaDbServer
from support.shell import publication_file, tranrepl, typed
from support.site import Site, execute
from support.subscribers import STATEMENTS, mssql_execute, sqlite_execute
from tranrepl.admin.status import status
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind

_TABLE = """
CREATE TABLE vendor (
    vendor_id int PRIMARY KEY, name varchar(40) NOT NULL, credit numeric(10,2), active boolean, seen timestamptz,
    note text, logo bytea, tags text[]
)
"""
_CHANGES = (
    r"""INSERT INTO vendor SELECT n, 'vendor ' || n, n / 4.0, n % 2 = 0, '2024-01-01 00:00:00.000001+02', NULL,
    '\x00ff', ARRAY['a', NULL] FROM generate_series(1, 100) n""",
    "UPDATE vendor SET note = E'a\\tb\\\\ \\n😀', credit = NULL WHERE vendor_id % 10 = 0",
    "UPDATE vendor SET vendor_id = vendor_id + 1000 WHERE vendor_id > 90",
    "DELETE FROM vendor WHERE vendor_id BETWEEN 11 AND 20",
    """BEGIN; UPDATE vendor SET note = NULL, active = NOT active;
    UPDATE vendor SET note = '' WHERE vendor_id = 5; COMMIT""",
)
_COLUMNS = "vendor_id, name, credit, active, note, logo, tags"


def test_changes_reach_mariadb_and_sqlite(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path, spark: Any
) -> None:
    file = str(tmp_path / "archive.db")
    site = Site(
        databases(),
        tmp_path / "store",
        [{"source": "public.vendor", "destination": f"{mariadb_database}.vendor", **STATEMENTS}],
        spark,
        [{"name": "reporting", "connection": "mariadb"}, {"name": "archive", "connection": "sqlite"}],
    )
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=file)
    site.at_publisher(_TABLE)
    assert any(f"created table {mariadb_database}.vendor" in done for done in site.set_up())
    assert site.set_up() == []
    site.at_publisher(*_CHANGES)
    assert site.run().error is None

    published = site.at_publisher(f"SELECT {_COLUMNS.replace('tags', 'tags::text')} FROM vendor ORDER BY vendor_id")
    expected = [(*row[:3], int(row[3]), *row[4:]) for row in published]
    assert mariadb.execute(f"SELECT {_COLUMNS} FROM vendor ORDER BY 1", database=mariadb_database) == expected
    archived = sqlite_execute(file)(f"SELECT {_COLUMNS} FROM vendor ORDER BY 1")
    assert archived == [(*row[:2], None if row[2] is None else f"{row[2]:.2f}", *row[3:]) for row in expected]
    current = {it.subscription: it.undelivered_commands for it in status(site.topology).subscriptions}
    assert current == {"reporting": 0, "archive": 0}


def test_changes_reach_mariadb_by_procedures_and_a_missing_row_stops_them(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path, spark: Any
) -> None:
    site = Site(
        databases(),
        tmp_path / "store",
        [{"source": "public.vendor", "destination": f"{mariadb_database}.vendor"}],
        spark,
        [{"name": "reporting", "connection": "mariadb"}],
    )
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.at_publisher(_TABLE)
    site.set_up()
    site.at_publisher(*_CHANGES)
    site.run()
    rows = mariadb.execute("SELECT count(*), sum(vendor_id) FROM vendor", database=mariadb_database)
    assert rows == site.at_publisher("SELECT count(*), sum(vendor_id) FROM vendor")

    mariadb.execute("DELETE FROM vendor WHERE vendor_id = 3", database=mariadb_database)
    site.at_publisher("UPDATE vendor SET note = 'x' WHERE vendor_id = 3")
    site.read_log().raise_error()
    error = site.deliver().error
    assert error is not None
    assert (error.kind, error.number, error.article) == (ErrorKind.DATA, "20598", "public.vendor")
    assert "vendor_id = 3" in error.message


@pytest.mark.submit
def test_the_shell_goes_all_the_way_to_a_sql_server(
    databases: DatabasesFactory, mssql_database: Connection, tmp_path: Path
) -> None:
    """Take a snapshot, deliver changes by procedures, remove a row, and validate."""
    ends = replace(databases(migrated=False), subscriber=mssql_database)
    file = publication_file(
        tmp_path,
        [{"source": "public.vendor", "destination": "dbo.vendor"}],
        subscriptions=[{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}],
    )
    execute(ends.publisher, _TABLE, *_CHANGES[:1])

    def done(*words: str) -> str:
        outcome = tranrepl(*words, environment=ends.environment)
        assert outcome.status == 0, outcome.out + outcome.err
        return outcome.out

    done("setup", str(file))
    done("run", str(file), "--master", "local[2]")
    execute(ends.publisher, *_CHANGES[1:])
    done("run", str(file), "--master", "local[2]")
    rows = mssql_execute(mssql_database, f"select {_COLUMNS} from vendor order by 1")
    published = execute(ends.publisher, f"SELECT {_COLUMNS.replace('tags', 'tags::text')} FROM vendor ORDER BY 1")
    assert rows == published
    done("validate", str(file), "--master", "local[2]")

    mssql_execute(mssql_database, "delete from vendor where vendor_id = 3")
    differs = tranrepl("validate", str(file), "--master", "local[2]", environment=ends.environment)
    assert differs.status == 1
    execute(ends.publisher, "UPDATE vendor SET note = 'x' WHERE vendor_id = 3")
    stopped = tranrepl("run", str(file), "--master", "local[2]", environment=ends.environment)
    assert stopped.status == 1
    assert "20598" in stopped.err
    assert "vendor_id = 3" in stopped.err


def test_the_shell_scripts_procedures_where_a_database_has_them(databases: DatabasesFactory, tmp_path: Path) -> None:
    ends = databases()
    site = Site(ends, tmp_path / "store", ["public.vendor"])
    site.at_publisher(_TABLE)
    settings = {
        "publication": "purchasing",
        "publisher": {"connection": "publisher"},
        "distributor": {"connection": "distribution", "store": str(tmp_path / "store")},
        "articles": [{"source": "public.vendor"}],
        "subscriptions": [{"name": "archive", "connection": "archive"}],
    }
    file = tmp_path / "purchasing.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    archive = Connection("archive", "sqlite", database=str(tmp_path / "archive.db"))
    environment = connection_environment([ends.publisher, ends.distribution, archive])

    script = typed("script", file, "--dialect", "mssql", environment=environment)
    assert (script.status, script.err) == (0, "")
    assert script.out.count("\ngo\n") == 7
    assert "create procedure [dbo].[sp_MSupd_publicvendor]" in script.out
    assert "    @c5 datetimeoffset(6) = NULL,\n" in script.out

    refused = typed("script", file, "--dialect", "sqlite", environment=environment)
    assert refused.status == 1
    assert "allowed: mariadb, mssql, mysql" in refused.err

    checked = typed("check", file, environment=environment)
    assert checked.status == 1
    assert len(checked.errors) == 1
    assert "archive: SQLite takes statements only; these articles call procedures: public.vendor\n" in checked.err
    assert "write `ins_cmd: SQL`, `upd_cmd: SQL` and `del_cmd: SQL` into each of these articles" in checked.err

    # The table is not there yet, and gets another name than the Publisher's.
    settings["articles"] = [{"source": "public.vendor", "destination": "public.supplier"}]
    settings["subscriptions"] = [{"name": "reporting", "connection": "subscriber"}]
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    environment = connection_environment([ends.publisher, ends.distribution, ends.subscriber])
    script = typed("script", file, "-s", "reporting", environment=environment)
    assert (script.status, script.err) == (0, "")
    assert 'INSERT INTO "public"."supplier"' in script.out
    assert '"public"."vendor"' not in script.out
