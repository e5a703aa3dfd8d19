"""A new primary key of a column that comes with it, where rows of the Subscriber do not fit it, and the article stops.

At MariaDB, where each statement commits by itself, the change is made in steps: killed between any two of them, each
way on that the message names still ends.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.child_job import ChildJob
from support.killed_jobs import SiteJob
from support.mariadb import MariaDbServer
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.whole_run import good_run, whole_run
from tranrepl.errors import ErrorReport
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import ApplyMode, SnapshotRequest
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_ROWS = "SELECT id, code, name, part FROM vendor ORDER BY id, code"
_KEY = """SELECT column_name FROM information_schema.key_column_usage
 WHERE table_schema = DATABASE() AND table_name = 'vendor' AND constraint_name = 'PRIMARY' ORDER BY ordinal_position"""
_STEPS = (
    Failpoint.CHANGE_BEGUN,
    Failpoint.COLUMNS_CHANGED,
    Failpoint.PROCEDURES_FOLLOWED,
    Failpoint.DEFINITION_RECORDED,
)


class _Ends:
    """A publication with a MariaDB Subscriber whose row does not fit the key that the Publisher's table has by now."""

    def __init__(self, site: Site, mariadb: MariaDbServer, unfit: str) -> None:
        self.site = site
        self._mariadb = mariadb
        site.at_publisher(
            "CREATE TABLE vendor (id int PRIMARY KEY, code text NOT NULL, name text)",
            "INSERT INTO vendor SELECT n, 'code ' || n, 'name ' || n FROM generate_series(1, 30) n",
        )
        site.set_up()
        good_run(site)
        self.execute(unfit)
        site.at_publisher(
            "UPDATE vendor SET name = 'before' WHERE id = 3",
            "ALTER TABLE vendor ADD COLUMN part int NOT NULL DEFAULT 7, DROP CONSTRAINT vendor_pkey, "
            "ADD PRIMARY KEY (part, code)",
            "UPDATE vendor SET id = 1 WHERE id < 6",
            "UPDATE vendor SET code = 'moved' WHERE id = 7",
            "INSERT INTO vendor VALUES (1, 'new', 'one', 8)",
        )
        error = whole_run(site)["mariadb"].error
        assert error is not None
        assert "is stopped: its primary key is another one" in error.message

    def execute(self, statement: str) -> Rows:
        return list(self._mariadb.execute(statement, database=self.site.connections["mariadb"].database or ""))

    def assert_goes_on(self) -> None:
        assert self.execute(_KEY) == [("part",), ("code",)]
        self.site.at_publisher("UPDATE vendor SET id = 2 WHERE code = 'moved'", "DELETE FROM vendor WHERE code = 'new'")
        good_run(self.site)
        assert self.execute(_ROWS) == self.site.at_publisher(_ROWS)


_REPAIR, _SNAPSHOT, _DELIVERY = (SiteJob(it, "mariadb") for it in ("repair", "snapshot", "delivery"))


def _mark(site: Site) -> None:
    request = SnapshotRequest(publication=site.publication, subscription="mariadb", articles=("public.vendor",))
    mark_for_reinitialization(request, site.topology)


@pytest.fixture(params=["SQL", "CALL"])
def site(
    request: pytest.FixtureRequest,
    databases: DatabasesFactory,
    mariadb: MariaDbServer,
    mariadb_database: str,
    tmp_path: Path,
) -> Site:
    article = {
        "source": "public.vendor",
        "destination": f"{mariadb_database}.vendor",
        "pre_creation_cmd": "delete",
        "on_unknown_rows": "stop",
        **dict.fromkeys(["ins_cmd", "upd_cmd", "del_cmd"], request.param),
    }
    subscriptions = [{"name": "mariadb", "connection": "mariadb", "sync_type": "automatic"}]
    made = Site(databases(), tmp_path / "store", [article], SparkHere(), subscriptions, replicate_ddl=True)
    made.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    return made


_TWICE = "INSERT INTO vendor VALUES (99, 'code 4', 'twice')"
_TOO_LONG = "INSERT INTO vendor VALUES (99, REPEAT('x', 4000), 'long')"


@pytest.mark.slow
@pytest.mark.parametrize("unfit", [_TWICE, _TOO_LONG])
@pytest.mark.parametrize("way", ["corrected", "copied"])
def test_nothing_is_changed_where_rows_do_not_fit(site: Site, mariadb: MariaDbServer, unfit: str, way: str) -> None:
    ends = _Ends(site, mariadb, unfit)
    before = ends.execute("SHOW CREATE TABLE vendor")
    for _ in range(2):
        _assert_refused(_REPAIR(site).error)
    assert ends.execute("SHOW CREATE TABLE vendor") == before
    if way == "corrected":
        ends.execute("DELETE FROM vendor WHERE id = 99")
        _REPAIR(site).raise_error()
    else:
        _mark(site)
        good_run(site)
    ends.assert_goes_on()


def _assert_refused(error: ErrorReport | None) -> None:
    assert error is not None
    assert "do not fit its new primary key (part, code)" in error.message, error
    assert "`tranrepl reinitialize FILE -s mariadb --article public.vendor` copies them" in (error.remedy or "")


@pytest.mark.slow
@pytest.mark.parametrize("first", _STEPS[:2])
@pytest.mark.parametrize("way", ["corrected", "copied"])
def test_a_killed_change_goes_on_by_each_way(site: Site, mariadb: MariaDbServer, first: Failpoint, way: str) -> None:
    """Rows that do not fit come while the change is half made."""
    ends = _Ends(site, mariadb, "DELETE FROM vendor WHERE id = 1")
    assert ChildJob(_REPAIR, site, str(first)).killed()
    if first is Failpoint.CHANGE_BEGUN:
        ends.execute(_TWICE)
        _assert_refused(_REPAIR(site).error)
    job = _REPAIR
    if way == "copied":
        _mark(site)
        refused = _SNAPSHOT(site).error
        assert refused is not None
        assert refused.remedy == "`tranrepl distribute FILE --single-connection` finishes it"
        site.deliver("mariadb", mode=ApplyMode.SINGLE_CONNECTION).raise_error()
        job = _SNAPSHOT
    else:
        ends.execute("DELETE FROM vendor WHERE id = 99")
    steps = [step for step in _STEPS if ChildJob(job, site, str(step)).killed()]
    assert steps == list(_STEPS) or way == "copied", steps
    job(site).raise_error()
    ends.assert_goes_on()
