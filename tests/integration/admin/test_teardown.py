"""`tranrepl teardown`: what setup made goes, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.databases import Databases
from support.in_process import replicate_stored
from support.observed import distribution_rows
from support.processes import NO_AIRFLOW
from support.shell import Outcome, in_a_terminal, publication_file, typed
from support.site import Rows, Site, execute
from tranrepl.admin.publication_ends import Left
from tranrepl.admin.teardown import plan_teardown, tear_down
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError

pytestmark = pytest.mark.new_sessions

TABLES = """
    CREATE TABLE plain (id int PRIMARY KEY, note text);
    CREATE TABLE keyed (id int PRIMARY KEY, code int NOT NULL);
    CREATE UNIQUE INDEX "Keyed Code" ON keyed (code);
    ALTER TABLE keyed REPLICA IDENTITY USING INDEX "Keyed Code";
    CREATE TABLE silent (id int PRIMARY KEY, note text);
    ALTER TABLE silent REPLICA IDENTITY NOTHING;
    CREATE TABLE whole (id int PRIMARY KEY, note text);
    ALTER TABLE whole REPLICA IDENTITY FULL;
"""
NAMES = ("plain", "keyed", "silent", "whole")
ARTICLES = [{"source": f"public.{name}"} for name in NAMES]

_OURS = "n.nspname NOT IN ('pg_catalog', 'pg_toast', 'information_schema')"
_RELATIONS = "pg_class JOIN pg_namespace n ON n.oid = relnamespace"
_INDEXES = "pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class x ON x.oid = i.indexrelid"
_CATALOGUE = (
    f"SELECT nspname, relname, relkind::text, relreplident::text FROM {_RELATIONS} WHERE {_OURS} ORDER BY 1, 2",
    f"SELECT p.proname, p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE {_OURS} ORDER BY 1",
    f"SELECT c.relname, x.relname FROM {_INDEXES} WHERE i.indisreplident ORDER BY 1",
    "SELECT pubname::text FROM pg_publication ORDER BY 1",
    "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() ORDER BY 1",
    "SELECT nspname::text FROM pg_namespace WHERE nspname !~ '^pg_' ORDER BY 1",
)
_MODEL_TABLES = "SELECT relname FROM pg_class WHERE relname LIKE 'msrepl%'"
_PROCEDURES = "SELECT proname::text FROM pg_proc WHERE proname LIKE 'sp_MS%' ORDER BY 1"
_IDENTITIES = "SELECT relname, relreplident::text FROM pg_class WHERE relname IN ('plain', 'keyed') ORDER BY 1"


def _catalogue(*connections: Connection) -> list[Rows]:
    """Return the tables, indexes, procedures, publications and slots in a database's catalogue."""
    return [execute(connection, query) for connection in connections for query in _CATALOGUE]


def _everything(databases: Databases) -> list[Rows]:
    return _catalogue(databases.publisher, databases.subscriber, databases.distribution)


def _site(databases: Databases, folder: Path, articles: Any = ARTICLES, **settings: Any) -> Site:
    return Site(databases, folder / "store", articles, **settings)


@pytest.fixture
def databases_with_tables(databases: DatabasesFactory) -> Databases:
    """Create the tables at both ends; the distribution database is empty."""
    made = databases(migrated=False)
    execute(made.publisher, TABLES)
    execute(made.subscriber, TABLES)
    return made


@pytest.fixture
def site(databases_with_tables: Databases, tmp_path: Path) -> Site:
    """Return a site that is not set up yet."""
    return _site(databases_with_tables, tmp_path)


def _tear_down(site: Site, *left: str) -> list[str]:
    done: list[str] = []
    tear_down(plan_teardown(site.topology, Left(subscribers=frozenset(left))), done.append)
    return done


def _run(site: Site) -> None:
    replicate_stored(site)


def _typed(site: Site, folder: Path, *options: str) -> Outcome:
    file = publication_file(folder, ARTICLES)
    return typed("teardown", file, *options, environment=site.databases.environment)


