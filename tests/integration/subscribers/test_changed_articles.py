"""Articles that the file defines otherwise while commands of before wait: each subscription passes to the new
definition behind the last of them, at its own pace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.child_job import SETUP, ChildJob, distribution_to
from support.databases import Databases
from support.equality import differing_rows
from support.mariadb import MariaDbServer
from support.observed import distribution_rows
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from support.thread_streams import streams_as_threads
from support.whole_run import good_run
from tranrepl.errors import ConfigurationError, DataError, TransientError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.snapshot import initialization
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_SUBSCRIPTIONS = [
    {"name": "reporting", "connection": "subscriber"},
    {"name": "archive", "connection": "archive"},
    {"name": "mariadb", "connection": "mariadb"},
]
_COLUMNS = ["id", "name", "rating"]
# Calls of one definition do not fit the procedures of another.
_DEFINITIONS: tuple[Mapping[str, object], ...] = (
    {},
    {"upd_cmd": "CALL"},
    {"upd_cmd": "XCALL", "del_cmd": "XCALL", "columns": [*_COLUMNS, "note"]},
    {"upd_cmd": "SQL", "columns": _COLUMNS},
    {"upd_cmd": "MCALL", "ins_cmd": "SQL", "columns": _COLUMNS},
)
# The first one's commit is what was before the first change; from then on the change is next.
_KILLS = {
    "archive": ("after_commit", "begin", "applied", "before_commit", "watermark_set", "after_commit"),
    "mariadb": ("after_commit", "change_begun", "procedures_followed", "definition_recorded", "after_commit"),
}
# An update's procedure takes three by CALL, and four by XCALL.
_ARGUMENTS = "SELECT pronargs::int FROM pg_proc WHERE proname = 'sp_MSupd_publicitem'"

Edit = Callable[..., Site]


@pytest.fixture
def edited(
    databases: DatabasesFactory,
    database: DatabaseFactory,
    mariadb: MariaDbServer,
    mariadb_database: str,
    tmp_path: Path,
) -> Edit:
    """Return the site with one of `_DEFINITIONS` in its file, and with so many streams for each subscription."""
    ends, archive = databases(), database("archive")

    def edit(number: int, streams: int = 1) -> Site:
        article = {"source": "public.vendor", "destination": f"{mariadb_database}.vendor", **_DEFINITIONS[number]}
        subscriptions = [{**it, "subscription_streams": streams, "commit_batch_size": 3} for it in _SUBSCRIPTIONS]
        chosen = _SUBSCRIPTIONS if streams == 1 else subscriptions
        site = Site(ends, tmp_path / "store", [article], SparkHere(), chosen)
        site.connections["archive"] = archive
        site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
        return site

    site = edit(0)
    site.at_publisher("CREATE TABLE vendor (id int PRIMARY KEY, name text, rating int, note text)")
    site.set_up()
    return edit


def _work(site: Site, number: int) -> None:
    """Transactions of every kind, over rows of every earlier one; what they write is read."""
    base = 10 * number
    site.at_publisher(
        f"INSERT INTO vendor SELECT {base} + n, 'made ' || n, n, 'note' FROM generate_series(1, 6) n",
        f"UPDATE vendor SET rating = rating + 100, name = upper(name) WHERE id % 3 = {number} % 3",
        f"UPDATE vendor SET id = id + 1000 WHERE id = {base + 1}",
        f"DELETE FROM vendor WHERE id = {base + 2}",
        "BEGIN; UPDATE vendor SET name = NULL WHERE id % 5 = 0; DELETE FROM vendor WHERE id % 10 = 6; COMMIT",
    )
    site.read_log().raise_error()


def _rows(site: Site, mariadb: MariaDbServer) -> dict[str, Rows]:
    """Return the whole table at each Subscriber, as the Publisher has it but for `note`, which soon travels no more."""
    database = site.connections["mariadb"].database
    rows = f"SELECT id, name, rating FROM {database}.vendor ORDER BY id"
    return {
        "reporting": site.at_subscriber(rows),
        "archive": execute(site.connections["archive"], rows),
        "mariadb": list(mariadb.execute(rows, database=database or "")),
    }


def _published(site: Site) -> Rows:
    return site.at_publisher("SELECT id, name, rating FROM vendor ORDER BY id")


@pytest.mark.slow
def test_each_subscription_passes_to_new_definitions_at_its_own_pace(edited: Edit, mariadb: MariaDbServer) -> None:
    site, then = edited(0), dict[int, Rows]()
    for number in range(len(_DEFINITIONS)):
        if number:
            said = edited(number).set_up()
            assert (
                "the Publisher's log has the new definition of article public.vendor, which holds from there on" in said
            )
        site = edited(number)
        _work(site, number)
        then[number] = _published(site)
        site.deliver("reporting").raise_error()
        if number == 2:
            site.deliver("archive").raise_error()
            assert _rows(site, mariadb)["archive"] == then[2]
        assert _rows(site, mariadb)["reporting"] == then[number]
    site.deliver("archive").raise_error()
    passed = site.deliver("mariadb")
    passed.raise_error()
    assert [it for it in passed.notices if "setup changed its definition (upd_cmd)" in it] != []
    assert _rows(site, mariadb) == dict.fromkeys(["reporting", "archive", "mariadb"], then[4])
    # Nothing is left to pass, and setup says so.
    assert not [it for it in site.set_up() if "definition" in it or "procedure" in it]
    _work(site, 7)
    for it in _SUBSCRIPTIONS:
        site.deliver(it["name"]).raise_error()
    assert _rows(site, mariadb) == dict.fromkeys(["reporting", "archive", "mariadb"], _published(site))


@pytest.mark.slow
def test_streams_pass_to_a_new_definition_together(edited: Edit, mariadb: MariaDbServer) -> None:
    for number in range(3):
        site = edited(number, streams=3)
        site.set_up()
        _work(site, number)
    with streams_as_threads():
        site.deliver("archive").raise_error()
    assert _rows(site, mariadb)["archive"] == _published(site)


@pytest.mark.parametrize("name", ["archive", pytest.param("mariadb", marks=pytest.mark.slow)])
def test_a_delivery_killed_at_any_step_passes_to_a_definition_once(
    edited: Edit, mariadb: MariaDbServer, name: str
) -> None:
    _work(edited(0), 0)
    edited(1).set_up()
    _work(edited(1), 1)
    site = edited(2)
    site.set_up()
    _work(site, 2)
    for step in _KILLS[name]:
        assert ChildJob(distribution_to(name), site, step).killed(), step
    site.deliver(name).raise_error()
    assert _rows(site, mariadb)[name] == _published(site)


@pytest.mark.slow
def test_setup_killed_while_it_changes_a_definition_is_done_again(edited: Edit, mariadb: MariaDbServer) -> None:
    _work(edited(0), 0)
    edited(0).deliver("reporting").raise_error()
    site = edited(1)
    for step in (Failpoint.DEFINITIONS_PENDING, Failpoint.DEFINITIONS_WRITTEN):
        assert ChildJob(SETUP, site, str(step)).killed(), step
        # It has not finished: nothing is read by a file that may not come into force.
        with pytest.raises(ConfigurationError, match="is not registered as its file describes it"):
            site.read_log()
    site.set_up()
    _work(site, 1)
    for it in _SUBSCRIPTIONS:
        site.deliver(it["name"]).raise_error()
    assert _rows(site, mariadb) == dict.fromkeys(["reporting", "archive", "mariadb"], _published(site))
    site.set_up()
    stored = distribution_rows(site, "SELECT count(*), count(DISTINCT xact_seqno) FROM msschema_changes")
    assert stored == [(1, 1)]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("reinitialized", [(), ("public.item",)], ids=["whole", "one article"])
def test_a_table_whose_snapshot_began_behind_a_new_definition_stands_at_it(
    databases: DatabasesFactory, tmp_path: Path, reinitialized: tuple[str, ...], killed: bool
) -> None:
    ends, subscription = databases(), {**_SUBSCRIPTIONS[0], "sync_type": "automatic", "apply": "serial"}

    def edited(upd_cmd: str) -> Site:
        articles = [{"source": "public.item", "upd_cmd": upd_cmd}, {"source": "public.event"}]
        return Site(ends, tmp_path / "store", articles, SparkHere(), [subscription], replicate_ddl=True)

    site = edited("CALL")
    site.at_publisher(*(f"CREATE TABLE {it} (id int PRIMARY KEY, name text)" for it in ("item", "event")))
    site.set_up()
    site.take_snapshot().raise_error()
    site.at_publisher("INSERT INTO event VALUES (1, 'stored, and not delivered')")
    site.read_log().raise_error()
    site.at_publisher("INSERT INTO item VALUES (1, 'only in the snapshot')")
    request = SnapshotRequest(publication=site.publication, subscription="reporting", articles=reinitialized)
    mark_for_reinitialization(request, site.topology)
    site.take_snapshot().raise_error()
    site = edited("XCALL")
    if killed:
        assert ChildJob(SETUP, site, str(Failpoint.DEFINITIONS_WRITTEN)).killed()
    site.set_up()
    site.at_publisher("UPDATE item SET name = 'by the new definition'", "ALTER TABLE item RENAME name TO title")
    site.run()
    assert differing_rows(site) == {}


def test_a_snapshot_under_way_gives_way_to_a_new_definition(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log reader comes to the definition before the snapshot looks; the command that alters is in the snapshot."""
    ends = databases()
    site, now = (_serial_site(ends, tmp_path, {"source": "public.item", "upd_cmd": it}) for it in ("CALL", "XCALL"))
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, name text)", "INSERT INTO item VALUES (1, 'copied')")
    site.set_up()

    def reach(reached: Failpoint) -> None:
        if reached is Failpoint.SNAPSHOT_INITIATED:
            monkeypatch.undo()
            now.set_up()
            now.at_publisher("INSERT INTO item VALUES (2, 'behind the definition')")
            now.read_log().raise_error()

    monkeypatch.setattr(initialization, "reach", reach)
    with contextlib.suppress(TransientError):
        site.take_snapshot()
    now.take_snapshot().raise_error()
    now.at_publisher("UPDATE item SET name = 'by the new definition'")
    now.run()
    assert differing_rows(now) == {}
    assert now.at_subscriber(_ARGUMENTS) == [(4,)]


