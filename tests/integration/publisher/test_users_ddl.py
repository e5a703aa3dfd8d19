"""Users' DDL never fails, and never waits, because its Publisher announces schema changes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from conftest import DatabaseFactory
from support.announced import PUBLICATION, Announcing, owned_by
from support.ddl_commands import DDL
from support.embedded_postgres import PostgresServer
from support.every_type import settable
from support.server_copies import catch_up, promote, standby_of
from support.site import execute
from tranrepl.connections import Connection
from tranrepl.publisher.postgres.schema_change_setup import FUNCTIONS

_SERVERS = ["postgres", "debian_postgres"]
Owner = Callable[[Announcing], Connection]


@pytest.fixture
def site(request: pytest.FixtureRequest, database: DatabaseFactory) -> Announcing:
    """Return a Publisher on the server that the test names, PostgreSQL 18 where it names none."""
    return Announcing(database("publisher", request.getfixturevalue(getattr(request, "param", "postgres")))).create()


@pytest.fixture
def owner() -> Iterator[Owner]:
    """Yield a factory of logins that own the tables and have no rights on what is ours."""
    made: list[tuple[Announcing, str]] = []

    def create(site: Announcing) -> Connection:
        login, password = f"owner_{uuid4().hex[:8]}", uuid4().hex
        made.append((site, login))
        return owned_by(site, login, password)

    yield create
    for site, login in made:
        execute(site.connection, f"DROP OWNED BY {login} CASCADE", f"DROP ROLE {login}")


def _run_ddl(site: Announcing, connection: Connection | None = None, *before: str) -> None:
    with site.user(connection) as session:
        for command in (*before, *DDL):
            session.execute(command.encode())


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_every_command_works_as_without(site: Announcing) -> None:
    site.set_up()
    _run_ddl(site)
    told = site.told()
    assert [it for it in told if "failed" in it] == []
    assert site.warnings() == []
    assert {it["tag"] for it in told} >= {"ALTER TABLE", "ALTER TYPE", "CREATE TABLE", "DROP TABLE", "DROP TYPE"}


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_so_it_does_for_an_owner_without_any_right_of_ours(site: Announcing, owner: Owner) -> None:
    site.set_up()
    site.execute(
        "REVOKE ALL ON SCHEMA tranrepl FROM PUBLIC",
        *(f"REVOKE ALL ON FUNCTION tranrepl.{it} FROM PUBLIC" for it in FUNCTIONS),
    )
    settings = {"DateStyle": "German", "TimeZone": "'Asia/Tokyo'", "search_path": "public, pg_temp"}
    hostile = settable(site.connection, {"standard_conforming_strings": "off", "plpgsql.extra_errors": "'all'"})
    _run_ddl(site, owner(site), *(f"SET {name} = {value}" for name, value in {**settings, **hostile}.items()))
    assert [it for it in site.told() if "failed" in it] == []
    assert site.warnings() == []


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_so_it_does_where_the_functions_meet_another_catalogue(site: Announcing) -> None:
    site.set_up()
    # As with a server that is newer than they are.
    ((text,),) = execute(
        site.connection, "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'announce_tables'"
    )
    execute(site.connection, text.replace("c.relrowsecurity", "c.gone"))
    _run_ddl(site)
    failed = [it for it in site.told() if "failed" in it]
    assert {it["failed"] for it in failed} == {"42703"}
    assert failed[0]["message"] == "column c.gone does not exist"


# The stack ends in each frame of a recursion, and so in the event trigger of the deepest one that begins.
_AT_THE_END_OF_THE_STACK = """
CREATE OR REPLACE FUNCTION pg_temp.deep(command text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  n int;
BEGIN
  BEGIN
    n := pg_temp.deep(command);
  EXCEPTION WHEN statement_too_complex THEN
    NULL;
  END;
  IF n IS NULL OR n < 40 THEN
    EXECUTE command;
    RETURN coalesce(n, 0) + 1;
  END IF;
  RETURN n;
EXCEPTION WHEN statement_too_complex THEN
  RETURN NULL;
END $$
"""


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_a_command_that_fails_to_announce_stops_publications_of_its_own_tables_alone(site: Announcing) -> None:
    site.execute("CREATE TABLE heir () INHERITS (orders)", "CREATE TABLE mine (id int)")
    site.execute("CREATE PUBLICATION other FOR TABLE mine", "CREATE PUBLICATION tranrepl_another FOR TABLE aside")
    site.set_up()
    ((text,),) = execute(
        site.connection, "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'announce_tables'"
    )
    execute(site.connection, text.replace("BEGIN\n  LOOP", "BEGIN\n  PERFORM 1 / 0;\n  LOOP"))
    assert (
        site.told_of(
            "CREATE TEMP TABLE passing (id int)",
            "CREATE TABLE another (id int)",
            "ALTER TABLE mine ADD COLUMN v text",
            "ALTER TABLE heir ADD COLUMN own int",
            "ALTER TABLE mine DROP COLUMN v",
            "DROP TABLE mine",
        )
        == []
    )
    concerned = {
        "ALTER TABLE orders ADD COLUMN a int": PUBLICATION,
        "ALTER TABLE orders DROP COLUMN a": PUBLICATION,
        "ALTER TABLE event_1 SET (fillfactor = 90)": PUBLICATION,
        "ALTER TABLE aside ADD COLUMN a int": "tranrepl_another",
        "DROP TABLE aside": "tranrepl_another",
    }
    for command, publication in concerned.items():
        failed = [it["publications"] for it in site.told_of(command) if "failed" in it]
        assert failed, command
        assert all(it == [publication] for it in failed), command


def test_what_fails_deep_in_a_recursion_over_a_temporary_table_stops_nothing(site: Announcing, owner: Owner) -> None:
    site.set_up()
    user = owner(site)
    site.told()
    with site.user(user) as session:
        session.execute("CREATE TEMP TABLE passing (id int)")
        session.execute(_AT_THE_END_OF_THE_STACK.encode())
        session.execute("SELECT pg_temp.deep('ALTER TABLE pg_temp.passing ALTER id SET DEFAULT 1')")
    assert site.told() == []


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_a_partitions_owner_keeps_nothing_from_being_told(site: Announcing, owner: Owner) -> None:
    site.execute("ALTER TABLE event REPLICA IDENTITY FULL")
    site.set_up()
    user = owner(site)
    site.execute("ALTER TABLE event OWNER TO CURRENT_USER")
    site.told()
    with site.user(user) as session:
        session.execute("SELECT set_config('tranrepl.identified', 'event_1'::regclass::oid::text, false)")
        session.execute("ALTER TABLE event_1 RENAME TO event_renamed")
    (told,) = site.told()
    assert "event_renamed" in [it["name"] for it in told["partitions"]]


def test_the_sql_file_makes_all_of_it_by_itself(site: Announcing) -> None:
    script = files("tranrepl.publisher.postgres").joinpath("announce.sql").read_text()
    with site.user() as session, session.transaction():
        session.execute(script.encode())
    with site.setup() as setup:
        assert (setup.left_to_make(), list(setup.problems()), setup.why_not_captured()) == ([], [], None)
    assert site.set_up() == []
    site.told()
    assert [it["tag"] for it in site.told_of("ALTER TABLE orders ADD COLUMN a int")] == ["ALTER TABLE"]


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_so_it_does_for_an_owner_who_may_not_write_messages(site: Announcing, owner: Owner) -> None:
    site.set_up()
    emitting = "pg_logical_emit_message(boolean, text, text" + (
        ", boolean)" if site.server_version() >= 170000 else ")"
    )
    site.execute(f"REVOKE EXECUTE ON FUNCTION {emitting} FROM PUBLIC")
    user = owner(site)
    site.told()
    _run_ddl(site, user)
    told = site.told()
    assert told
    assert [it for it in told if "failed" in it] == []
    assert site.warnings() == []


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_so_it_does_where_there_is_no_secret_to_sign_with(site: Announcing, owner: Owner) -> None:
    site.set_up()
    site.execute("DROP TABLE tranrepl.message_secret")
    site.told()
    _run_ddl(site, owner(site))
    assert site.told() == []
    assert 'tranrepl: a schema change is not captured: relation "tranrepl.message_secret" does not exist' in (
        site.warnings()
    )


def test_so_it_does_where_event_triggers_are_off(site: Announcing) -> None:
    site.set_up()
    _run_ddl(site, None, "SET event_triggers = off")
    assert site.told() == []
    assert site.warnings() == []


def test_so_it_does_where_nothing_is_published(site: Announcing) -> None:
    site.set_up()
    site.execute(f"DROP PUBLICATION {PUBLICATION}")
    site.told()
    _run_ddl(site)
    assert site.told() == []


def test_a_session_of_a_replica_announces_too(site: Announcing) -> None:
    site.set_up()
    with site.user() as session:
        session.execute("SET session_replication_role = replica")
        session.execute("ALTER TABLE orders ADD COLUMN a int")
    assert [it["tag"] for it in site.told()] == ["ALTER TABLE"]


def test_a_standby_that_was_promoted_announces(own_server: PostgresServer, tmp_path: Path) -> None:
    site = Announcing(own_server.connection("publisher")).create()
    site.set_up()
    with standby_of(own_server, own_server.settings.home / "standby", "publisher") as standby:
        catch_up(own_server, standby)
        promote(standby)
        promoted = Announcing(standby.connection("publisher"))
        promoted.keep_log()
        _run_ddl(promoted)
        told = promoted.told()
    assert "ALTER TABLE" in {it["tag"] for it in told}
    assert [it for it in told if "failed" in it] == []
    assert promoted.warnings() == []


def test_no_command_waits_for_a_lock_that_it_would_not_take(site: Announcing) -> None:
    site.execute(
        "CREATE TABLE ancestor (id int, note text)",
        "CREATE TABLE heir (note text DEFAULT 'a') INHERITS (ancestor)",
        f"ALTER PUBLICATION {PUBLICATION} ADD TABLE heir",
    )
    site.set_up()
    with site.user() as other, site.user() as session:
        # Deparsing a default or a bound locks its table.
        other.execute("BEGIN")
        other.execute("LOCK TABLE orders, event, event_1, heir IN ACCESS EXCLUSIVE MODE")
        session.execute("SET lock_timeout = '1s'")
        for command in (
            "ALTER TYPE mood ADD VALUE 'happy'",
            "ALTER SCHEMA public RENAME TO common",
            "ALTER SCHEMA common RENAME TO public",
            "CREATE TABLE more (id int PRIMARY KEY)",
            "DROP TABLE more",
            "ALTER DOMAIN amount SET DEFAULT 1",
            "ALTER TABLE orders_pkey RENAME TO orders_key",
            "ALTER TABLE ONLY ancestor ALTER note SET DEFAULT 'b'",
        ):
            session.execute(command.encode())
        other.execute("ROLLBACK")
    told = site.told()
    assert [(it["tag"], it["defaults_told"]) for it in told if it["name"] == "orders"] == [
        ("ALTER TYPE", False),
        ("ALTER SCHEMA", False),
        ("ALTER SCHEMA", False),
        ("ALTER DOMAIN", False),
        ("ALTER TABLE", False),
    ]
    assert {it["tag"] for it in told if it["name"] == "heir"} == {"ALTER SCHEMA"}
    assert site.warnings() == []


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
@pytest.mark.parametrize(
    ("made", "others", "own"),
    [
        ((), "CREATE DOMAIN tag AS text", "ALTER TABLE event ADD COLUMN t tag"),
        ((), "CREATE DOMAIN tag AS text", "ALTER TABLE orders ADD COLUMN t tag"),
        (
            ("CREATE TABLE a (id int)", "CREATE TABLE b (id int) INHERITS (a)"),
            "ALTER TABLE b NO INHERIT a",
            "ALTER TABLE a INHERIT b",
        ),
        (
            (
                "CREATE TABLE a (id int) PARTITION BY RANGE (id)",
                "CREATE TABLE b PARTITION OF a FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (id)",
                f"ALTER PUBLICATION {PUBLICATION} ADD TABLE a, b",
            ),
            "ALTER TABLE a DETACH PARTITION b",
            "ALTER TABLE b ATTACH PARTITION a FOR VALUES FROM (0) TO (9)",
        ),
    ],
    ids=["only type is unseen", "one type is unseen", "circle of heirs", "circle of partitions"],
)
def test_a_command_ends_whatever_its_transaction_sees_of_others(
    site: Announcing, made: tuple[str, ...], others: str, own: str
) -> None:
    site.set_up()
    site.execute(*made)
    site.told()
    with site.user() as session:
        session.execute("SET statement_timeout = '20s'")
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
        site.execute(others)
        session.execute(own.encode())
        session.execute("COMMIT")
    assert [it for it in site.told() if "failed" in it] == []
    assert site.warnings() == []


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_a_dropped_default_is_told_where_its_schema_is_seen_twice(site: Announcing) -> None:
    site.set_up()
    with site.user() as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
        site.execute("GRANT USAGE ON SCHEMA public TO pg_monitor")
        session.execute("GRANT CREATE ON SCHEMA public TO pg_monitor")
        session.execute("ALTER TABLE orders ALTER code DROP DEFAULT")
        session.execute("COMMIT")
    assert {it.get("name") for it in site.told()} == {"orders"}
    assert site.warnings() == []


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_a_command_costs_a_few_milliseconds(site: Announcing) -> None:
    with_20_columns = ", ".join(f"c{n} text DEFAULT 'x'" for n in range(20))
    site.execute(f"CREATE TABLE wide (id int PRIMARY KEY, {with_20_columns})")
    site.execute(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE wide")
    without = _cost(site)
    site.set_up()
    assert _cost(site) - without < 0.05


def _cost(site: Announcing) -> float:
    """Return the median seconds of an ALTER of a published table of 20 columns."""
    taken: list[float] = []
    with site.user() as session:
        for number in range(20):
            started = time.perf_counter()
            session.execute(f"ALTER TABLE wide ALTER COLUMN c1 SET DEFAULT '{number}'".encode())
            taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def test_what_a_user_breaks_by_itself_still_fails_as_it_did(site: Announcing) -> None:
    site.set_up()
    with site.user() as session, pytest.raises(psycopg.errors.DuplicateColumn):
        session.execute("ALTER TABLE orders ADD COLUMN note text")
    assert site.told() == []