def test_everything_is_as_before_setup_and_setup_works_again(site: Site, tmp_path: Path) -> None:
    before = _everything(site.databases)
    for number in (1, 2):
        site.set_up()
        site.at_publisher(f"INSERT INTO plain VALUES ({number}, 'row')")
        _run(site)
        assert _everything(site.databases) != before
        (tmp_path / "store" / "mine").mkdir(exist_ok=True)
        assert len(list((tmp_path / "store").glob("[!_]*"))) == 2
        _tear_down(site)
        assert _everything(site.databases) == before
        # What is not registered in the store stays, and so do the user's rows.
        assert [it.name for it in (tmp_path / "store").glob("[!_]*")] == ["mine"]
        assert site.at_subscriber("SELECT count(*) FROM plain") == [(number,)]
    assert plan_teardown(site.topology).is_empty


def test_it_says_what_will_go_and_asks(site: Site, tmp_path: Path) -> None:
    site.set_up()
    before = _everything(site.databases)
    dry = _typed(site, tmp_path, "--dry-run")
    assert (dry.status, dry.out.splitlines()[-1]) == (0, "purchasing: nothing was removed (--dry-run)")
    ((slot,),) = site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    for said in (
        f"Publisher {site.databases.publisher.database}",
        f"  remove replication slot {slot}",
        f"  remove publication {slot}",
        "  remove REPLICA IDENTITY FULL of public.plain: back to DEFAULT",
        '  remove REPLICA IDENTITY FULL of public.keyed: back to USING INDEX "Keyed Code"',
        "  remove REPLICA IDENTITY FULL of public.silent: back to NOTHING",
        "Subscriber reporting",
        "  remove procedure sp_MSins_publicplain",
        "  remove registration, subscriptions, history and errors of publication purchasing",
    ):
        assert said in dry.out.splitlines(), dry.out
    assert "public.whole" not in dry.out
    refused = _typed(site, tmp_path)
    assert refused.status == 1
    assert "error: nothing was removed: there is no terminal to ask in\n  → --yes removes without asking" in refused.err
    assert _everything(site.databases) == before
    done = _typed(site, tmp_path, "--yes")
    assert done.status == 0, done.err
    promised = [it.split("remove ", 1)[1] for it in dry.out.splitlines() if it.startswith("  remove ")]
    removed = [it.split("removed ", 1)[1] for it in done.out.splitlines() if it.startswith("  removed ")]
    assert len(promised) == len(removed)
    assert all(it.startswith(what.split(":")[0]) for what, it in zip(promised, removed, strict=True))
    again = _typed(site, tmp_path, "--yes")
    assert (again.status, again.out.splitlines()[-1]) == (0, "purchasing: nothing to remove")
    file, environment = publication_file(tmp_path, ARTICLES), site.databases.environment
    for verb in ("status", "run", "browse"):
        (error,) = typed(verb, file, environment=environment).errors
        assert "→ run `tranrepl setup" in error


def test_no_update_fails_where_another_publication_has_the_table_by_now(
    databases_with_tables: Databases, tmp_path: Path
) -> None:
    keyless = "CREATE TABLE keyless (id int NOT NULL UNIQUE, note text)"
    execute(databases_with_tables.publisher, keyless, "INSERT INTO keyless VALUES (1, 'one')")
    execute(databases_with_tables.subscriber, keyless)
    site = _site(databases_with_tables, tmp_path, [*ARTICLES, {"source": "public.keyless"}])
    site.set_up()
    site.at_publisher("CREATE PUBLICATION others FOR TABLE keyless, plain, silent")
    (stays,) = (it for part in plan_teardown(site.topology).parts for it in part.stays if "keyless" in it)
    assert "publication others has the table, whose UPDATEs would fail with DEFAULT" in stays
    _tear_down(site)
    site.at_publisher(*(f"UPDATE {it} SET note = 'two'" for it in ("keyless", "plain", "silent")))
    assert site.at_publisher("SELECT relreplident::text FROM pg_class WHERE relname = 'plain'") == [("d",)]


