"""Messages in the Publisher's log that only look like ours change nothing, whoever wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.errors import InsufficientPrivilege

from conftest import DatabasesFactory
from support.announced import signed
from support.continuous_reader import continuous_reader, wait_for
from support.databases import Databases, shared_databases
from support.embedded_postgres import PostgresServer
from support.least_rights import documented_rights, with_login
from support.observed import ITEM
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.admin.setup import set_up
from tranrepl.admin.trace import newest_tokens, post_token
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.results import JobResult
from tranrepl.publisher.postgres import message_secret

_ANYBODY = "anybody"
_WROTE = "the Publisher's log holds a message of prefix tranrepl.{} that is not signed with setup's secret"
_MESSAGES = """
SELECT convert_from(substr(data, 31), 'UTF8') FROM pg_logical_slot_peek_binary_changes(
  (SELECT slot_name FROM pg_replication_slots WHERE database = current_database() AND slot_name LIKE 'tranrepl%'),
  NULL, NULL, 'proto_version', '1', 'publication_names', 'none', 'messages', 'true')
 WHERE get_byte(data, 0) = ascii('M') AND position('tranrepl.schema'::bytea in data) = 11
"""
_COLUMN = (
    '"num": {num}, "name": "{name}", "type": "{type}", "oid": 23, "mod": -1, "attcollation": 0, "notnull": false, '
    '"generated": "", "ident": "", "default": null, "has_missing": false, "missing": null'
)

_MADE_IN_OUR_SCHEMA = """
CREATE SCHEMA tranrepl;
GRANT ALL ON SCHEMA tranrepl TO anybody;
SET ROLE anybody;
CREATE TABLE tranrepl.message_secret (inner_key bytea, outer_key bytea, replaced_at xid8);
CREATE FUNCTION tranrepl.announce(VARIADIC regclass[]) RETURNS int LANGUAGE sql AS 'SELECT 1';
RESET ROLE
"""


def _site(databases: Databases, folder: Path) -> Site:
    site = Site(databases, folder / "store", ["public.t"], SparkHere(), replicate_ddl=True, polling_interval=0.2)
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, v text)")
    site.set_up()
    return site


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = _site(databases(), tmp_path)
    site.at_publisher(f"DROP ROLE IF EXISTS {_ANYBODY}", f"CREATE ROLE {_ANYBODY} LOGIN PASSWORD 'anybody'")
    return site


@pytest.fixture
def anybody(site: Site) -> Connection:
    """Return the connection of somebody with CONNECT on the database alone."""
    return with_login(site.databases.publisher, _ANYBODY, "anybody")


def _emit(kind: str, text: str) -> str:
    return f"SELECT pg_logical_emit_message(true, 'tranrepl.{kind}', {text})"


def _run_warned(site: Site, kind: str = "schema") -> JobResult:
    """Read the log, of which one message is warned of, and deliver; all rows are there then."""
    read = site.read_log()
    read.raise_error()
    told = [it for it in read.schema_change_warnings if _WROTE.format(kind) in it]
    assert len(told) == 1
    assert set(told) <= set(read.notices)
    site.deliver().raise_error()
    assert site.differences() == []
    return read


def _oid(site: Site) -> int:
    return int(site.at_publisher("SELECT 't'::regclass::oid::bigint")[0][0])


def test_a_column_that_anybody_tells_of_is_not_made(site: Site, anybody: Connection) -> None:
    columns = [("id", "integer"), ("v", "text"), ("evil", "int; CREATE TABLE pwned (); --")]
    told = ", ".join(
        "{%s}" % _COLUMN.format(num=at, name=name, type=kind)  # noqa: UP031 — braces
        for at, (name, kind) in enumerate(columns, 1)
    )
    forged = (
        f'{{"v": 1, "event": "ddl_command_end", "tag": "ALTER TABLE", "xact": "9", "snapshot": "9:9:", "oid": '
        f'{_oid(site)}, "schema": "public", "name": "t", "kind": "r", "persistence": "p", "identity": "d", '
        f'"rowsecurity": false, "defaults_told": true, "key": null, "columns": [{told}], "unique": [{{"oid": 1, '
        '"name": "t_pkey", "primary": true, "identity": false, "immediate": true, "partial": false, "columns": "1"}], '
        '"definitions": null, "kept_values": null, "rewrite": null, "altered": null}'
    )
    execute(anybody, _emit("schema", f"$m${forged}$m$"))
    site.at_publisher("INSERT INTO t VALUES (1, 'a')")
    _run_warned(site)
    site.at_publisher("ALTER TABLE t ADD COLUMN more int DEFAULT 7", "INSERT INTO t VALUES (2, 'b', 8)")
    site.run()
    assert site.differences() == []
    assert site.at_subscriber("SELECT to_regclass('pwned')") == [(None,)]


def test_a_table_of_which_anybody_tells_that_it_left_stays(site: Site, anybody: Connection) -> None:
    (name,) = site.at_publisher("SELECT pubname FROM pg_publication")[0]
    unpublished = f'[{{"publication": "{name}", "schema": "public", "name": "t", "oid": {_oid(site)}}}]'
    told = f'{{"v": 1, "event": "sql_drop", "tag": "DROP TABLE", "unpublished": {unpublished}}}'
    execute(anybody, _emit("schema", f"'{told}'"))
    site.at_publisher("INSERT INTO t VALUES (1, 'a')")
    assert _run_warned(site).commands == 1


@pytest.fixture(scope="module")
def garbled(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Connection]]:
    """Yield a site whose log anybody garbles, and the connection of one who may insert."""
    with shared_databases(postgres, "garbled") as databases:
        site = _site(databases, tmp_path_factory.mktemp("garbled"))
        site.at_publisher("CREATE ROLE garbler LOGIN PASSWORD 'garbler'", "GRANT INSERT, SELECT ON t TO garbler")
        yield site, with_login(site.databases.publisher, "garbler", "garbler")
        site.at_publisher("DROP OWNED BY garbler", "DROP ROLE garbler")


@pytest.mark.parametrize("text", ["'x'", "'{}'", "''", "repeat('a', 5000000)", "repeat('0', 64) || '{}'"])
@pytest.mark.parametrize("kind", ["schema", "script", "tracer"])
def test_garbage_stops_nothing(garbled: tuple[Site, Connection], kind: str, text: str) -> None:
    site, garbler = garbled
    with _session(garbler) as session:
        session.execute("INSERT INTO t SELECT count(*), 'a' FROM t")
        session.execute(_emit(kind, text))
        session.execute("INSERT INTO t SELECT count(*), 'b' FROM t")
    assert _run_warned(site, kind).commands == 2


@contextmanager
def _session(connection: Connection) -> Iterator[psycopg.Connection[Any]]:
    parameters: dict[str, Any] = dict(connection.libpq_parameters("test"))
    with psycopg.connect(**parameters) as session:
        yield session


def test_a_message_that_is_copied_into_another_transaction_changes_nothing(site: Site) -> None:
    site.at_publisher("ALTER TABLE t ADD COLUMN a int")
    (told,) = [it for (it,) in site.at_publisher(_MESSAGES)]
    site.run()
    site.at_publisher("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN b int")
    site.at_publisher(_emit("schema", f"$m${told}$m$"), "INSERT INTO t VALUES (1, 'a', 2)")
    _run_warned(site)


def test_another_secret_signs_from_then_on(site: Site) -> None:
    former = site.at_publisher("SELECT inner_key, outer_key FROM tranrepl.message_secret")
    post_token(site.topology)
    said: list[str] = []
    set_up(site.topology, check(site.topology).tables, said.append, new_secret=True)
    assert [it for it in said if "secret" in it] == [
        f"changed the secret that signs messages in the log at Publisher {site.databases.publisher.database}"
    ]
    assert site.at_publisher("SELECT inner_key, outer_key FROM tranrepl.message_secret") != former
    site.at_publisher("ALTER TABLE t ADD COLUMN b int DEFAULT 2", "INSERT INTO t VALUES (1, 'a', 3)")
    _forge_with_former_secret(site)
    read = _run_warned(site)
    assert read.schema_changes == 1
    assert len(newest_tokens(site.topology, 9)) == 1


def _forge_with_former_secret(site: Site) -> None:
    """Write a message as one who knows the former secret, which signs nothing any more."""
    site.at_publisher(
        "CREATE TABLE stolen AS SELECT former_inner_key AS i, former_outer_key AS o FROM tranrepl.message_secret"
    )
    signed = "convert_to(concat('tranrepl.schema ', pg_current_xact_id()::xid, ' {}'), 'UTF8')"
    signature = f"encode(sha256(o || sha256(i || {signed})), 'hex')"
    site.at_publisher(f"SELECT pg_logical_emit_message(true, 'tranrepl.schema', {signature} || '{{}}') FROM stolen")


def test_another_secret_waits_until_what_the_former_one_signed_is_read(site: Site) -> None:
    def change() -> None:
        set_up(site.topology, check(site.topology).tables, lambda _: None, new_secret=True)

    post_token(site.topology)
    change()
    with pytest.raises(ConfigurationError, match="is not read up to the last change of the secret"):
        change()
    site.read_log().raise_error()
    change()
    assert len(newest_tokens(site.topology, 9)) == 1


def test_another_secret_waits_for_transactions_that_began_before(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def change() -> list[str]:
        said: list[str] = []
        set_up(site.topology, check(site.topology).tables, said.append, new_secret=True)
        return said

    def secret() -> list[Any]:
        return site.at_publisher("SELECT inner_key, replaced_at IS NULL FROM tranrepl.message_secret")

    monkeypatch.setattr(message_secret, "_WAIT_SECONDS", 0.1)
    with _session(site.databases.publisher) as repeatable:
        repeatable.isolation_level = IsolationLevel.REPEATABLE_READ
        repeatable.execute("SELECT 1")
        pid = repeatable.info.backend_pid
        with pytest.raises(ConfigurationError, match=rf"the transaction of process {pid} began before"):
            change()
        # So that its number is higher than all that were known by then.
        site.at_publisher("INSERT INTO t VALUES (1, 'a')")
        repeatable.execute("ALTER TABLE t ADD COLUMN b int DEFAULT 2")
        repeatable.execute("INSERT INTO t VALUES (2, 'b', 3)")
        repeatable.execute("PREPARE TRANSACTION 'altered'")
    changed = secret()
    with pytest.raises(ConfigurationError, match=r"prepared transaction 'altered' began before"):
        change()
    assert secret() == changed
    assert any("the former one stays valid" in it for it in check(site.topology).warnings)
    site.at_publisher("COMMIT PREPARED 'altered'")
    _read_of_one_change(site)
    assert any(it.startswith("ended the change of the secret") for it in change())
    assert not any("the former one stays valid" in it for it in check(site.topology).warnings)
    assert secret() == [(changed[0][0], False)]
    site.at_publisher("ALTER TABLE t ADD COLUMN c int DEFAULT 4", "INSERT INTO t VALUES (3, 'c', 5, 6)")
    _read_of_one_change(site)
    site.deliver().raise_error()
    assert site.differences() == []


def _read_of_one_change(site: Site) -> None:
    read = site.read_log()
    read.raise_error()
    assert (read.schema_changes, read.schema_change_warnings) == (1, ())


def test_a_secret_that_another_login_made_is_not_believed(site: Site) -> None:
    site.at_publisher(
        f'GRANT CREATE ON DATABASE "{site.databases.publisher.database}" TO {_ANYBODY}',
        "DROP SCHEMA tranrepl CASCADE",
        f"SET ROLE {_ANYBODY}; CREATE SCHEMA tranrepl; CREATE TABLE tranrepl.message_secret "
        "(inner_key bytea, outer_key bytea, former_inner_key bytea, former_outer_key bytea, replaced_at xid8); "
        "INSERT INTO tranrepl.message_secret VALUES ('a', 'b'); RESET ROLE",
        signed("schema", "'{}'"),
    )
    with pytest.raises(ConfigurationError, match="could sign messages in the log as ours") as caught:
        site.read_log().raise_error()
    with pytest.raises(ConfigurationError, match="could sign messages in the log as ours"):
        post_token(site.topology)
    site.at_publisher(*str(caught.value.report.remedy).splitlines()[1:])
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (1, 'a')")
    _run_warned(site)


def test_default_privileges_give_the_functions_to_nobody(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), replicate_ddl=True)
    site.at_publisher(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "DROP ROLE IF EXISTS callers",
        "CREATE ROLE callers",
        "ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO callers",
    )
    site.set_up()
    may = (
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'tranrepl'::regnamespace "
        "AND has_function_privilege('callers', p.oid, 'EXECUTE')"
    )
    assert site.at_publisher(may) == []
    # What its owner says later holds.
    site.at_publisher("GRANT EXECUTE ON FUNCTION tranrepl.announce TO callers")
    assert check(site.topology).problems == []
    site.at_publisher(
        "GRANT EXECUTE ON FUNCTION tranrepl.announce TO PUBLIC",
        "GRANT EXECUTE ON FUNCTION tranrepl.emit TO callers",
        "GRANT DELETE ON tranrepl.message_secret TO callers",
    )
    (problem,) = check(site.topology).problems
    assert "PUBLIC has rights on FUNCTION tranrepl.announce(regclass[])" in problem.message
    _, *statements = str(problem.report.remedy).splitlines()
    assert len(statements) == 3
    site.at_publisher(*statements)
    assert check(site.topology).problems == []
    site.at_publisher(
        "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM callers",
        "DROP OWNED BY callers",
        "DROP ROLE callers",
    )


def test_nobody_else_reads_the_secret_or_signs(site: Site, anybody: Connection) -> None:
    site.at_publisher("GRANT SELECT ON t TO anybody")
    for statement in (
        "SELECT * FROM tranrepl.message_secret",
        "SELECT tranrepl.announce('public.t')",
        "UPDATE tranrepl.message_secret SET inner_key = ''",
    ):
        with pytest.raises(InsufficientPrivilege):
            execute(anybody, statement)


def test_default_privileges_give_the_secret_to_nobody(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), replicate_ddl=True)
    site.at_publisher(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "DROP ROLE IF EXISTS readers",
        "CREATE ROLE readers",
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO readers, PUBLIC",
    )
    site.set_up()
    assert site.at_publisher(
        "SELECT DISTINCT a.grantee::regrole::text FROM pg_class c, aclexplode(c.relacl) a "
        "WHERE c.oid = 'tranrepl.message_secret'::regclass"
    ) == [("postgres",)]
    site.at_publisher("ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM readers, PUBLIC", "DROP ROLE readers")


@pytest.mark.parametrize(
    ("made", "mends"),
    [("SET ROLE anybody; CREATE SCHEMA tranrepl; RESET ROLE", 1), (_MADE_IN_OUR_SCHEMA, 2)],
)
def test_setup_takes_nothing_over_that_another_login_made(
    databases: DatabasesFactory, tmp_path: Path, made: str, mends: int
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), replicate_ddl=True)
    database = site.databases.publisher.database
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, v text)", f"DROP ROLE IF EXISTS {_ANYBODY}")
    site.at_publisher(f"CREATE ROLE {_ANYBODY} LOGIN PASSWORD 'anybody'")
    site.at_publisher(f'GRANT CREATE ON DATABASE "{database}" TO {_ANYBODY}', made)
    (problem,) = [it for it in check(site.topology).problems if "could sign messages" in it.message]
    with pytest.raises(ConfigurationError, match="could sign messages in the log as ours"):
        set_up(site.topology, check(site.topology).tables, lambda _: None)
    statements = str(problem.report.remedy).splitlines()[1:]
    assert len(statements) == mends
    site.at_publisher(*statements)
    site.set_up()
    site.at_publisher("ALTER TABLE t ADD COLUMN a int", "INSERT INTO t VALUES (1, 'a', 2)")
    site.run()
    assert site.differences() == []


def test_a_log_reader_without_the_right_says_what_to_grant(site: Site) -> None:
    site.at_publisher("ALTER ROLE anybody REPLICATION", "GRANT SELECT ON t TO anybody")
    limited = Site(
        replace(site.databases, publisher=with_login(site.databases.publisher, _ANYBODY, "anybody")),
        Path(site.publication.distributor.store),
        ["public.t"],
        SparkHere(),
        replicate_ddl=True,
    )
    site.at_publisher("INSERT INTO t VALUES (1, 'a')")
    with pytest.raises(ConfigurationError, match="may not read the secret that signs") as caught:
        limited.read_log().raise_error()
    (problem,) = [it for it in check(limited.topology).problems if "secret" in it.message]
    assert problem.report.remedy == caught.value.report.remedy
    site.at_publisher(*str(problem.report.remedy).splitlines()[1:])
    names = {"repl_publisher": _ANYBODY}
    site.at_publisher(*documented_rights("Publisher, where another login ran setup", "", names))
    limited.read_log().raise_error()
    post_token(limited.topology)
    limited.read_log().raise_error()
    assert len(newest_tokens(limited.topology, 9)) == 1


@pytest.mark.new_sessions
def test_a_continuous_log_reader_goes_on_over_them_and_knows_a_new_secret(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), replicate_ddl=True, polling_interval=0.2)
    site.at_publisher(ITEM)
    site.set_up()
    stored = "SELECT coalesce(sum(commands), 0)::int FROM msrepl_batches"

    def commands() -> int:
        return int(execute(site.databases.distribution, stored)[0][0])

    with continuous_reader(site) as reader:
        for n in range(1, 6):
            site.at_publisher(_emit("schema", "'x'"), f"INSERT INTO item VALUES ({n}, {n}, 'item')")
            wait_for(lambda n=n: commands() >= n, 20.0)  # type: ignore[misc]
        set_up(site.topology, check(site.topology).tables, lambda _: None, new_secret=True)
        _forge_with_former_secret(site)
        site.at_publisher("INSERT INTO item VALUES (8, 8, 'item')")
        wait_for(lambda: commands() >= 6, 20.0)
        site.at_publisher("ALTER TABLE item ADD COLUMN more int DEFAULT 7", "INSERT INTO item VALUES (9, 9, 'i', 8)")
        wait_for(lambda: commands() >= 8, 20.0)
        result = reader.stop()
    assert result.error is None
    assert len([it for it in result.schema_change_warnings if _WROTE.format("schema") in it]) == 1
    site.deliver().raise_error()
    assert site.differences() == []
