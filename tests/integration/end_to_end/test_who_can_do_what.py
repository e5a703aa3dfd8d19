"""The table of docs/reference/rights.md, line by line: each one's deeds, with that right alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.checkout import CHECKOUT
from support.failing_jobs import error_of
from support.least_rights import documented_rights, with_login
from support.shell import publication_file, typed
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind, MissingRightError, ReplicationError
from tranrepl.settings.publication import Publication

_TITLE = "## Allowed by each right"
_PASSWORD = "hush"  # noqa: S105
_MONITOR = CHECKOUT / "tests" / "airflow" / "test_monitor_rights.py"
_ROLES = {"publisher": "watcher_p", "subscriber": "watcher_s", "distribution": "watcher_d"}
Deed = Callable[["World"], None]


class World:
    """A publication that runs, and logins that have one right each."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.folder = folder

    def login(self, end: str, *rights: str) -> Connection:
        """Return a connection to one end, of a new login that has these rights alone."""
        connection, role = self.site.connections[end], _ROLES[end]
        execute(connection, f"CREATE ROLE {role} LOGIN PASSWORD '{_PASSWORD}'", *(it.format(role) for it in rights))
        return with_login(connection, role, _PASSWORD)

    def forget(self) -> None:
        for end, role in _ROLES.items():
            connection = getattr(self.site.databases, end)
            if execute(connection, f"SELECT 1 FROM pg_roles WHERE rolname = '{role}'"):
                execute(connection, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")

    def run_equal(self) -> None:
        """Deliver a change, after which both ends are equal."""
        (id_,) = self.site.at_publisher("SELECT coalesce(max(id), 0) + 1 FROM item")[0]
        self.site.at_publisher(f"INSERT INTO item (id, note) VALUES ({id_}, 'note')")
        self.site.run()
        assert self.site.differences() == []


@pytest.fixture
def world(databases: DatabasesFactory, tmp_path: Path) -> Iterator[World]:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), replicate_ddl=True)
    for at_end in (site.at_publisher, site.at_subscriber):
        at_end("CREATE TABLE item (id int PRIMARY KEY, note varchar)", "CREATE TABLE other (id int PRIMARY KEY)")
    site.set_up()
    made = World(site, tmp_path)
    made.run_equal()
    yield made
    made.forget()


def _refused(connection: Connection, *statements: str) -> None:
    for statement in statements:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(connection, statement)


def _owner_of_a_table(world: World) -> None:
    owner = world.login("publisher", "ALTER TABLE item OWNER TO {0}", "GRANT CREATE ON SCHEMA public TO {0}")
    execute(owner, "ALTER TABLE item ADD COLUMN size int DEFAULT 3", "UPDATE item SET size = 4")
    world.run_equal()
    execute(owner, "CREATE TYPE \"int; DROP TABLE other\" AS ENUM ('a')")
    execute(owner, 'ALTER TABLE item ADD COLUMN kind "int; DROP TABLE other"')
    world.site.read_log()
    world.site.deliver()
    assert world.site.at_subscriber("SELECT to_regclass('other') IS NOT NULL") == [(True,)]
    _refused(owner, "INSERT INTO other VALUES (1)")


def _replication(world: World) -> None:
    reader = world.login("publisher", "ALTER ROLE {0} REPLICATION")
    (slot,) = world.site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")[
        0
    ]
    _refused(reader, "INSERT INTO item VALUES (99)")
    execute(reader, f"SELECT pg_drop_replication_slot('{slot}')")
    world.site.at_publisher("INSERT INTO item VALUES (98)")
    error = error_of(Site.read_log, world.site)
    assert error.kind is ErrorKind.CONFIGURATION
    assert slot in error.message


def _login_of_the_log_reader(world: World) -> None:
    names = {"repl_publisher": _ROLES["publisher"], "public.customer, public.orders": "public.item"}
    create, *rights = documented_rights("Publisher", _PASSWORD, names)
    rights += documented_rights("Publisher, where another login ran setup", _PASSWORD, names)
    reader = world.login("publisher", create.replace("CREATE", "ALTER"), *rights)
    world.site.connections["publisher"] = reader
    world.site.at_publisher("INSERT INTO item VALUES (50)")
    world.site.run()
    assert execute(reader, "SELECT count(*) > 0 FROM item") == [(True,)]
    _refused(reader, "INSERT INTO item VALUES (51)", "DELETE FROM item", "SELECT * FROM other")