def test_a_table_copied_behind_where_a_new_definition_holds_is_copied_again(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    """The log reader has stopped, and so the new definition holds from there: before the snapshot."""
    ends = databases()
    stopping = {"source": "public.stopping", "filter": "10 / divisor > 0"}
    item = {"source": "public.item", "pre_creation_cmd": "truncate"}
    site = _serial_site(ends, tmp_path, stopping, {**item, "upd_cmd": "CALL"})
    site.at_publisher(
        "CREATE TABLE stopping (id int PRIMARY KEY, divisor int)", "CREATE TABLE item (id int PRIMARY KEY, name text)"
    )
    site.set_up()
    site.take_snapshot().raise_error()
    site.at_publisher("INSERT INTO stopping VALUES (1, 0)", "DELETE FROM stopping", "INSERT INTO item VALUES (1, 'a')")
    with pytest.raises(DataError, match="division by zero"):
        site.run_log_reader().raise_error()
    request = SnapshotRequest(publication=site.publication, subscription="reporting", articles=("public.item",))
    mark_for_reinitialization(request, site.topology)
    site.take_snapshot().raise_error()
    now = _serial_site(ends, tmp_path, "public.stopping", {**item, "upd_cmd": "XCALL"})
    now.set_up()
    now.at_publisher("UPDATE item SET name = 'by the new definition'")
    good_run(now)
    assert differing_rows(now) == {}
    assert now.at_subscriber(_ARGUMENTS) == [(4,)]


def _serial_site(ends: Databases, path: Path, *articles: Mapping[str, object] | str) -> Site:
    subscription = {**_SUBSCRIPTIONS[0], "sync_type": "automatic", "apply": "serial"}
    return Site(ends, path / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
