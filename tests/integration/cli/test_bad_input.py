"""Bad input: exit status 1, one clear message a problem, nothing changed, and no password anywhere."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from psycopg import sql

from conftest import DatabasesFactory
from support.databases import Databases, connection_environment
from support.embedded_postgres import PostgresServer, ServerSettings, embedded_bindir
from support.shell import Outcome, publication_file, tranrepl
from support.site import Rows, Site, execute
from tranrepl.admin import store_check
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import StoreCheckRequest
from tranrepl.settings.publication import Article, Publication

# Every part of it must be looked for: quoting could hide the whole.
PASSWORD = "hush/D0nt:te11@me%41 ?#"  # noqa: S105
WRONG_PASSWORD = "wr0ng/S3same@x%"  # noqa: S105
_SECRETS = [
    PASSWORD,
    quote(PASSWORD),
    quote(PASSWORD, safe=""),
    "D0nt",
    "te11",
    "S3same",
    quote(WRONG_PASSWORD, safe=""),
]

TABLES = f"""
    CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(9, 2));
    CREATE TABLE t2 (id int PRIMARY KEY);
    CREATE TABLE keyless (id int, v text);
    CREATE TABLE two_keys (a int, b int, v text, PRIMARY KEY (a, b));
    CREATE TABLE stored (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id + 1) STORED);
    CREATE TABLE part (id int PRIMARY KEY) PARTITION BY RANGE (id);
    CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
    CREATE VIEW seen AS SELECT * FROM t;
    CREATE TABLE wide (id int PRIMARY KEY, {", ".join(f"c{at} int" for at in range(98))});
    CREATE TABLE narrow (id int PRIMARY KEY, v text);
"""

# Everything in a database that a setup could make or change.
_STATE = """
    SELECT 'relation', c.oid::regclass::text, c.relreplident::text FROM pg_class c
     WHERE c.relnamespace::regnamespace::text NOT LIKE 'pg\\_%' AND c.relnamespace <> 'information_schema'::regnamespace
    UNION ALL SELECT 'schema', nspname, '' FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%'
    UNION ALL SELECT 'routine', oid::regprocedure::text, md5(prosrc) FROM pg_proc
               WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT 'publication', pubname, '' FROM pg_publication
    UNION ALL SELECT 'slot', slot_name, confirmed_flush_lsn::text FROM pg_replication_slots
               WHERE database = current_database()
    ORDER BY 1, 2
