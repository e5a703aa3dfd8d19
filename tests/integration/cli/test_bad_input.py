"""Bad input: exit status 1, one clear message a problem, nothing changed, and no password anywhere."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg import sql

from support.databases import Databases, connection_environment
from support.embedded_postgres import PostgresServer
from support.refusals import PASSWORD, WRONG_PASSWORD, assert_kept_secret, assert_refused, state_of
from support.shell import publication_file, tranrepl, typed
from support.site import execute
from tranrepl.connections import Connection
from tranrepl.settings.publication import Article, Publication

TABLES = f"""
    CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(9, 2));
    CREATE TABLE t2 (id int PRIMARY KEY);
    CREATE TABLE keyless (id int, v text);
    CREATE TABLE two_keys (a int, b int, v text, PRIMARY KEY (a, b));
    CREATE TABLE stored (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id + 1) STORED);
    CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
    CREATE VIEW seen AS SELECT * FROM t;
    CREATE TABLE wide (id int PRIMARY KEY, {", ".join(f"c{at} int" for at in range(98))});
    CREATE TABLE narrow (id int PRIMARY KEY, v text);
"""


@dataclass(frozen=True)
class SharedDatabases:
    """Databases that all tests of this module share, because each leaves them as they were."""

    server: PostgresServer
    databases: Databases
    limited: Connection
    """A role at the Publisher that may not read the log."""

    def environment(self, **changes: str) -> dict[str, str]:
        return {**self.databases.environment, **changes}


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[SharedDatabases]:
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
    yield SharedDatabases(postgres, databases, replace(databases.publisher, login="limited"))
    for name in names:
        postgres.drop_database(name)
    with postgres.connect() as session:
        for role in roles:
            session.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@dataclass(frozen=True)
class Case:
    """A mistake, and the message it must get."""

    said: str
    environment: Callable[[SharedDatabases], Mapping[str, str]] = lambda _: {}
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
        lambda shared: {"AIRFLOW_CONN_SUBSCRIBER": _uri(shared.databases.subscriber, PASSWORD, "nosuchkind")},
    ),
    "no such host": Case(
        _REACH, lambda shared: _variable(replace(shared.databases.subscriber, host="no-such-host.invalid"))
    ),
    "no such database": Case(
        f'database "absent" does not exist\n  → {_LOGIN}',
        lambda shared: _variable(replace(shared.databases.subscriber, database="absent")),
    ),
    "option that libpq does not know": Case(
        'invalid connection option "colour"',
        lambda shared: {"AIRFLOW_CONN_SUBSCRIBER": f"{_uri(shared.databases.subscriber, PASSWORD)}?colour=red"},
    ),
    "role that may not read the log": Case(
        'role limited may not read the log\n  → ALTER ROLE "limited" REPLICATION',
        lambda shared: _variable(shared.limited),
        {"replicate_ddl": False},
        more=("role limited does not own public.t, as setup must to publish the tables",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_and_changes_nothing(name: str, shared: SharedDatabases, tmp_path: Path) -> None:
    case = CASES[name]
    file = publication_file(tmp_path, [{"source": "public.t"}], **case.settings)
    before = state_of(shared.databases)
    outcome = typed("setup", file, environment=shared.environment(**case.environment(shared)))
    assert_refused(outcome, case.said, *case.more)
    assert state_of(shared.databases) == before
    assert [it.name for it in tmp_path.iterdir()] == [file.name]


def test_mistakes_in_the_file_are_told_line_by_line(shared: SharedDatabases, tmp_path: Path) -> None:
    articles = [{"source": "public.t", "colums": ["id"]}, {"source": "public.narrow", "upd_cmd": "VCALL"}]
    uri = f"postgres://me:{quote(PASSWORD, safe='')}@h/d"
    file = publication_file(tmp_path, articles, publisher={"connection": uri}, subscribers=[])
    outcome = tranrepl("setup", file, environment=shared.environment())
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
    each = [f"{file}:{number}: {text}" for number, text in zip(numbers, said.values(), strict=True)]
    expected = [f"{file}: {len(said)} mistakes", *each]
    assert outcome.err.removeprefix("error: ").splitlines() == expected
    assert_kept_secret(outcome)


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
        "the table has no primary key (error 14088), and no unique index without NULLs in its place\n  → ALTER TABLE",
    ),
    (
        {"source": "public.two_keys", "columns": ["a", "v"]},
        "columns: primary key column b is left out (error 21250)\n  → add it to columns",
    ),
    ({"source": "public.seen"}, "Publisher bad_input_publisher: not an ordinary table (view)"),
    ({"source": "public.unlogged"}, "Publisher bad_input_publisher: not an ordinary table (unlogged table)"),
    (
        {"source": "public.wide"},
        "upd_cmd: the procedure would take 101 arguments, a PostgreSQL procedure takes 100\n  → upd_cmd: SQL",
    ),
    (
        {"source": "public.narrow"},
        'Subscriber reporting: table public.narrow has no column \'v\'\n  → ALTER TABLE "public"."narrow" ADD COLUMN',
    ),
    (
        {"source": "public.t2", "destination": "public.elsewhere"},
        'Subscriber reporting: table public.elsewhere is a view\n  → run at the Subscriber: ALTER TABLE "public"."else',
    ),
]
"""Articles, and what is said of each."""


def test_every_article_that_cannot_be_replicated_is_told_at_once(shared: SharedDatabases, tmp_path: Path) -> None:
    below = str(tmp_path / "purchasing.yaml" / "store")
    articles = [article for article, _ in ARTICLES]
    file = publication_file(tmp_path, articles, distributor={"connection": "distribution", "store": below})
    before = state_of(shared.databases)
    said = [f"distributor.store: '{below}': {file} is not a folder\n  → allowed: a path to write to"]
    said += [f"article {article['source']}: {problem}" for article, problem in ARTICLES]
    assert_refused(typed("setup", file, environment=shared.environment()), *said)
    outcome = typed("check", file, "--json", environment=shared.environment())
    assert (outcome.status, outcome.err) == (1, "")
    problems = json.loads(outcome.out)["problems"]
    texts = [f"{problem['message']}\n  → {problem['remedy']}" for problem in problems]
    assert all(part in text for part, text in zip(said, texts, strict=True))
    assert {problem["kind"] for problem in problems} == {"configuration"}
    assert_kept_secret(outcome)
    assert state_of(shared.databases) == before


@pytest.mark.parametrize("form", ["JSON", "URI"])
def test_a_wrong_password_is_refused(form: str, shared: SharedDatabases, tmp_path: Path) -> None:
    ends = shared.databases.publisher, shared.databases.distribution, shared.databases.subscriber
    wrong = connection_environment(replace(it, password=WRONG_PASSWORD) for it in ends)
    if form == "URI":
        wrong = {f"AIRFLOW_CONN_{it.connection_id.upper()}": _uri(it, WRONG_PASSWORD) for it in ends}
    before = state_of(shared.databases)
    outcome = typed("setup", publication_file(tmp_path, [{"source": "public.t"}]), environment=wrong)
    assert_refused(outcome, *[f'password authentication failed for user "hushed"\n  → {_LOGIN}'] * 3)
    for connection, error in zip(ends, outcome.errors, strict=True):
        assert error.startswith(f"connection {connection}: ")
    assert state_of(shared.databases) == before


def test_a_server_that_does_not_answer_is_told_with_its_address(shared: SharedDatabases, tmp_path: Path) -> None:
    ends = shared.databases.publisher, shared.databases.distribution, shared.databases.subscriber
    away = [replace(it, port=_closed_port()) for it in ends]
    file = publication_file(tmp_path, [{"source": "public.t"}])
    outcome = typed("setup", file, environment=connection_environment(away))
    assert_refused(outcome, *[_REACH] * 3)
    for connection, error in zip(away, outcome.errors, strict=True):
        assert error.startswith(f"connection {connection}: ")


@pytest.mark.parametrize("verb", ["run", "distribute", "status", "browse"])
def test_what_is_not_set_up_is_told_so(verb: str, shared: SharedDatabases, tmp_path: Path) -> None:
    before = state_of(shared.databases)
    file = publication_file(tmp_path, [{"source": "public.t"}])
    outcome = typed(verb, file, environment=shared.environment())
    assert outcome.status == 1
    assert outcome.errors == [
        f"distribution database bad_input_distribution is not set up for this version\n  → run `tranrepl setup {file}`"
    ]
    assert_kept_secret(outcome)
    assert state_of(shared.databases) == before
