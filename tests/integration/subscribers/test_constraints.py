"""Foreign keys, cascades and triggers: what the Publisher's did arrives as commands, and the Subscriber's own act on it
or do not, as the subscription says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from psycopg import sql

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_commands, read_commands, replicate
from support.mariadb import MariaDbServer
from support.observed import distribution_rows
from support.site import Site, execute
from support.subscribers import KEY, STATEMENTS, Execute, Site as PlainSite
from tranrepl.errors import ConfigurationError, ErrorKind, TransientError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Subscription
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.registry import dialect_of

# The Publisher's children follow their parents: renumbered, deleted, set free, and a tree within one table.
CASCADING = (
    "CREATE TABLE country (code varchar(4) PRIMARY KEY, name varchar(20) NOT NULL)",
    """CREATE TABLE customer (id int PRIMARY KEY, name varchar(20),
        country varchar(4) REFERENCES country ON UPDATE CASCADE ON DELETE SET NULL)""",
    """CREATE TABLE orders (id int PRIMARY KEY, total int,
        customer int NOT NULL REFERENCES customer ON UPDATE CASCADE ON DELETE CASCADE)""",
    """CREATE TABLE part (id int PRIMARY KEY, within int REFERENCES part ON UPDATE CASCADE ON DELETE CASCADE)""",
)
TABLES = ("country", "customer", "orders", "part")
_ARTICLES = tuple({"source": f"public.{table}"} for table in TABLES)
CHANGES = (
    """BEGIN; INSERT INTO country VALUES ('SE', 'Sweden'), ('FI', 'Finland'), ('NO', 'Norway');
    INSERT INTO customer SELECT n, 'name ' || n, (ARRAY['SE', 'FI', 'NO'])[1 + n % 3] FROM generate_series(1, 9) n;
    INSERT INTO orders SELECT n, n * 10, 1 + n % 9 FROM generate_series(1, 40) n;
    INSERT INTO part VALUES (1, NULL), (2, 1), (3, 2), (4, 3), (5, 1); COMMIT""",
    # Keys that change, with what follows them.
    "UPDATE country SET code = lower(code) WHERE code <> 'NO'",
    "UPDATE customer SET id = id + 100 WHERE id IN (2, 3)",
    "UPDATE part SET id = 20 WHERE id = 2",
    "BEGIN; UPDATE customer SET id = 1000 WHERE id = 4; UPDATE customer SET name = 'moved' WHERE id = 1000; COMMIT",
    # Parents that go, with or without their children, and one that comes back.
    "DELETE FROM country WHERE code = 'NO'",
    "DELETE FROM customer WHERE id IN (5, 102)",
    "DELETE FROM part WHERE id = 3",
    """BEGIN; DELETE FROM customer WHERE id = 6; INSERT INTO customer VALUES (6, 'anew', 'fi');
    INSERT INTO orders VALUES (100, 1, 6); COMMIT""",
    "UPDATE orders SET customer = 6, total = NULL WHERE customer = 1000",
)


@dataclass(frozen=True, slots=True)
class Place:
    """A publication with one Subscriber. `execute` runs SQL there."""

    site: Site
    execute: Execute

    def differing(self) -> list[str]:
        return [
            table
            for table in TABLES
            if self.site.at_publisher(f"SELECT * FROM {table} ORDER BY 1")
            != self.execute(f"SELECT * FROM {table} ORDER BY 1")
        ]

    def foreign_keys(self) -> int:
        """Count the Subscriber's foreign keys."""
        schema = self.site.publication.articles[0].destination_table.schema
        found = self.execute(
            "SELECT constraint_name FROM information_schema.table_constraints "
            f"WHERE constraint_type = 'FOREIGN KEY' AND table_schema = '{schema}'"
        )
        return len(found)

    def counts(self) -> list[int]:
        return [int(self.site.at_publisher(f"SELECT count(*) FROM {table}")[0][0]) for table in TABLES]