"""


def _state(databases: Databases) -> list[Rows]:
    return [execute(it, _STATE) for it in (databases.publisher, databases.subscriber, databases.distribution)]


def _refused(outcome: Outcome, *said: str) -> None:
    """One error for each of `said`, which holds in it, and nothing else on either side."""
    assert outcome.status == 1, outcome
    assert outcome.out == ""
    assert len(outcome.errors) == len(said), outcome.err
    for error, part in zip(outcome.errors, said, strict=True):
        assert part in error
    _kept_secret(outcome)


def _kept_secret(outcome: Outcome) -> None:
    text = outcome.out + outcome.err
    assert "Traceback" not in text
    assert [secret for secret in _SECRETS if secret in text] == []


@dataclass(frozen=True)
class World:
    """Databases that all tests of this module share, because each leaves them as they were."""

    server: PostgresServer
    databases: Databases
    limited: Connection
    """A role at the Publisher that may not read the log."""

    def environment(self, **changes: str) -> dict[str, str]:
        return {**self.databases.environment, **changes}


@pytest.fixture(scope="module")
def world(postgres: PostgresServer) -> Iterator[World]:
    roles = {"hushed": "SUPERUSER", "limited": ""}
    names = [f"bad_input_{role}" for role in ("publisher", "subscriber", "distribution")]
    with postgres.connect() as session:
        for role, options in roles.items():
            session.execute(
                sql.SQL("CREATE ROLE {} LOGIN {} PASSWORD {}").format(
                    sql.Identifier(role),
                    sql.SQL(options),
                    sql.Literal(PASSWORD),
                )
            )
    for name in names:
        postgres.create_database(name)
    ends = [
        replace(postgres.connection(name, name.removeprefix("bad_input_")), login="hushed", password=PASSWORD)
        for name in names
    ]
    databases = Databases(*ends)
    execute(databases.publisher, TABLES)
    execute(databases.subscriber, "CREATE TABLE narrow (id int PRIMARY KEY)", "CREATE VIEW elsewhere AS SELECT 1 AS id")
    yield World(postgres, databases, replace(databases.publisher, login="limited"))
    for name in names:
        postgres.drop_database(name)
    with postgres.connect() as session:
        for role in roles:
            session.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@dataclass(frozen=True)
class Case:
    """What is wrong, and what is said of it."""

    said: str
    environment: Callable[[World], Mapping[str, str]] = lambda _: {}
    settings: Mapping[str, object] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    """What else is said."""


def _variable(connection: Connection) -> dict[str, str]:
    return connection_environment([connection])


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _uri(connection: Connection, password: str, kind: str = "postgres") -> str:
    return (
        f"{kind}://{connection.login}:{quote(password, safe='')}@{connection.host}:{connection.port}"
        f"/{connection.database}"
    )


_LOGIN = "check login, password and database of this connection"
_REACH = "check host and port, and that the server runs"

CASES = {
    "relative store": Case(
        "distributor.store: 'store/here' is relative\n  → allowed: an absolute path or a URL",
        settings={"distributor": {"connection": "distribution", "store": "store/here"}},
    ),
    "no Java on the path": Case(
        "Spark needs Java, and there is none (on PATH)\n  → install Java 17",
        lambda _: {"PATH": "/nowhere", "JAVA_HOME": ""},
    ),
    "no Java in JAVA_HOME": Case(
        "Spark needs Java, and there is none (JAVA_HOME=/nowhere)\n  → install Java 17",
        lambda _: {"JAVA_HOME": "/nowhere"},
    ),
    "connection that is not defined": Case(
        "connection 'warehouse' is not defined\n  → define it in Airflow, or set AIRFLOW_CONN_WAREHOUSE",
        settings={"subscriptions": [{"name": "reporting", "connection": "warehouse"}]},
    ),
    "connection that is misspelt": Case(
        "connection 'subscribers' is not defined\n  → did you mean AIRFLOW_CONN_SUBSCRIBER, which is set? Else: define",
        settings={"subscriptions": [{"name": "reporting", "connection": "subscribers"}]},
    ),
    "another Spark in SPARK_HOME": Case("SPARK_HOME=/nowhere: there is no Spark", lambda _: {"SPARK_HOME": "/nowhere"}),
    "connection that cannot be read": Case(
        "AIRFLOW_CONN_SUBSCRIBER is neither a connection in JSON nor a URI\n  → allowed: {",
        lambda _: {"AIRFLOW_CONN_SUBSCRIBER": json.dumps({"password": PASSWORD})[:-1]},
    ),
    "another kind of database": Case(
        "connection 'subscriber' is of type 'nosuchkind'",
        lambda world: {"AIRFLOW_CONN_SUBSCRIBER": _uri(world.databases.subscriber, PASSWORD, "nosuchkind")},
    ),
    "no such host": Case(
        _REACH, lambda world: _variable(replace(world.databases.subscriber, host="no-such-host.invalid"))
    ),
    "no such database": Case(
        f'database "absent" does not exist\n  → {_LOGIN}',
        lambda world: _variable(replace(world.databases.subscriber, database="absent")),
    ),
    "option that libpq does not know": Case(
        'invalid connection option "colour"',
        lambda world: {"AIRFLOW_CONN_SUBSCRIBER": f"{_uri(world.databases.subscriber, PASSWORD)}?colour=red"},
    ),
    "role that may not read the log": Case(
        'role limited may not read the log\n  → ALTER ROLE "limited" REPLICATION',
        lambda world: _variable(world.limited),
        more=("role limited does not own public.t, as setup must to publish the tables",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_and_changes_nothing(name: str, world: World, tmp_path: Path) -> None:
    case = CASES[name]
    file = publication_file(tmp_path, [{"source": "public.t"}], **case.settings)
    before = _state(world.databases)
    outcome = tranrepl("setup", file, environment=world.environment(**case.environment(world)))
    _refused(outcome, case.said, *case.more)
    assert _state(world.databases) == before
    assert [it.name for it in tmp_path.iterdir()] == [file.name]


def test_mistakes_in_the_file_are_told_line_by_line(world: World, tmp_path: Path) -> None:
    articles = [{"source": "public.t", "colums": ["id"]}, {"source": "public.narrow", "upd_cmd": "VCALL"}]
    uri = f"postgres://me:{quote(PASSWORD, safe='')}@h/d"
    file = publication_file(tmp_path, articles, publisher={"connection": uri}, subscribers=[])
    outcome = tranrepl("setup", file, environment=world.environment())
    syntaxes = "CALL, SCALL, MCALL, XCALL (each alone or with the name of a procedure), SQL, NONE"
    assert outcome.status == 1
    said = {
        "//me": "publisher.connection: 'postgres://***@h/d': "
        "allowed: a connection's id, of letters, digits, _, . and -",
        "colums": "articles[0].colums: unknown key; did you mean columns? allowed: " + ", ".join(Article.model_fields),
        "VCALL": f"articles[1].upd_cmd: 'VCALL': VCALL is for SQL Server's internal use; allowed: {syntaxes}",
        "subscribers": "subscribers: unknown key; did you mean subscriptions? allowed: "
        + ", ".join(Publication.model_fields),
    }
    lines = file.read_text(encoding="utf-8").splitlines()
    numbers = [next(at for at, line in enumerate(lines, 1) if part in line) for part in said]
    expected = [f"{file}:{number}: {text}" for number, text in zip(numbers, said.values(), strict=True)]
    assert outcome.err.removeprefix("error: ").splitlines() == expected
    _kept_secret(outcome)


# An article, and what is said of it.
ARTICLES: list[tuple[dict[str, object], str]] = [
    ({"source": "public.absent"}, "Publisher bad_input_publisher has no such table\n  → names are case-sensitive"),
    (
        {"source": "public.T"},
        "Publisher bad_input_publisher has no such table\n  → did you mean public.t? names are case",
    ),
    (
        {"source": "sales.narrow"},
        "Publisher bad_input_publisher has no such table\n  → did you mean public.narrow? names are case",
    ),
    (
        {"source": "public.t", "columns": ["id", "V"]},
        "columns: 'V' does not exist\n  → did you mean v? allowed: id, v, n",
    ),
    ({"source": "public.stored", "columns": ["id", "g"]}, "columns: 'g' is generated"),
    (
        {"source": "public.keyless"},
        "the table has no primary key (error 14088)\n  → ALTER TABLE public.keyless ADD PRIMARY KEY",
    ),
    (
        {"source": "public.two_keys", "columns": ["a", "v"]},
        "columns: primary key column b is left out (error 21250)\n  → add it to columns",
    ),
    ({"source": "public.seen"}, "Publisher bad_input_publisher: not an ordinary table (view)"),
    ({"source": "public.part"}, "Publisher bad_input_publisher: not an ordinary table (partitioned table)"),
    ({"source": "public.unlogged"}, "Publisher bad_input_publisher: not an ordinary table (unlogged table)"),
    (
        {"source": "public.wide"},
        "upd_cmd: the procedure would take 101 arguments, a PostgreSQL procedure takes 100\n  → upd_cmd: SQL",
    ),
    (
        {"source": "public.narrow"},
        "Subscriber reporting: table public.narrow has no column 'v'\n  → ALTER TABLE public.narrow ADD COLUMN",
    ),
    (
        {"source": "public.t2", "destination": "public.elsewhere"},
        "public.elsewhere at Subscriber reporting is a view\n  → allowed: a table",
    ),
]


def test_every_article_that_cannot_be_replicated_is_told_at_once(world: World, tmp_path: Path) -> None:
    below = str(tmp_path / "purchasing.yaml" / "store")
    articles = [article for article, _ in ARTICLES]
    file = publication_file(tmp_path, articles, distributor={"connection": "distribution", "store": below})
    before = _state(world.databases)
    said = [f"distributor.store: '{below}': {file} is not a folder\n  → allowed: a path to write to"]
    said += [f"article {article['source']}: {problem}" for article, problem in ARTICLES]
    _refused(tranrepl("setup", file, environment=world.environment()), *said)
    outcome = tranrepl("check", file, "--json", environment=world.environment())
    assert (outcome.status, outcome.err) == (1, "")
    problems = json.loads(outcome.out)["problems"]
    texts = [f"{problem['message']}\n  → {problem['remedy']}" for problem in problems]
    assert all(part in text for part, text in zip(said, texts, strict=True))
    assert {problem["kind"] for problem in problems} == {"configuration"}
    _kept_secret(outcome)
    assert _state(world.databases) == before


@pytest.mark.parametrize("form", ["JSON", "URI"])
def test_a_wrong_password_is_refused(form: str, world: World, tmp_path: Path) -> None:
    ends = world.databases.publisher, world.databases.distribution, world.databases.subscriber
    wrong = connection_environment(replace(it, password=WRONG_PASSWORD) for it in ends)
    if form == "URI":
        wrong = {f"AIRFLOW_CONN_{it.connection_id.upper()}": _uri(it, WRONG_PASSWORD) for it in ends}
    before = _state(world.databases)
    outcome = tranrepl("setup", publication_file(tmp_path, [{"source": "public.t"}]), environment=wrong)
    _refused(outcome, *[f'password authentication failed for user "hushed"\n  → {_LOGIN}'] * 3)
    for connection, error in zip(ends, outcome.errors, strict=True):
        assert error.startswith(f"connection {connection}: ")
    assert _state(world.databases) == before


def test_a_server_that_does_not_answer_is_told_with_its_address(world: World, tmp_path: Path) -> None:
    ends = world.databases.publisher, world.databases.distribution, world.databases.subscriber
    away = [replace(it, port=_closed_port()) for it in ends]
    file = publication_file(tmp_path, [{"source": "public.t"}])
    outcome = tranrepl("setup", file, environment=connection_environment(away))
    _refused(outcome, *[_REACH] * 3)
    for connection, error in zip(away, outcome.errors, strict=True):
        assert error.startswith(f"connection {connection}: ")


@pytest.mark.parametrize("verb", ["run", "distribute", "status", "browse"])
def test_what_is_not_set_up_is_told_so(verb: str, world: World, tmp_path: Path) -> None:
    before = _state(world.databases)
    file = publication_file(tmp_path, [{"source": "public.t"}])
    outcome = tranrepl(verb, file, environment=world.environment())
    assert outcome.status == 1
    assert outcome.errors == [
        f"distribution database bad_input_distribution has no current schema\n  → run `tranrepl setup {file}`"
    ]
    _kept_secret(outcome)
    assert _state(world.databases) == before


# Servers


@pytest.fixture(scope="module")
def second_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a second cluster lives, started with other options by each test that needs one."""
    return tmp_path_factory.mktemp("second")