@pytest.mark.parametrize(("answer", "status"), [("n\n", 1), pytest.param("y\n", 0, marks=pytest.mark.slow)])
def test_an_answer_at_the_terminal_decides(site: Site, tmp_path: Path, answer: str, status: int) -> None:
    site.set_up()
    before = _everything(site.databases)
    file = publication_file(tmp_path, ARTICLES)
    environment = {**site.databases.environment, "AIRFLOW_HOME": NO_AIRFLOW}
    with in_a_terminal("teardown", file, environment=environment, answer=answer) as shown:
        text = "".join(shown)
    assert "Remove all this? [y/N]" in text
    assert ("nothing was removed" in text, _everything(site.databases) == before) == (status == 1, status == 1)


def test_only_this_publication_goes(databases_with_tables: Databases, tmp_path: Path) -> None:
    # Both publications share a table at the Publisher, and one at the Subscriber with its procedures.
    shared = {**ARTICLES[1], "truncate": "ignore"}
    ours = _site(databases_with_tables, tmp_path / "ours", [ARTICLES[0], shared])
    theirs = _site(databases_with_tables, tmp_path / "theirs", [shared, ARTICLES[2]], publication="their-s")
    ours.set_up()
    theirs.set_up()
    for site in (ours, theirs):
        site.at_publisher("INSERT INTO keyed SELECT coalesce(max(id), 0) + 1, 1 + count(*) FROM keyed")
    _run(theirs)
    planned = plan_teardown(ours.topology)
    stays = [it for part in planned.parts for it in part.stays]
    assert [it.split(": ")[0] for it in stays] == [
        "REPLICA IDENTITY FULL of public.keyed",
        *(f"procedure sp_MS{it}_publickeyed" for it in ("del", "ins", "upd")),
    ]
    tear_down(planned, lambda _: None)
    assert ours.at_publisher(_IDENTITIES) == [("keyed", "f"), ("plain", "d")]
    theirs.at_publisher("UPDATE keyed SET code = code + 10", "INSERT INTO silent VALUES (1, 'x')")
    _run(theirs)
    assert theirs.differences() == []
    _tear_down(theirs)
    assert theirs.at_publisher(_IDENTITIES) == [("keyed", "i"), ("plain", "d")]
    assert theirs.at_subscriber(_PROCEDURES) == []


@pytest.mark.slow
def test_equal_names_of_another_publisher_and_distribution_database_stay(
    databases: DatabasesFactory, own_server: Any, tmp_path: Path
) -> None:
    here, there = databases(), databases()
    own_server.create_database(here.publisher.database or "")
    publisher = own_server.connection(here.publisher.database or "", "publisher")
    other = Databases(publisher, here.subscriber, there.distribution)
    sites = [
        _site(it, tmp_path / name, [{"source": "public.item", "truncate": "ignore"}])
        for it, name in ((here, "one"), (other, "two"))
    ]
    for site in sites:
        site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note text)")
        site.set_up()
    _tear_down(sites[0])
    sites[1].at_publisher("INSERT INTO item VALUES (1, 'other')")
    _run(sites[1])
    assert sites[1].differences() == []
    _tear_down(sites[1])
    assert execute(here.subscriber, _MODEL_TABLES) == []
    assert execute(here.subscriber, _PROCEDURES) == []


def test_edited_and_custom_procedures_stay_and_are_named(databases_with_tables: Databases, tmp_path: Path) -> None:
    articles = [{"source": "public.plain", "upd_cmd": "XCALL mine"}]
    site = _site(databases_with_tables, tmp_path, articles)
    site.at_subscriber("CREATE PROCEDURE mine(a int, b text, c int, d text) LANGUAGE sql AS 'SELECT 1'")
    site.set_up()
    site.at_subscriber(
        'CREATE OR REPLACE PROCEDURE "sp_MSdel_publicplain"(pkc1 int) LANGUAGE plpgsql AS $$ BEGIN END $$'
    )
    (stay,) = [it for part in plan_teardown(site.topology).parts for it in part.stays]
    drop = 'DROP PROCEDURE "public"."sp_MSdel_publicplain"'
    assert stay.startswith("procedure sp_MSdel_publicplain, which was edited by hand")
    assert drop in stay
    _tear_down(site)
    procedures = "SELECT proname::text FROM pg_proc WHERE proname LIKE 'sp_MS%' OR proname = 'mine' ORDER BY 1"
    assert site.at_subscriber(procedures) == [("mine",), ("sp_MSdel_publicplain",)]
    # A later setup still knows that it was edited.
    assert "left procedure sp_MSdel_publicplain alone: it was edited by hand" in site.set_up()
    _tear_down(site)
    site.at_subscriber(drop)
    _tear_down(site)
    assert site.at_subscriber(_MODEL_TABLES) == []


