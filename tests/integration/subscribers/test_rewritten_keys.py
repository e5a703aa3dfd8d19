"""A primary key whose values are others in its new type: the table has that type before the snapshot fills it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.child_job import ChildJob
from support.killed_jobs import SiteJob
from support.mariadb import MariaDbServer
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run, whole_run
from tranrepl.connections import Connection
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_ROWS = "SELECT {} AS id, name FROM vendor ORDER BY 1"
_STEPS = (
    *(Failpoint.CHANGE_BEGUN, Failpoint.COLUMNS_CHANGED, Failpoint.PROCEDURES_FOLLOWED, Failpoint.DEFINITION_RECORDED),
)
_TEXT = "ALTER TABLE vendor ALTER id TYPE text USING lpad(id::text, 3, '0')"
_SHORT_TEXT = "ALTER TABLE vendor ALTER id TYPE varchar(2) USING 'n' || id % 10"
_NUMBER = "UPDATE vendor SET id = 'n' || id; ALTER TABLE vendor ALTER id TYPE int USING substr(id, 2)::int"
_ROUNDED = "UPDATE vendor SET id = id / 100; ALTER TABLE vendor ALTER id TYPE int USING (id * 100)::int"

At = Callable[[str], Rows]
Make = Callable[..., tuple[Site, dict[str, At]]]


@pytest.fixture
def make_vendor(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path) -> Make:
    """Return a function that makes a publication whose table has such a key, and ways to its Subscribers."""

    def make(key: str, *kinds: str, **settings: str) -> tuple[Site, dict[str, At]]:
        article = {"source": "public.vendor", "destination": f"{mariadb_database}.vendor", "pre_creation_cmd": "delete"}
        subscriptions = [{"name": it, "connection": it, "sync_type": "automatic"} for it in kinds]
        made = Site(
            databases(),
            tmp_path / "store",
            [{**article, **STATEMENTS, **settings}],
            SparkHere(),
            subscriptions,
            replicate_ddl=True,
        )
        file = str(tmp_path / "subscriber.db")
        made.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
        made.connections["sqlite"] = Connection("sqlite", "sqlite", database=file)
        made.at_publisher(
            f"CREATE TABLE vendor (id {key} PRIMARY KEY, name text)",
            "INSERT INTO vendor SELECT n, 'name ' || n FROM unnest(ARRAY[1, 2, 3, 4004, 5005]) n",
        )
        made.set_up()
        good_run(made)
        ways: dict[str, At] = {
            "mariadb": lambda statement: list(mariadb.execute(statement, database=mariadb_database)),
            "sqlite": sqlite_execute(file),
        }
        return made, {it: ways[it] for it in kinds}

    return make


def _assert_same(site: Site, ways: dict[str, At]) -> None:
    """Compare whole tables, keys as texts."""
    expected = site.at_publisher(_ROWS.format("id::text"))
    for name, at in ways.items():
        text = "CAST(id AS char)" if name == "mariadb" else "CAST(id AS text)"
        assert at(_ROWS.format(text)) == expected, name


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("key", "altered", "inserted"),
    [
        pytest.param("int", _TEXT, "0009", id="texts that look like numbers"),
        pytest.param("int", _SHORT_TEXT, "x", id="rows of before are too long"),
        pytest.param("varchar(30)", _NUMBER, "9", id="rows of before are no numbers"),
        pytest.param("numeric(10,2)", _ROUNDED, "9", id="rows of before would be rounded to one"),
        pytest.param(
            "int", "ALTER TABLE vendor ALTER id TYPE date USING '2024-01-01'::date + id", "2001-01-01", id="dates"
        ),
    ],
)
def test_a_key_of_another_kind_has_the_publishers_values(
    make_vendor: Make, key: str, altered: str, inserted: str
) -> None:
    site, ways = make_vendor(key, "mariadb", "sqlite")
    *before, last = altered.split("; ")
    site.at_publisher(*before)
    good_run(site)
    site.at_publisher(last, f"INSERT INTO vendor VALUES ('{inserted}', 'new')")
    good_run(site)
    site.at_publisher(f"UPDATE vendor SET name = 'followed' WHERE id = '{inserted}'")
    good_run(site)
    _assert_same(site, ways)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("altered", [_SHORT_TEXT, _TEXT], ids=["rows do not fit", "rows fit"])
def test_a_key_of_another_kind_that_is_killed_between_any_two_steps_goes_on(make_vendor: Make, altered: str) -> None:
    site, ways = make_vendor("int", "mariadb")
    site.at_publisher(altered, "INSERT INTO vendor VALUES ('x', 'new')")
    site.read_log().raise_error()
    snapshot = SiteJob("snapshot", "mariadb")
    assert [step for step in _STEPS if ChildJob(snapshot, site, str(step)).killed()] == list(_STEPS)
    good_run(site)
    _assert_same(site, ways)


def test_rows_that_are_not_copied_anew_are_kept_where_they_do_not_fit(make_vendor: Make) -> None:
    site, ways = make_vendor("int", "mariadb", on_unknown_rows="stop")
    before = ways["mariadb"](_ROWS.format("id"))
    site.at_publisher(_SHORT_TEXT)
    assert whole_run(site)["mariadb"].error is not None
    for _ in range(2):
        error = SiteJob("repair", "mariadb")(site).error
        assert error is not None
        assert "rows of table" in error.message, error
        assert "`tranrepl reinitialize FILE -s mariadb --article public.vendor` copies them" in (error.remedy or "")
    assert ways["mariadb"](_ROWS.format("id")) == before
    request = SnapshotRequest(publication=site.publication, subscription="mariadb", articles=("public.vendor",))
    mark_for_reinitialization(request, site.topology)
    # The delivery finishes the change that was begun; the snapshot waits for it.
    whole_run(site)
    good_run(site)
    _assert_same(site, ways)