def _second(home: Path, **options: str) -> PostgresServer:
    return PostgresServer(ServerSettings(home, fsync=False, options=options))


def test_a_server_whose_log_is_not_logical_is_refused(world: World, second_home: Path, tmp_path: Path) -> None:
    with _second(second_home, wal_level="replica") as server:
        publisher = server.connection("postgres", "publisher")
        execute(publisher, "DROP TABLE IF EXISTS t", "CREATE TABLE t (id int PRIMARY KEY)")
        databases = replace(world.databases, publisher=publisher)
        before = _state(databases)
        file = publication_file(tmp_path, [{"source": "public.t"}])
        outcome = tranrepl("setup", file, environment=databases.environment)
        _refused(
            outcome, "Publisher postgres: wal_level is 'replica'\n  → allowed: logical. ALTER SYSTEM SET wal_level"
        )
        assert publisher.password is not None
        assert publisher.password not in outcome.err
        assert _state(databases) == before


def test_a_server_without_wal_senders_is_told(world: World, second_home: Path, tmp_path: Path) -> None:
    with _second(second_home, max_wal_senders="0") as server:
        publisher = server.connection("postgres", "publisher")
        execute(publisher, "DROP TABLE IF EXISTS t", "CREATE TABLE t (id int PRIMARY KEY)")
        file = publication_file(tmp_path, [{"source": "public.t"}])
        environment = replace(world.databases, publisher=publisher).environment
        outcome = tranrepl("check", file, environment=environment)
        _refused(outcome, "Publisher postgres: no replication connection: ")
        assert "wait for other jobs; or raise max_wal_senders and restart the server" in outcome.err