def test_tables_that_setup_created_stay_with_their_rows(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, ["public.old"], replicate_ddl=True)
    site.at_publisher("CREATE TABLE old (id int PRIMARY KEY)")
    site.set_up()
    _run(site)
    site.at_publisher("ALTER TABLE old RENAME TO item")
    _run(site)
    site.at_publisher("INSERT INTO item VALUES (1)")
    _run(site)
    # As an article leaves it that came again by its table's earlier name.
    again = '(jsonb_populate_record(it, \'{"article": "public.old"}\')).*'
    site.at_subscriber(f"INSERT INTO msreplication_snapshots SELECT {again} FROM msreplication_snapshots it")
    (stay,) = [it for part in plan_teardown(site.topology).parts for it in part.stays]
    assert stay == "table public.old, which setup created, with its rows"
    _tear_down(site)
    assert site.at_subscriber("SELECT id FROM old") == [(1,)]


def test_a_subscriber_of_another_kind_is_torn_down_with_the_rest(databases: DatabasesFactory, tmp_path: Path) -> None:
    commands = {"ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"}
    site = _site(databases(), tmp_path, [{"source": "public.item", **commands}])
    file = tmp_path / "subscriber.db"
    site.connections["subscriber"] = Connection("subscriber", "sqlite", database=str(file))
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY)")
    site.set_up()
    site.at_publisher("INSERT INTO item VALUES (1)")
    _run(site)
    _tear_down(site)
    with closing(sqlite3.connect(file)) as session:
        assert session.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [("item",)]
        assert session.execute("SELECT id FROM item").fetchall() == [(1,)]
    assert plan_teardown(site.topology).is_empty


