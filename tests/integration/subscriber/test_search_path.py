"""What is in schemas of the login's search path: no session of ours at the Subscriber finds it, users' code does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.hostile_schema import hostile_login
from support.in_process import deliver_stored, read_log_into_store
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.admin.exec_script import exec_script
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import Repair

pytestmark = pytest.mark.new_sessions

_TABLES = (
    "CREATE TABLE item (code varchar(20) PRIMARY KEY, kind varchar(10) NOT NULL, n int, note text)",
    "CREATE TABLE line (code varchar(20), number int, at timestamptz, v varchar, PRIMARY KEY (number, code))",
    "CREATE TABLE watched (code varchar(20) PRIMARY KEY, kind varchar(10) NOT NULL, v text)",
    "CREATE TABLE called (id int PRIMARY KEY, v varchar(10))",
    "CREATE TABLE numbered (id int PRIMARY KEY, v varchar(10))",
)
_ARTICLES: tuple[Mapping[str, object], ...] = (
    {"source": "public.item", "filter": "kind = 'x'"},
    {"source": "public.line", "upd_cmd": "SQL", "del_cmd": "SQL"},
    {"source": "public.watched", "filter": "kind = 'x'"},
    {"source": "public.called", "ins_cmd": "CALL put_called"},
    {"source": "public.numbered", "update_policy": "singleton_update"},
)
# What users have at the Subscriber: none of it names a schema.
_CODE = (
    "CREATE TABLE seen (what varchar)",
    (
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO seen VALUES (TG_ARGV[0]); RETURN NEW; END $$"
    ),
    (
        "CREATE PROCEDURE put_called(c1 int, c2 varchar) LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO called VALUES (c1, c2); INSERT INTO seen VALUES ('called'); END $$"
    ),
)
_TRIGGERS = (
    "CREATE TRIGGER inserted AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION see('inserted')",
    "CREATE TRIGGER updated AFTER UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION see('updated')",
    "CREATE TRIGGER deleted AFTER DELETE ON watched FOR EACH ROW EXECUTE FUNCTION see('deleted')",
    "CREATE TRIGGER deleting BEFORE DELETE ON watched FOR EACH STATEMENT EXECUTE FUNCTION see('deleting')",
    (
        "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON watched DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION see('at commit')"
    ),
    "CREATE TRIGGER renumbered AFTER DELETE ON numbered FOR EACH ROW EXECUTE FUNCTION see('renumbered')",
)
_ROWS = (
    "INSERT INTO item SELECT 'c' || n, substr('yxx', n % 3 + 1, 1), n, 'note' FROM generate_series(1, 30) n",
    "INSERT INTO line SELECT 'c' || n, n, now(), 'v' FROM generate_series(1, 30) n",
    "INSERT INTO watched VALUES ('a', 'x', '1'), ('b', 'x', '1'), ('c', 'x', '1')",
    "INSERT INTO called VALUES (1, 'a')",
    "INSERT INTO numbered VALUES (1, 'a'), (2, 'b')",
)
_CHANGES = (
    "INSERT INTO item VALUES ('new', 'x', 1, NULL), ('other', 'y', 1, NULL)",
    "UPDATE item SET n = n + 1, note = NULL WHERE n % 2 = 0",
    "UPDATE item SET kind = 'y' WHERE n = 5",
    "UPDATE item SET code = 'moved ' || code WHERE n = 7",
    "DELETE FROM item WHERE n > 25",
    "UPDATE line SET v = 'w' WHERE number < 10",
    "DELETE FROM line WHERE number > 20",
    "INSERT INTO watched VALUES ('d', 'x', '1')",
    "UPDATE watched SET v = '2' WHERE code = 'a'",
    "UPDATE watched SET code = 'e' WHERE code = 'b'",
    "DELETE FROM watched WHERE code = 'c'",
    "INSERT INTO called VALUES (2, 'b')",
    "UPDATE called SET v = 'z' WHERE id = 1",
    "UPDATE numbered SET id = 3 WHERE id = 1",
    "UPDATE numbered SET v = 'z' WHERE id = 2",
)


@pytest.fixture
def owners(databases: DatabasesFactory) -> Databases:
    return databases()


@pytest.fixture
def login(owners: Databases) -> Iterator[Connection]:
    with hostile_login(owners.subscriber) as connection:
        yield connection


_WAYS: Mapping[str, Mapping[str, object]] = {
    "bulk": {},
    "serial": {"apply": "serial"},
    "streams": {"subscription_streams": 2, "stream_assignment": "dependencies"},
}


@pytest.mark.parametrize("way", _WAYS)
def test_only_users_code_finds_what_is_on_the_logins_path(
    way: str, owners: Databases, login: Connection, tmp_path: Path
) -> None:
    site = _site(owners, login, tmp_path, _WAYS[way])
    site.at_publisher(*_ROWS)
    site.take_snapshot()
    _require_equal(site)
    site.at_subscriber("DELETE FROM seen")
    site.at_publisher(*_CHANGES)
    _deliver(site)
    _require_equal(site)
    assert _seen(site) == {"inserted", "at commit", "updated", "deleted", "deleting", "called", "renumbered"}
    site.at_subscriber("DELETE FROM seen")
    site.at_publisher("TRUNCATE item, watched, line")
    _deliver(site)
    _require_equal(site)
    assert _seen(site) == {"deleted", "deleting"}
    site.at_publisher(*_ROWS[1:3])
    (tmp_path / "script.sql").write_text("INSERT INTO seen VALUES ('script')")
    exec_script(site.topology, tmp_path / "script.sql")
    if way != "streams":
        site.at_publisher("ALTER TABLE watched ADD extra varchar(5) DEFAULT 'd'")
    site.at_publisher("INSERT INTO watched VALUES ('g', 'x', '1')")
    _deliver(site)
    _require_equal(site)
    assert _seen(site) == {"deleted", "deleting", "inserted", "at commit", "script"}
    _require_repair(site, login, tmp_path / "repair.sql")


def _require_repair(site: Site, login: Connection, script: Path) -> None:
    """Require that the script of a validation, run by that login, mends what was planted."""
    site.at_subscriber("INSERT INTO line VALUES ('own', 1)", "DELETE FROM line WHERE number = 2")
    site.at_subscriber(
        "UPDATE line SET v = 'planted' WHERE number = 3", "UPDATE watched SET code = 'A' WHERE code = 'a'"
    )
    site.validate(repair=Repair.SCRIPT, repair_script=script)
    execute(login, *script.read_text().split(";\n")[:-1])
    _require_equal(site)
    site.validate().raise_error()


def test_what_is_tried_again_and_skipped_finds_nothing_on_the_path(
    owners: Databases, login: Connection, tmp_path: Path
) -> None:
    site = _site(owners, login, tmp_path, {"skip_errors": [20598]})
    site.at_publisher(*_ROWS)
    site.take_snapshot()
    site.at_subscriber("DELETE FROM item WHERE code = 'c1'", "DELETE FROM watched WHERE code = 'a'", "DELETE FROM seen")
    site.at_publisher("UPDATE item SET n = 0", "UPDATE watched SET v = '2'", "UPDATE line SET v = 'w'")
    site.read_log().raise_error()
    delivered = site.deliver()
    delivered.raise_error()
    assert delivered.skipped == 2
    assert _seen(site) == {"updated"}
    site.at_publisher("DELETE FROM item WHERE code = 'c1'", "DELETE FROM watched WHERE code = 'a'")
    site.read_log().raise_error()
    site.deliver().raise_error()
    _require_equal(site)


def _site(
    owners: Databases,
    login: Connection,
    tmp_path: Path,
    subscription: Mapping[str, object],
) -> Site:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic", **subscription}
    site = Site(owners, tmp_path / "store", _ARTICLES, SparkHere(), [subscription], replicate_ddl=True)
    site.connections["subscriber"] = login
    site.at_publisher(*_TABLES)
    site.at_subscriber(
        *_CODE, "CREATE TABLE numbered (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v varchar(10), own int)"
    )
    site.set_up()
    site.at_subscriber(*_TRIGGERS)
    assert check(site.topology).problems == []
    return site


def _deliver(site: Site) -> None:
    read_log_into_store(site).raise_error()
    deliver_stored(site).raise_error()


def _require_equal(site: Site) -> None:
    for article in site.publication.articles:
        table, filtered = article.source, f" WHERE {article.filter}" if article.filter else ""
        columns = "id, v" if table.table == "numbered" else "*"
        published = site.at_publisher(f"SELECT {columns} FROM {table}{filtered} ORDER BY 1, 2")
        assert site.at_subscriber(f"SELECT {columns} FROM {table} ORDER BY 1, 2") == published, table


def _seen(site: Site) -> set[object]:
    return {what for (what,) in site.at_subscriber("SELECT what FROM seen")}


# Keys of types whose operators are in a schema on no path

_KEYS = {
    "hstore": ("a=>1", "b=>2", "c=>3", "d=>4"),
    "citext": ("One", "Two", "Three", "four"),
    "ltree": ("a.b", "a.c", "b", "c.d.e"),
}


@pytest.mark.parametrize("way", ["bulk", "serial"])
def test_keys_of_extensions_in_a_schema_on_no_path_are_found(
    way: str, databases: DatabasesFactory, debian_postgres: PostgresServer, tmp_path: Path
) -> None:
    site = Site(
        databases(publisher=debian_postgres, subscriber=debian_postgres),
        tmp_path / "store",
        [
            *(f"public.{it}" for it in _KEYS),
            {"source": "public.pair", "upd_cmd": "SQL", "del_cmd": "SQL", "update_policy": "singleton_update"},
        ],
        SparkHere(),
        [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic", **_WAYS[way]}],
    )
    for end in (site.at_publisher, site.at_subscriber):
        end("CREATE SCHEMA ext", *(f"CREATE EXTENSION {it} SCHEMA ext" for it in _KEYS))
    for name, values in _KEYS.items():
        rows = ", ".join(f"('{it}', 1)" for it in values)
        site.at_publisher(
            f"CREATE TABLE {name} (key ext.{name} PRIMARY KEY, n int)", f"INSERT INTO {name} VALUES {rows}"
        )
    site.at_publisher("CREATE TABLE pair (key ext.citext, place ext.ltree, n int, PRIMARY KEY (place, key))")
    site.set_up()
    site.take_snapshot()
    assert differing_rows(site) == {}
    site.at_publisher("INSERT INTO pair VALUES ('Ä', 'a', 1), ('b', 'b', 1), ('c', 'c', 1)")
    for name, (first, second, third, _) in _KEYS.items():
        site.at_publisher(
            f"UPDATE {name} SET n = 2 WHERE key OPERATOR(ext.=) '{first}'",
            f"DELETE FROM {name} WHERE key OPERATOR(ext.=) '{second}'",
            f"UPDATE {name} SET key = '{second}' WHERE key OPERATOR(ext.=) '{third}'",
        )
    delivered = site.run()
    assert (delivered.in_bulk, delivered.fallbacks) == (delivered.commands if way == "bulk" else 0, {})
    assert differing_rows(site) == {}
    site.at_publisher(
        "UPDATE pair SET n = 2 WHERE n = 1",
        "UPDATE pair SET place = 'z' WHERE place OPERATOR(ext.=) 'a'",
        "UPDATE citext SET key = 'ONE' WHERE n = 2",
        "DELETE FROM pair WHERE place OPERATOR(ext.=) 'b'",
    )
    site.run()
    assert differing_rows(site) == {}
    site.at_subscriber("UPDATE citext SET n = 7", "DELETE FROM ltree")
    site.validate(repair=Repair.SCRIPT, repair_script=tmp_path / "repair.sql")
    execute(site.databases.subscriber, *(tmp_path / "repair.sql").read_text().split(";\n")[:-1])
    assert differing_rows(site) == {}
    site.validate().raise_error()


# What check says

_ARGUMENTS = "(integer,character varying)"


def test_check_warns_of_code_without_a_path_where_others_may_write_to_the_logins(
    owners: Databases, login: Connection, tmp_path: Path
) -> None:
    site = _site(owners, login, tmp_path, {})
    assert check(site.topology).warnings == []
    site.at_subscriber("GRANT CREATE ON SCHEMA public TO PUBLIC", "GRANT CREATE ON SCHEMA hostile TO pg_monitor")
    warnings = check(site.topology).warnings
    named = ["public.see()", f"public.put_called{_ARGUMENTS}", "public.see()"]
    assert [re.findall(r"(?:FUNCTION|PROCEDURE) (.+?) SET", it) for it in warnings] == [[it] for it in named]
    for it in warnings:
        assert "(role pg_monitor in schema hostile, PUBLIC in schema public)" in it
        site.at_subscriber(it[it.index("ALTER ") :])
    assert check(site.topology).warnings == []
    site.at_subscriber("ALTER PROCEDURE put_called RESET search_path", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    assert len(check(site.topology).warnings) == 1
    site.at_subscriber("REVOKE CREATE ON SCHEMA hostile FROM pg_monitor")
    assert check(site.topology).warnings == []


def test_a_table_of_the_models_that_another_role_made_is_refused(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(databases(), tmp_path / "store", ["public.called"])
    site.at_publisher(_TABLES[3])
    role = f"other_{site.databases.subscriber.database}"
    site.at_subscriber(f"CREATE ROLE {role}", f"GRANT CREATE ON SCHEMA public TO {role}")
    site.at_subscriber(
        f"SET ROLE {role}",
        "CREATE FUNCTION sprung() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'sprung'; END $$",
        "CREATE VIEW msrepl_version AS SELECT sprung() AS revision, '1' AS version",
        "CREATE VIEW mssubscription_articles AS SELECT sprung() AS article",
        "CREATE TABLE msreplication_objects (object_name text)",
    )
    taken = 'ALTER TABLE "public"."msreplication_objects" OWNER TO "postgres";'
    for name in ("msrepl_version", "msreplication_objects", "mssubscription_articles"):
        with pytest.raises(ConfigurationError, match=f"{name} belongs to role {role}") as refused:
            site.set_up()
        drop, _, take = (refused.value.report.remedy or "").partition(" or, where setup made it as that role: ")
        assert take == (taken if name == "msreplication_objects" else "")
        site.at_subscriber(drop)
    site.set_up()
    site.at_subscriber(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
