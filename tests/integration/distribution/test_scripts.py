"""Scripts of `tranrepl exec` run at each PostgreSQL Subscriber, once, at their place among the changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.announced import signed
from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.shell import publication_file, typed
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.browse import Selection, browse
from tranrepl.admin.exec_script import exec_script
from tranrepl.admin.skip_and_retry import skip_transaction
from tranrepl.connections import Connection
from tranrepl.distribution import delivery
from tranrepl.errors import ConfigurationError
from tranrepl.failpoint import Failpoint
from tranrepl.model.script import Script
from tranrepl.subscriber.base import applier

_SCRIPT = """
CREATE TABLE seen AS SELECT id FROM t;
CREATE VIEW names AS SELECT name FROM t;
CREATE INDEX of_names ON t (name);
GRANT SELECT ON names TO pg_monitor;
"""
_MADE = "SELECT to_regclass('of_names')::text, has_table_privilege('pg_monitor', 'names', 'SELECT')"
_ROWS = "SELECT id, name FROM t ORDER BY id"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.t"], SparkHere())
    return _set_up(site)


def _set_up(site: Site) -> Site:
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, name text)")
    site.set_up()
    return site


def _exec(site: Site, folder: Path, text: str = _SCRIPT) -> None:
    file = folder / "views.sql"
    file.write_text(text)
    exec_script(site.topology, file)


def _insert(site: Site, row: int) -> None:
    site.at_publisher(f"INSERT INTO t VALUES ({row}, 'n{row}')")


def _assert_ran(subscriber: Connection, seen: Rows, rows: int) -> None:
    assert execute(subscriber, "SELECT id FROM seen ORDER BY id") == seen
    assert execute(subscriber, _MADE) == [("of_names", True)]
    assert execute(subscriber, _ROWS) == [(it, f"n{it}") for it in range(1, rows + 1)]


def _comments(site: Site) -> str:
    return str(execute(site.databases.distribution, "SELECT comments FROM msdistribution_history ORDER BY id")[-1][0])


def test_each_subscriber_runs_a_script_where_it_stands_in_the_log(
    databases: DatabasesFactory, database: DatabaseFactory, tmp_path: Path
) -> None:
    subscriptions = [{"name": it, "connection": it} for it in ("subscriber", "second")]
    site = Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), subscriptions)
    site.connections["second"] = database("second")
    _set_up(site)
    _insert(site, 1)
    site.read_log().raise_error()
    site.deliver("subscriber").raise_error()
    _insert(site, 2)
    _exec(site, tmp_path)
    _insert(site, 3)
    site.read_log().raise_error()
    ran = site.deliver("subscriber")
    ran.raise_error()
    assert (ran.transactions, ran.commands, ran.commands_by_article) == (3, 3, {"public.t": 2})
    assert any("ran script views.sql at 0x" in it for it in ran.notices)
    assert "ran script views.sql at 0x" in _comments(site)
    _insert(site, 4)
    site.run()
    for subscriber in (site.databases.subscriber, site.connections["second"]):
        _assert_ran(subscriber, [(1,), (2,)], rows=4)


def test_streams_stop_on_either_side_of_a_script(databases: DatabasesFactory, tmp_path: Path, here: SparkHere) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "subscription_streams": 2}
    site = _set_up(Site(databases(), tmp_path / "store", ["public.t"], here, [subscription]))
    _insert(site, 1)
    _exec(site, tmp_path)
    _insert(site, 2)
    site.run()
    _assert_ran(site.databases.subscriber, [(1,)], rows=2)


def test_a_script_stands_between_the_rows_of_its_own_transaction(site: Site) -> None:
    script = _script(site)
    with site.topology.distributor() as database:
        database.scripts.add(database.publications.get("purchasing"), script.digest)
    emitted = signed("script", f"$m${script.message}$m$")
    site.at_publisher(f"BEGIN; INSERT INTO t VALUES (1, 'n1'); {emitted}; INSERT INTO t VALUES (2, 'n2'); COMMIT")
    site.run()
    _assert_ran(site.databases.subscriber, [(1,)], rows=2)


def _script(site: Site) -> Script:
    with site.topology.publisher("test") as publisher:
        return Script(publication=publisher.name, name="views.sql", sql=_SCRIPT)


def test_a_script_is_known_until_it_is_read_as_often_as_it_was_written(site: Site, tmp_path: Path) -> None:
    count = "CREATE TABLE IF NOT EXISTS runs (n int); INSERT INTO runs VALUES (1)"
    _exec(site, tmp_path, count)
    _exec(site, tmp_path, count)
    with site.topology.publisher("test") as publisher:
        message = Script(publication=publisher.name, name="views.sql", sql=count).message
    written = "SELECT json_array_length(scripts) FROM mspublications"
    assert execute(site.databases.distribution, written) == [(2,)]
    site.run()
    assert execute(site.databases.distribution, written) == [(0,)]
    site.at_publisher(signed("script", f"$m${message}$m$"))
    assert len(site.read_log().notices) == 1
    site.deliver().raise_error()
    assert site.at_subscriber("SELECT n FROM runs") == [(1,), (1,)]


def test_a_script_that_fails_names_itself_and_can_be_skipped(site: Site, tmp_path: Path) -> None:
    _insert(site, 1)
    _exec(site, tmp_path, "CREATE TABLE half (); GRANT SELECT ON missing TO pg_monitor")
    _insert(site, 2)
    site.read_log().raise_error()
    error = site.deliver().error
    assert error is not None
    assert error.xact_seqno is not None
    assert error.remedy is not None
    assert 'script views.sql: relation "missing" does not exist' in error.message
    assert f"tranrepl skip FILE -s NAME --xact-seqno 0x{error.xact_seqno}" in error.remedy
    assert site.at_subscriber("SELECT to_regclass('half'), (SELECT array_agg(id) FROM t)") == [(None, [1])]
    skip_transaction(site.topology, "reporting", bytes.fromhex(error.xact_seqno))
    site.run()
    assert site.at_subscriber(_ROWS) == [(1, "n1"), (2, "n2")]


def test_a_script_that_ends_the_transaction_is_told_as_a_script_and_can_be_skipped(site: Site, tmp_path: Path) -> None:
    _exec(site, tmp_path, "DO $$ BEGIN COMMIT; END $$")
    site.read_log().raise_error()
    error = site.deliver().error
    assert error is not None
    assert "script views.sql: invalid transaction termination: a COMMIT or ROLLBACK in it" in error.message
    assert f"tranrepl skip FILE -s NAME --xact-seqno 0x{error.xact_seqno}" in (error.remedy or "")


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("failpoint", [Failpoint.APPLIED, Failpoint.WATERMARK_SET, Failpoint.AFTER_COMMIT])
def test_a_script_runs_once_where_the_delivery_dies(
    site: Site, tmp_path: Path, failpoint: Failpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reach(point: Failpoint) -> None:
        if point is failpoint:
            raise _Killed

    _exec(site, tmp_path)
    _insert(site, 1)
    site.read_log().raise_error()
    with monkeypatch.context() as patched:
        patched.setattr(delivery, "reach", reach)
        patched.setattr(applier, "reach", reach)
        with pytest.raises(_Killed):
            site.deliver()
    site.run()
    _assert_ran(site.databases.subscriber, [], rows=1)


def test_a_script_keeps_its_letters_whatever_the_encoding_of_the_log(site: Site, tmp_path: Path) -> None:
    comment = "Größe \u2014 \U0001f600 'x' \\n"
    _exec(site, tmp_path, f"COMMENT ON TABLE t IS '{comment.replace(chr(39), chr(39) * 2)}'")
    assert Script(publication="p", name="größe.sql", sql=comment).message.isascii()
    site.run()
    assert site.at_subscriber("SELECT obj_description('t'::regclass)") == [(comment,)]


def test_browse_shows_a_script_with_its_name_and_its_text(site: Site, tmp_path: Path) -> None:
    _exec(site, tmp_path, "GRANT SELECT ON t TO pg_monitor;\n")
    site.read_log().raise_error()
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        batches, articles = database.batches.after(record, b""), database.articles.by_id(record)
        (shown,) = browse(record, batches, articles, Selection(), site.topology.dialect("reporting"))
    assert (shown.operation, shown.article) == ("SCRIPT", "")
    assert shown.command == "SCRIPT views.sql: GRANT SELECT ON t TO pg_monitor;"


def test_a_message_that_exec_did_not_write_is_run_nowhere(site: Site) -> None:
    (name,) = site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")[0]
    forged = '{"v":1,"publication":"%s","name":"forged","sql":"CREATE TABLE forged ()"}'
    site.at_publisher(
        f"SELECT pg_logical_emit_message(true, 'tranrepl.script', '{forged % name}')",
        # By who may sign messages, and may not write to the distribution database.
        *(signed("script", f"'{forged % it}'") for it in (name, "another")),
    )
    read = site.read_log()
    read.raise_error()
    assert (read.commands, len(read.notices)) == (0, 2)
    site.run()
    assert site.at_subscriber("SELECT to_regclass('forged')") == [(None,)]


@pytest.fixture(scope="module")
def unchanged(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield a site for tests whose scripts are refused."""
    with shared_databases(postgres, "scripts") as databases:
        yield _set_up(Site(databases, tmp_path_factory.mktemp("scripts") / "store", ["public.t"], SparkHere()))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"SELECT '\xe9'", "is not UTF-8: byte 9"),
        (b" " * (1024 * 1024 + 1), "has 1,048,577 bytes"),
        (b"CREATE INDEX CONCURRENTLY i ON t (name)", "PostgreSQL runs it outside of transactions only"),
    ],
)
def test_exec_refuses_what_could_not_run(unchanged: Site, tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "views.sql"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=says):
        exec_script(unchanged.topology, file)


def test_the_shell_says_where_a_script_will_run(site: Site, tmp_path: Path) -> None:
    file, script = publication_file(tmp_path, [{"source": "public.t"}]), tmp_path / "views.sql"
    script.write_text(_SCRIPT)
    outcome = typed("exec", file, "--sql", script, environment=site.databases.environment)
    assert (outcome.status, outcome.err) == (0, "")
    assert "script views.sql is in the Publisher's log; it runs at: reporting" in outcome.out