@pytest.mark.spark
def test_a_store_that_only_spark_reaches_is_tried_by_a_job(world: World, tmp_path: Path) -> None:
    environment = {"JAVA_HOME": os.environ.get("JAVA_HOME", ""), **world.environment()}
    for number, (store, said) in enumerate(
        [("s3a://bucket/store", "hadoop-aws:3."), ("nosuch://x/store", "nosuch://")]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        settings = {"connection": "distribution", "store": store}
        outcome = tranrepl(
            "check", publication_file(folder, [{"source": "public.t"}], distributor=settings), environment=environment
        )
        _refused(outcome, f"distributor.store: '{store}': Spark cannot write there: ")
        assert said in outcome.err


@pytest.mark.spark
def test_a_store_is_tried_in_sparks_way_and_left_as_it_was(world: World, tmp_path: Path, spark: Any) -> None:
    """A folder stands in for another file system: what writes is Spark's own."""
    store = tmp_path / "store"
    site = Site(world.databases, f"file://{store}", ["public.t"])
    request = StoreCheckRequest(publication=site.publication)
    assert store_check.run(spark, request, {}).error is None
    assert [it for it in store.rglob("*") if it.is_file()] == []
    store.rmdir()
    store.write_text("a file where a folder should be", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="Spark cannot write there"):
        store_check.run(spark, request, {})


def test_an_invalidated_slot_is_refused(databases: DatabasesFactory, second_home: Path, tmp_path: Path) -> None:
    with _second(second_home, max_slot_wal_keep_size="1MB", max_wal_size="32MB", min_wal_size="32MB") as server:
        server.create_database("losing")
        site = Site(
            replace(databases(), publisher=server.connection("losing", "publisher")),
            tmp_path / "store",
            ["public.t"],
            publication="losing",
        )
        site.at_publisher("CREATE TABLE t (id int PRIMARY KEY)")
        site.set_up()
        site.at_publisher("INSERT INTO t VALUES (1)")
        for _ in range(3):
            site.at_publisher("CREATE TABLE filler AS SELECT 1", "DROP TABLE filler", "SELECT pg_switch_wal()")
        site.at_publisher("CHECKPOINT")
        assert site.at_publisher("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
        before = _state(site.databases)
        file = publication_file(tmp_path, [{"source": "public.t"}], publication="losing")
        for verb in ("check", "setup", "log-reader"):
            outcome = tranrepl(verb, file, environment=site.databases.environment)
            assert outcome.status == 1
            (error,) = outcome.errors
            assert "Publisher losing: replication slot tranrepl_losing_" in error
            assert f"the log it needs is gone\n  → `tranrepl reinitialize {file}`" in error
            _kept_secret(outcome)
        assert _state(site.databases) == before
        # With its slot, for which a server whose log is not logical does not even start.
        server.drop_database("losing")


# Slots, in a publication that is set up


@pytest.fixture
def purchasing(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, v text)")
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (1, 'a')")
    return site


def _slot(site: Site) -> str:
    return str(
        site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")[0][0]
    )


def test_a_missing_slot_is_refused(purchasing: Site, tmp_path: Path) -> None:
    slot = _slot(purchasing)
    purchasing.at_publisher(f"SELECT pg_drop_replication_slot('{slot}')")
    before = _state(purchasing.databases)
    file = publication_file(tmp_path, [{"source": "public.t"}])
    for verb in ("log-reader", "setup", "run"):
        outcome = tranrepl(verb, file, environment=purchasing.databases.environment)
        assert outcome.status == 1
        (error,) = outcome.errors
        assert f"replication slot {slot} does not exist: changes made since it was lost cannot be read" in error
        assert f"\n  → `tranrepl reinitialize {file}`" in error
        _kept_secret(outcome)
    assert _state(purchasing.databases) == before


def test_a_slot_in_use_is_refused(purchasing: Site, tmp_path: Path) -> None:
    slot = _slot(purchasing)
    file = publication_file(tmp_path, [{"source": "public.t"}])
    with _reading(purchasing.databases.publisher, slot):
        before = purchasing.at_publisher(_STATE)
        outcome = tranrepl("log-reader", file, environment=purchasing.databases.environment)
        assert outcome.status == 1
        assert (
            f"replication slot {slot} is in use by another session\n  → one log reader at a time" in outcome.errors[0]
        )
        assert len(outcome.errors) == 1
        _kept_secret(outcome)
        assert purchasing.at_publisher(_STATE) == before


class _reading:  # noqa: N801
    """Another session that holds the slot."""

    def __init__(self, publisher: Connection, slot: str) -> None:
        parameters = publisher.libpq_parameters("other reader")
        names = " ".join(f"{name}={parameters[name]}" for name in ("host", "port", "user", "dbname"))
        self._publisher, self._slot = publisher, slot
        self._command = [
            str(embedded_bindir() / "pg_recvlogical"),
            *("--slot", slot, "--start", "--no-loop", "--file", os.devnull, "--dbname", names),
            *("--option", "proto_version=1", "--option", f"publication_names={slot}"),
        ]
        self._environment = {**os.environ, "PGPASSWORD": parameters["password"]}

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._environment, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 300
        while not self._is_active():
            assert self._process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(300)

    def _is_active(self) -> bool:
        query = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{self._slot}'"
        return execute(self._publisher, query) == [(True,)]


@pytest.mark.spark
def test_a_store_that_a_job_cannot_write_loses_nothing(purchasing: Site, tmp_path: Path, spark: Any) -> None:
    purchasing.spark = spark
    store = tmp_path / "store"
    store.write_text("a file where a folder should be", encoding="utf-8")
    before = purchasing.at_publisher(_STATE)
    with pytest.raises(ConfigurationError, match=rf"store: {store}/.* cannot be written") as refused:
        purchasing.read_log().raise_error()
    assert refused.value.report.remedy == "distributor.store must be a path that Spark can write"
    assert purchasing.at_publisher(_STATE) == before
    store.unlink()
    purchasing.run()
    assert purchasing.differences() == []