def _login_of_the_deliveries(world: World) -> None:
    names = {
        "repl_subscriber": _ROLES["subscriber"],
        "public.customer, public.orders": "public.item",
        "DATABASE reporting": f"DATABASE {world.site.databases.subscriber.database}",
    }
    _, *rights = documented_rights("Subscriber, after setup", _PASSWORD, names)
    delivery = world.login("subscriber", *rights)
    world.site.connections["subscriber"] = delivery
    world.run_equal()
    _refused(delivery, "SELECT * FROM other", "INSERT INTO other VALUES (1)", "DROP TABLE item")


def _login_of_the_distribution_database(world: World) -> None:
    stranger = world.login("distribution")
    tables = execute(
        world.site.connections["distribution"], "SELECT tablename FROM pg_tables WHERE tablename LIKE 'ms%'"
    )
    assert tables
    _refused(stranger, *(f"SELECT * FROM {table}" for (table,) in tables))
    file = publication_file(
        world.folder,
        [{"source": "public.item"}],
        distributor={"connection": "distribution", "store": world.site.publication.distributor.store},
    )
    script = world.folder / "script.sql"
    script.write_text("CREATE TABLE by_a_script (id int)", encoding="utf-8")
    told = typed("exec", file, "--sql", script, environment=world.site.databases.environment)
    assert told.status == 0, told
    world.site.run()
    assert world.site.at_subscriber("SELECT to_regclass('by_a_script') IS NOT NULL") == [(True,)]
    kept = " ".join(
        str(row)
        for (table,) in execute(
            world.site.connections["distribution"],
            "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'",
        )
        for row in execute(world.site.connections["distribution"], f"SELECT * FROM {table}")
    )
    passwords = [it.password for it in world.site.connections.values() if it.password]
    assert not any(it in kept for it in passwords)


def _login_of_setup(world: World) -> None:
    world.site.at_subscriber("CREATE TABLE later (id int PRIMARY KEY)", "DROP TABLE later")
    world.site.at_publisher("CREATE TABLE later (id int PRIMARY KEY)")
    delivery = world.login("subscriber", "GRANT USAGE ON SCHEMA public TO {0}")
    world.site.connections["subscriber"] = delivery
    settings = world.site.publication.model_dump(mode="json")
    settings["articles"].append({"source": "public.later"})
    world.site.publication = Publication.model_validate(settings)
    found = check(world.site.topology).problems
    assert any(isinstance(it, MissingRightError) for it in found)


def _writer_of_the_file(world: World) -> None:
    article = world.site.publication.articles[0]
    for text in ("true); DROP TABLE other; --", "true) OR EXISTS (SELECT 1 FROM other"):
        filtered = article.model_copy(update={"filter": text})
        world.site.publication = world.site.publication.model_copy(update={"articles": [filtered]})
        assert check(world.site.topology).problems, text
    assert world.site.at_publisher("SELECT to_regclass('other') IS NOT NULL") == [(True,)]
    passwords = [it.password for it in world.site.connections.values() if it.password]
    assert not any(it in world.site.publication.model_dump_json() for it in passwords)


_FORGED = (
    "x",
    "{}",
    '{"event": "sql_drop", "unpublished": [["public", "item"]]}',
    '{"event": "ddl_command_end", "tables": [{"columns": [{"name": "evil", "type": "int; DROP TABLE other"}]}]}',
)


def _connect_alone(world: World) -> None:
    anybody = world.login("publisher")
    _refused(anybody, "SELECT * FROM item", "INSERT INTO item VALUES (1)")
    for text in _FORGED:
        execute(anybody, f"SELECT pg_logical_emit_message(true, 'tranrepl.schema', '{text}')")
    world.site.at_publisher("INSERT INTO item (id, note) VALUES (70, 'after')")
    read = world.site.read_log()
    assert read.error is None
    assert any("signed" in it for it in read.notices)
    world.site.deliver().raise_error()
    world.run_equal()
    assert world.site.at_subscriber("SELECT to_regclass('other') IS NOT NULL") == [(True,)]


_TRAP = (
    "CREATE TABLE called (by text DEFAULT current_user)",
    "GRANT INSERT ON called TO PUBLIC",
    """CREATE FUNCTION public.trap(varchar, varchar) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.called DEFAULT VALUES; RETURN $1::text OPERATOR(pg_catalog.=) $2::text; END $$""",
    "CREATE OPERATOR public.= (leftarg = varchar, rightarg = varchar, function = public.trap)",
)