@pytest.fixture(params=["postgres procedures", "mariadb statements"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _place(request: pytest.FixtureRequest, kind: str, **subscription: Any) -> Place:
    """Create the tables at the Publisher, and set up."""
    place = _not_set_up(request, kind, **subscription)
    place.site.set_up()
    return place


def _not_set_up(
    request: pytest.FixtureRequest,
    kind: str,
    articles: Sequence[Mapping[str, object]] = _ARTICLES,
    **subscription: Any,
) -> Place:
    databases: DatabasesFactory = request.getfixturevalue("databases")
    home: Path = request.getfixturevalue("tmp_path")
    database, _, style = kind.partition(" ")
    commands = STATEMENTS if style == "statements" else {}
    ends, schema = databases(), "public"
    subscriber = ends.subscriber
    if database == "mariadb":
        server: MariaDbServer = request.getfixturevalue("mariadb")
        schema = request.getfixturevalue("mariadb_database")
        ends = replace(ends, subscriber=server.connection(schema))
    written = [{"destination": str(it["source"]).replace("public", schema, 1), **it, **commands} for it in articles]
    settings = {"name": "reporting", "connection": "subscriber", **subscription}
    site = Site(ends, home / "store", written, subscriptions=[settings])
    site.at_publisher(*CASCADING)
    if database == "mariadb":
        return Place(site, lambda *statements: server.execute(*statements, database=schema))
    return Place(site, lambda *statements: execute(subscriber, *statements))


@pytest.mark.parametrize(
    ("kind", "subscription"),
    [
        ("postgres procedures", {}),
        ("postgres procedures", {"foreign_keys": True}),
        ("postgres statements", {"foreign_keys": True, "not_for_replication": True}),
        ("mariadb statements", {}),
        ("mariadb procedures", {"foreign_keys": True, "not_for_replication": True}),
    ],
    ids=str,
)
def test_what_cascaded_at_the_publisher_arrives_once(
    request: pytest.FixtureRequest, kind: str, subscription: dict[str, object]
) -> None:
    place = _place(request, kind, **subscription)
    assert place.foreign_keys() == (3 if subscription.get("foreign_keys") else 0)
    assert place.site.set_up() == []
    place.site.at_publisher(*CHANGES)
    replicate(place.site)
    assert place.counts() == [2, 7, 27, 3]
    assert place.differing() == []


_OWN_KEYS = (
    """ALTER TABLE customer ADD CONSTRAINT customer_country FOREIGN KEY (country) REFERENCES country (code)
    ON UPDATE CASCADE ON DELETE SET NULL""",
    """ALTER TABLE orders ADD CONSTRAINT orders_customer FOREIGN KEY (customer) REFERENCES customer (id)
    ON UPDATE CASCADE ON DELETE CASCADE""",
    "ALTER TABLE part ADD CONSTRAINT part_within FOREIGN KEY (within) REFERENCES part (id) ON DELETE CASCADE",
)


def test_cascades_not_for_replication_do_not_act(request: pytest.FixtureRequest, kind: str) -> None:
    place = _place(request, kind, not_for_replication=True)
    place.execute(*_OWN_KEYS)
    place.site.at_publisher(*CHANGES)
    replicate(place.site)
    assert place.differing() == []


def test_a_subscribers_own_cascades_delete_rows_that_commands_miss(request: pytest.FixtureRequest, kind: str) -> None:
    place = _place(request, kind)
    place.execute(*_OWN_KEYS)
    place.site.at_publisher(CHANGES[0])
    replicate(place.site)
    assert place.differing() == []
    place.site.at_publisher("DELETE FROM customer WHERE id = 5")
    error = deliver_commands(place.site, read_commands(place.site)).error
    assert error is not None
    assert (error.kind, error.number, error.article) == (ErrorKind.DATA, "20598", "public.orders")


@pytest.mark.parametrize("not_for_replication", [False, True])
def test_a_subscribers_trigger_fires_unless_it_is_not_for_replication(
    request: pytest.FixtureRequest, not_for_replication: bool
) -> None:
    place = _place(request, "postgres procedures", not_for_replication=not_for_replication)
    place.execute(
        "CREATE TABLE seen (name text, id int)",
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO seen VALUES (TG_NAME, NEW.id); RETURN NEW; END $$",
        "CREATE TRIGGER ordinary BEFORE INSERT ON part FOR EACH ROW EXECUTE FUNCTION see()",
        "CREATE TRIGGER always BEFORE INSERT ON part FOR EACH ROW EXECUTE FUNCTION see()",
        "ALTER TABLE part ENABLE ALWAYS TRIGGER always",
    )
    place.site.at_publisher("INSERT INTO part VALUES (1, NULL), (2, 1)")
    replicate(place.site)
    fired = [("always",)] if not_for_replication else [("always",), ("ordinary",)]
    assert place.execute("SELECT DISTINCT name FROM seen ORDER BY 1") == fired
    assert place.differing() == []


def test_a_trigger_of_mariadb_fires_either_way(request: pytest.FixtureRequest) -> None:
    place = _place(request, "mariadb statements", not_for_replication=True)
    place.execute(
        "CREATE TABLE seen (id int)",
        "CREATE TRIGGER see AFTER INSERT ON part FOR EACH ROW INSERT INTO seen VALUES (NEW.id)",
    )
    place.site.at_publisher("INSERT INTO part VALUES (1, NULL)")
    replicate(place.site)
    assert place.execute("SELECT * FROM seen") == [(1,)]


# Foreign keys that setup makes


def test_a_foreign_key_that_setup_made_is_checked_at_commit(request: pytest.FixtureRequest) -> None:
    place = _place(request, "postgres procedures", foreign_keys=True)
    place.site.at_publisher("INSERT INTO part VALUES (1, NULL), (2, 1)")
    replicate(place.site)
    place.execute("BEGIN; INSERT INTO part VALUES (4, 3); INSERT INTO part VALUES (3, NULL); COMMIT")
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="part_within_fkey"):
        place.execute("DELETE FROM part WHERE id = 3")
    # No cascade acts on what arrives either: it is a data error, and nothing of the batch stays.
    place.execute("INSERT INTO part VALUES (5, 2)")
    place.site.at_publisher("DELETE FROM part WHERE id = 1")
    error = deliver_commands(place.site, read_commands(place.site)).error
    assert error is not None
    assert (error.kind, error.shown_number) == (ErrorKind.DATA, "547 (23503)")
    assert place.execute("SELECT id FROM part ORDER BY 1") == [(1,), (2,), (3,), (4,), (5,)]


_HOSTILE = 'a"b`c; DROP TABLE x) -- %s %(x)s {} \\'
_HOSTILE_TABLES = (
    """CREATE TABLE {n} ({n} text, k int, parent int, "in" text, UNIQUE (k), PRIMARY KEY (k, {n}),
        CONSTRAINT {n} FOREIGN KEY ("in", parent) REFERENCES {n} ({n}, k) ON DELETE CASCADE ON UPDATE CASCADE)""",
    """CREATE TABLE child (id int PRIMARY KEY, {n} int, t text,
        CONSTRAINT {n} FOREIGN KEY (t, {n}) REFERENCES {n} ({n}, k) ON DELETE CASCADE ON UPDATE CASCADE)""",
)


# SQLAlchemy, which reads the tables' columns, does not read such a name in a foreign key.
@pytest.mark.filterwarnings("ignore:Unknown schema content")
def test_foreign_keys_of_any_name_and_order_are_made(request: pytest.FixtureRequest, kind: str) -> None:
    quoted = '"' + _HOSTILE.replace('"', '""') + '"'
    place = _not_set_up(
        request,
        kind,
        [{"source": f"public.{quoted}"}, {"source": "public.child"}],
        foreign_keys=True,
        not_for_replication=True,
    )
    place.site.at_publisher(*(it.format(n=quoted) for it in _HOSTILE_TABLES))
    (made,) = (it for it in place.site.set_up() if it.startswith("created foreign keys"))
    assert made.count(_HOSTILE.replace('"', '""')) + made.count("child") == 2
    assert place.site.set_up() == []
    place.site.at_publisher(
        f"INSERT INTO {quoted} VALUES ('x', 1, NULL, NULL), ('y', 2, 1, 'x'), ('z', 3, 2, 'y')",
        "INSERT INTO child VALUES (1, 1, 'x'), (2, 3, 'z'), (3, NULL, 'none')",
        f"UPDATE {quoted} SET k = k + 10",
        f"DELETE FROM {quoted} WHERE k = 12",
    )
    replicate(place.site)
    assert place.execute("SELECT * FROM child ORDER BY 1") == [(1, 11, "x"), (3, None, "none")]
    # Whoever else writes at the Subscriber meets them.
    with pytest.raises((psycopg.errors.ForeignKeyViolation, pymysql.err.IntegrityError)):
        place.execute("INSERT INTO child VALUES (4, 99, 'x')")


_LEFT_OUT: Mapping[str, tuple[Mapping[str, object], Mapping[str, object], str, str]] = {
    "filtered": ({"filter": "id > 0"}, {}, "id int REFERENCES parent", "article public.parent has a row filter"),
    "none": ({}, {"del_cmd": "NONE"}, "id int REFERENCES parent", "does not propagate every change (NONE)"),
    "truncated": ({}, {"truncate": "ignore"}, "id int REFERENCES parent", "truncate is not the same"),
    "unique": ({}, {}, "id int REFERENCES parent (other)", "other columns than the primary key of public.parent"),
    "not published": ({}, {"columns": ["key"]}, "id int REFERENCES parent", "column id is not published"),
    "not valid": ({}, {}, "id int", "it is not validated"),
}


def test_foreign_keys_that_what_arrives_may_break_are_left_out_and_said_so(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    ends = databases()
    articles = []
    for name, (parent, child, column, _) in _LEFT_OUT.items():
        execute(
            ends.publisher,
            f'CREATE SCHEMA "{name}"',
            f'SET search_path = "{name}"; CREATE TABLE parent (id int PRIMARY KEY, other int NOT NULL UNIQUE); '
            f"CREATE TABLE child (key int PRIMARY KEY, {column})",
        )
        articles += [{"source": f'"{name}".parent', **parent}, {"source": f'"{name}".child', **child}]
    execute(
        ends.publisher,
        """ALTER TABLE "not valid".child ADD CONSTRAINT child_id_fkey FOREIGN KEY (id)
        REFERENCES "not valid".parent NOT VALID""",
        "CREATE TABLE public.elsewhere (id int PRIMARY KEY)",
        "CREATE TABLE public.child (key int PRIMARY KEY, id int REFERENCES elsewhere)",
        "CREATE TABLE public.own (key int PRIMARY KEY REFERENCES child)",
    )
    articles += [{"source": "public.child"}, {"source": "public.own"}]
    execute(ends.subscriber, "CREATE TABLE own (key int PRIMARY KEY)")
    subscription = {"name": "reporting", "connection": "subscriber", "foreign_keys": True}
    site = Site(ends, tmp_path / "store", articles, subscriptions=[subscription])
    said = [it for it in site.set_up() if "foreign key" in it]
    assert len(said) == len(_LEFT_OUT) + 1
    for name, (_, _, _, reason) in _LEFT_OUT.items():
        table = TableName(name, "child")
        reasons = [it for it in said if it.startswith(f"left out foreign key child_id_fkey of table {table}: ")]
        assert [reason.replace("public", str(TableName(name, "x"))[:-2]) in it for it in reasons] == [True], name
    statement = said[-1].partition("the table was there before; add it by ")[2]
    assert site.at_subscriber("SELECT count(*) FROM pg_constraint WHERE contype = 'f'") == [(0,)]
    site.at_subscriber(statement)
    assert said[-1] not in site.set_up()


def test_foreign_keys_are_refused_where_they_would_be_checked_at_once(
    request: pytest.FixtureRequest, sqlite_site: PlainSite
) -> None:
    place = _not_set_up(request, "mariadb statements", foreign_keys=True)
    with pytest.raises(ConfigurationError, match="foreign_keys: MariaDB checks a foreign key at once") as caught:
        place.site.set_up()
    assert (caught.value.report.remedy or "").startswith("not_for_replication: true")
    asked = Subscription(name="reporting", connection="subscriber", foreign_keys=True, not_for_replication=True)
    with dialect_of(sqlite_site.connection).subscriber(sqlite_site.connection, KEY, "test") as subscriber:
        problems = [problem.message for problem in subscriber.subscription_problems(asked)]
    assert [problem.split(": ")[1] for problem in problems] == ["not_for_replication", "foreign_keys"]


# The privilege, and databases that cannot


@pytest.mark.parametrize("server", ["postgres", "debian_postgres"])
def test_the_privilege_to_be_a_replica_is_checked_and_its_remedy_works(
    request: pytest.FixtureRequest, databases: DatabasesFactory, server: str, tmp_path: Path
) -> None:
    home: PostgresServer = request.getfixturevalue(server)
    ends = databases(subscriber=home)
    role = f'repl "{ends.subscriber.database}"'
    name = sql.Identifier(role).as_string(None)
    execute(ends.subscriber, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'", f"GRANT CREATE ON SCHEMA public TO {name}")
    limited = replace(ends.subscriber, login=role, password="secret")  # noqa: S106 — of this test alone
    subscription = {"name": "reporting", "connection": "subscriber", "not_for_replication": True}
    site = Site(replace(ends, subscriber=limited), tmp_path / "store", ["public.country"], subscriptions=[subscription])
    site.at_publisher(CASCADING[0])
    with pytest.raises(ConfigurationError, match="may not set session_replication_role") as caught:
        site.set_up()
    assert caught.value.report.remedy == f"GRANT SET ON PARAMETER session_replication_role TO {name}"
    with (
        pytest.raises(ConfigurationError, match="may not set session_replication_role"),
        dialect_of(limited).applier(limited, KEY, {}, ApplierOptions(not_for_replication=True)),
    ):
        pass

    execute(ends.subscriber, caught.value.report.remedy)
    site.set_up()
    site.at_publisher("INSERT INTO country VALUES ('SE', 'Sweden')")
    replicate(site)
    assert site.differences() == []
    execute(ends.subscriber, f"REVOKE SET ON PARAMETER session_replication_role FROM {name}", f"DROP OWNED BY {name}")
    execute(ends.subscriber, f"DROP ROLE {name}")


def test_a_database_whose_sessions_cannot_be_replicas_refuses(sqlite_site: PlainSite) -> None:
    connection = sqlite_site.connection
    with (
        pytest.raises(ConfigurationError, match="not_for_replication: a session of SQLite"),
        dialect_of(connection).applier(connection, KEY, {}, ApplierOptions(not_for_replication=True)),
    ):
        pass


# How long a stream waits for a lock


def test_a_stream_waits_for_a_lock_as_long_as_it_is_told(request: pytest.FixtureRequest, kind: str) -> None:
    place = _place(request, kind)
    connection = place.site.databases.subscriber
    options = ApplierOptions(lock_timeout_seconds=1)
    ((system,),) = distribution_rows(place.site, "SELECT publisher_system FROM mspublications")
    publisher = place.site.databases.publisher
    key = replace(KEY, publisher_system=str(system), publisher_db=publisher.database or "")
    with (
        _locking(request, place),
        dialect_of(connection).applier(connection, key, {}, options) as applier,
        pytest.raises(TransientError) as caught,
    ):
        applier.begin(FIRST_XACT_SEQNO)
    assert caught.value.report.database_code == ("1205" if kind.startswith("mariadb") else "55P03")


def _locking(request: pytest.FixtureRequest, place: Place) -> Any:
    """Yield a session that locks the watermark."""
    statement = "SELECT * FROM msreplication_subscriptions FOR UPDATE"
    if place.site.databases.subscriber.kind == "mariadb":
        server: MariaDbServer = request.getfixturevalue("mariadb")
        session: Any = server.connect(place.site.databases.subscriber.database)
        session.autocommit(False)
        session.cursor().execute(statement)
        return session
    holder = psycopg.connect(**place.site.databases.subscriber.libpq_parameters("test"))  # type: ignore[arg-type]
    holder.execute(statement)
    return holder