def test_the_distribution_databases_tables_are_left_to_their_owner(site: Site) -> None:
    site.set_up()
    role = f"guest_{site.databases.publisher.database}"
    distribution = site.databases.distribution
    execute(distribution, f"CREATE ROLE {role} LOGIN PASSWORD 'guest'")
    execute(distribution, f"GRANT SELECT, DELETE, UPDATE ON ALL TABLES IN SCHEMA public TO {role}")
    site.connections["distribution"] = replace(distribution, login=role, password="guest")  # noqa: S106 — of nobody
    try:
        assert not any("all tables of tranrepl" in it for it in _tear_down(site))
        assert distribution_rows(site, "SELECT count(*) FROM mspublications") == [(0,)]
    finally:
        execute(distribution, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_what_is_gone_already_is_passed_over(site: Site) -> None:
    before = _everything(site.databases)
    site.set_up()
    ((slot,),) = site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    site.at_publisher(f"SELECT pg_drop_replication_slot('{slot}')", f"DROP PUBLICATION {slot}")
    site.at_publisher("ALTER TABLE plain REPLICA IDENTITY DEFAULT")
    site.at_subscriber('DROP PROCEDURE "sp_MSins_publicplain"', "DELETE FROM msreplication_subscriptions")
    _tear_down(site)
    assert _everything(site.databases) == before


@pytest.mark.parametrize("parts", [1, 3])
def test_an_interrupted_teardown_goes_on(site: Site, parts: int) -> None:
    before = _everything(site.databases)
    site.set_up()
    site.at_publisher("INSERT INTO plain VALUES (1, 'row')")
    _run(site)
    planned = plan_teardown(site.topology)
    tear_down(replace(planned, parts=planned.parts[:parts]), lambda _: None)
    assert _everything(site.databases) != before
    _tear_down(site)
    assert _everything(site.databases) == before


def test_identities_changed_by_an_earlier_version_stay(site: Site) -> None:
    site.set_up()
    distribution_rows(site, "DELETE FROM msreplica_identities")
    site.set_up()
    stays = [it for part in plan_teardown(site.topology).parts for it in part.stays]
    assert len(stays) == len(NAMES)
    assert any('ALTER TABLE ONLY "public"."plain" REPLICA IDENTITY DEFAULT; sets the default' in it for it in stays)


def test_a_subscriber_that_is_away_is_left_only_when_told(site: Site, tmp_path: Path) -> None:
    site.set_up()
    before = _everything(site.databases)
    reachable = site.connections["subscriber"]
    site.connections["subscriber"] = replace(reachable, port=1)
    with pytest.raises(Exception, match="Subscriber reporting: connection subscriber") as away:
        _tear_down(site)
    assert "--leave reporting" in str(away.value)
    assert _everything(site.databases) == before
    planned = plan_teardown(site.topology, Left(subscribers=frozenset(["reporting"])))
    assert any(it.startswith("subscription reporting: its Subscriber is left as it is") for it in planned.warnings)
    tear_down(planned, lambda _: None)
    assert _catalogue(site.databases.subscriber) == before[6:12]
    site.connections["subscriber"] = reachable
    _tear_down(site)
    assert site.at_subscriber(_MODEL_TABLES) == []
    outcome = _typed(site, tmp_path, "--leave", "absent")
    assert outcome.errors == ["publication purchasing has no subscription 'absent'\n  → allowed: reporting"]


@contextmanager
def _open(connection: Connection, *statements: str) -> Iterator[None]:
    parameters: Any = connection.libpq_parameters("tranrepl log reader")
    with psycopg.connect(**parameters) as session:
        for statement in statements:
            session.execute(statement.encode())
        yield
        session.rollback()


@pytest.mark.slow
def test_running_agents_keep_everything_in_place(site: Site) -> None:
    site.set_up()
    before = _everything(site.databases)
    with (
        _open(site.databases.subscriber, "SELECT FROM msreplication_subscriptions FOR UPDATE"),
        pytest.raises(Exception, match="Subscriber reporting: a job is delivering to it"),
    ):
        _tear_down(site)
    distribution_rows(
        site,
        "INSERT INTO mslogreader_history (publication_id, runstatus, start_time, duration, comments, "
        "delivered_transactions, delivered_commands, delivery_rate, commands_by_article) "
        "SELECT publication_id, 3, now(), 0, '', 0, 0, 0, '{}' FROM mspublications",
    )
    with (
        _open(site.databases.publisher, "SELECT 1"),
        pytest.raises(Exception, match="the log reader is running"),
    ):
        _tear_down(site)
    assert _everything(site.databases) == before
    # One that was killed said so too.
    _tear_down(site)


def test_missing_rights_are_told_with_the_statements_before_anything_goes(
    site: Site, database: DatabaseFactory
) -> None:
    site.set_up()
    before = _everything(site.databases)
    role = f"weak_{site.databases.publisher.database}"
    site.at_publisher(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'weak'")
    tables = "msreplication_subscriptions, msreplication_snapshots, mssubscription_articles, msreplication_objects"
    site.at_subscriber(f"GRANT SELECT, UPDATE, DELETE ON {tables} TO {role}")
    try:
        for place, said in (
            ("publisher", 'ALTER TABLE ONLY "public"."plain" REPLICA IDENTITY DEFAULT;'),
            ("subscriber", "DROP PROCEDURE"),
        ):
            strong = site.connections[place]
            site.connections[place] = replace(strong, login=role, password="weak")  # noqa: S106 — of nobody
            with pytest.raises(ConfigurationError, match="may not change") as refused:
                _tear_down(site)
            assert said in (refused.value.report.remedy or "")
            site.connections[place] = strong
            assert _everything(site.databases) == before
    finally:
        site.at_subscriber(f"DROP OWNED BY {role}")
        site.at_publisher(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