def _creator_in_public(end: str) -> Deed:
    def make(world: World) -> None:
        creator = world.login(end, "GRANT CREATE ON SCHEMA public TO {0}")
        execute(creator, *_TRAP)
        world.site.at_publisher("CREATE TABLE named (name varchar PRIMARY KEY, kind varchar)")
        world.site.at_subscriber("CREATE TABLE named (name varchar PRIMARY KEY, kind varchar)")
        settings = world.site.publication.model_dump(mode="json")
        settings["articles"].append({"source": "public.named", "filter": "(kind)::text = 'x'::text"})
        # By procedures, which compare keys of their column's own type.
        settings["subscriptions"][0]["apply"] = "serial"
        world.site.publication = Publication.model_validate(settings)
        world.site.set_up()
        world.site.at_publisher(
            "INSERT INTO named VALUES ('a', 'x'), ('b', 'x')",
            "UPDATE named SET kind = 'y'",
            "DELETE FROM named WHERE name OPERATOR(pg_catalog.=) 'b'::text",
        )
        world.site.run()
        world.site.validate().raise_error()
        assert execute(getattr(world.site.databases, end), "SELECT * FROM called") == []

    return make


def _reader_of_the_store(world: World) -> None:
    store = Path(world.site.publication.distributor.store)
    modes = {it.stat().st_mode & 0o077 for it in (store, *store.rglob("*"))}
    assert modes == {0}


def _writer_of_the_store(world: World) -> None:
    settings = world.site.publication.model_dump(mode="json")
    other = world.site.databases.publisher.database
    world.site.connections["distribution"] = replace(world.site.connections["distribution"], database=other)
    world.site.publication = Publication.model_validate({**settings, "publication": "twin"})
    with pytest.raises(ReplicationError, match="store"):
        world.site.set_up()


_CHECKS: Mapping[str, Deed] = {
    "`CONNECT` to the Publisher, nothing else": _connect_alone,
    "`CREATE` on `public` at the Publisher": _creator_in_public("publisher"),
    "`CREATE` on `public` at the Subscriber": _creator_in_public("subscriber"),
    "Reader of the store's folder": _reader_of_the_store,
    "Writer of the store's folder": _writer_of_the_store,
    "Owner of a published table": _owner_of_a_table,
    "`REPLICATION` at the Publisher": _replication,
    "Login of the log reader": _login_of_the_log_reader,
    "Login of the deliveries": _login_of_the_deliveries,
    "Login of the distribution database": _login_of_the_distribution_database,
    "Login of `setup`": _login_of_setup,
    "Writer of the publication's file": _writer_of_the_file,
}

_IN_THE_MONITORS_TESTS = {
    "Reader of the publication's DAG in Airflow": (
        "test_values_of_rows_are_for_those_who_may_edit_the_dag",
        "test_who_may_not_trigger_does_nothing",
    ),
    "Editor of the publication's DAG in Airflow": (
        "test_values_of_rows_are_for_those_who_may_edit_the_dag",
        "test_who_may_read_no_dag_sees_no_publication",
    ),
    "User who may trigger one of its DAGs": (
        "test_a_request_of_another_site_does_nothing",
        "test_each_action_is_a_run_with_its_parameters_and_its_user",
        "test_each_role_of_the_simple_auth_manager",
    ),
}


def _titles() -> list[str]:
    page = (CHECKOUT / "docs" / "reference" / "rights.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^{re.escape(_TITLE)}\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    return [row.split(" | ")[0].removeprefix("| ") for row in section.splitlines() if row.startswith("| ")][2:]


@pytest.mark.new_sessions
@pytest.mark.parametrize("title", _CHECKS)
def test_each_line_of_the_table_holds(title: str, world: World) -> None:
    _CHECKS[title](world)


@pytest.mark.parametrize("title", _IN_THE_MONITORS_TESTS)
def test_each_line_of_airflow_has_its_tests(title: str) -> None:
    text = _MONITOR.read_text(encoding="utf-8")
    assert [it for it in _IN_THE_MONITORS_TESTS[title] if f"\ndef {it}(" not in text] == []


def test_every_line_of_the_table_has_its_check() -> None:
    assert {*_CHECKS, *_IN_THE_MONITORS_TESTS} == set(_titles())
