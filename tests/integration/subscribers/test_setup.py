"""What check finds and setup creates at Subscribers that are not PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support.command_history import Column, History, registered, seqno, table_description
from support.mariadb import MariaDbServer
from support.subscribers import KEY, Kind, Site
from tranrepl.connections import Connection, from_environment
from tranrepl.errors import ConfigurationError, CustomProcedureError, ErrorKind, TransientError
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.procedure_names import Scripted
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import SubscriptionPosition

VENDOR = [Column("id", "integer", key=1), Column("name", "character varying(40)", not_null=True)]
NAME = TableName("public", "vendor")
_PASSWORD = "s3cr3t-wrong"  # noqa: S105 — of nobody


@pytest.fixture
def procedures(mariadb: MariaDbServer, mariadb_database: str) -> Site:
    """Return a MariaDB site that applies by procedures."""
    connection = mariadb.connection(mariadb_database)
    kind = Kind("mariadb", {}, "mariadb procedures")
    return Site(kind, connection, lambda *it: mariadb.execute(*it, database=mariadb_database), mariadb_database)


def _vendor(site: Site, **settings: Any) -> tuple[Article, TableDescription]:
    article = Article.model_validate({"source": NAME, "destination": TableName(site.schema, "vendor"), **settings})
    return article, table_description(NAME, VENDOR)


def _custom_problems(site: Site, **settings: Any) -> list[CustomProcedureError]:
    article, table = _vendor(site, **settings)
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        return list(subscriber.custom_problems(registered(article, table, 1), table))


def test_setup_may_run_again(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR)
    site.deliver(History().insert(vendor, ["1", "one"])).raise_error()
    article, table = _vendor(site, **site.kind.commands)
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        subscriber.set_up_tables()
        assert subscriber.set_up_destination(article, table) == []
        assert subscriber.set_up_procedures([vendor]) == []
        assert subscriber.set_up_watermark() == []
        assert subscriber.position() == SubscriptionPosition(seqno(1))
        assert subscriber.find_watermark() == seqno(1)


def test_a_subscription_that_is_not_set_up_says_so(plain_site: Site) -> None:
    site = plain_site
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        assert subscriber.find_watermark() is None
        with pytest.raises(ConfigurationError, match="not set up in database") as caught:
            subscriber.position()
    assert caught.value.report.remedy == "run `tranrepl setup FILE`"


def test_tables_of_another_program_are_not_taken_for_ours(procedures: Site) -> None:
    procedures.execute("CREATE TABLE msreplication_subscriptions (publisher varchar(20), publication varchar(20))")
    with (
        dialect_of(procedures.connection).subscriber(procedures.connection, KEY, "test") as subscriber,
        pytest.raises(ConfigurationError, match="SQL Server's own replication"),
    ):
        subscriber.set_up_tables()


def test_a_missing_and_a_generated_column_are_found(plain_site: Site) -> None:
    site = plain_site
    if site.kind.database == "postgres":
        pytest.skip("the tests of PostgreSQL have it")
    generated = "AS (id * 2)" if site.kind.database == "mssql" else "int GENERATED ALWAYS AS (id * 2) STORED"
    site.execute(f"CREATE TABLE vendor (id int PRIMARY KEY, twice {generated})")
    article = _vendor(site, **site.kind.commands)[0]
    table = table_description(NAME, [*VENDOR, Column("twice", "integer")])
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        problems = [problem.message for problem in subscriber.article_problems(article, table)]
    assert len(problems) == 2
    assert "has no column 'name'" in problems[0]
    assert "column 'twice'" in problems[1]
    assert "is generated" in problems[1]


def test_an_edited_procedure_stays_until_its_table_changes(procedures: Site) -> None:
    site = procedures
    vendor = site.article("vendor", VENDOR)
    drop = "DROP PROCEDURE sp_MSdel_" + f"{site.schema}vendor"
    site.execute(drop, f"CREATE PROCEDURE sp_MSdel_{site.schema}vendor(IN pkc1 int) DO 1")
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        assert subscriber.set_up_procedures([vendor]) == [
            f"left procedure sp_MSdel_{site.schema}vendor alone: it was edited by hand"
        ]
        site.execute("ALTER TABLE vendor MODIFY name varchar(80) NOT NULL")
        done = subscriber.set_up_procedures([vendor])
    assert [(it.split()[0], it.split()[2][:9]) for it in done] == [("created", "sp_MSins_"), ("left", "sp_MSdel_")]
    assert f", sp_MSupd_{site.schema}vendor at " in done[0]


def test_a_custom_procedure_is_called_in_place_of_a_generated_one(procedures: Site) -> None:
    site = procedures
    site.execute(
        "CREATE TABLE audit (id int AUTO_INCREMENT PRIMARY KEY, what varchar(100) CHARACTER SET utf8mb4)",
        "CREATE PROCEDURE `audit update`(a int, b varchar(40), c int, d varchar(40)) "
        "INSERT INTO audit (what) VALUES (CONCAT_WS(' ', a, b, c, d))",
    )
    vendor = site.article("vendor", VENDOR, upd_cmd='XCALL "audit update"')
    assert _custom_problems(site, upd_cmd='XCALL "audit update"') == []
    history = History().insert(vendor, ["1", "one"]).update(vendor, ["1", "one"], ["1", "zwölf"])
    assert site.deliver(history).error is None
    assert site.rows("audit", "what") == [("1 one 1 zwölf",)]
    assert site.rows("vendor") == [(1, "one")]


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        (None, "does not exist; it is called with 1 arguments"),
        ("(a int, b int) DO 1", "takes 2 arguments; it is called with 1"),
        ("(a int) BEGIN DELETE FROM vendor WHERE id = a; COMMIT; END", "ends the transaction"),
    ],
)
def test_a_custom_procedure_that_cannot_be_called_is_found(
    procedures: Site, declaration: str | None, problem: str
) -> None:
    if declaration is not None:
        procedures.execute(f"CREATE PROCEDURE remove_vendor{declaration}")
    (found,) = _custom_problems(procedures, del_cmd="CALL remove_vendor")
    assert problem in found.message
    assert "remove_vendor" in found.message


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        ("SELECT 'it\\'s'; COMMIT;", True),
        ("SELECT 'it\\'; COMMIT; --';", False),
        ("SELECT 'it''s; COMMIT;';", False),
        ('SELECT "COMMIT", `id` AS `a``b; COMMIT` FROM vendor;', False),
        ("/*! COMMIT */;", True),
        ("/*M!100300 ROLLBACK */;", True),
        ("/*!99999999 COMMIT */ DO 1;", False),
        ("/* COMMIT */ DO 1; # COMMIT\n DO 2; -- COMMIT\n", False),
        ("DO 5--1; COMMIT;", True),
        ("SAVEPOINT one; ROLLBACK TO one; ROLLBACK WORK TO SAVEPOINT one;", False),
        ("START TRANSACTION; DO 1;", True),
        ("REPLACE INTO vendor VALUES (1, 'a;b'), (2, 'it''s; COMMIT');", False),
    ],
)
def test_a_procedure_that_ends_the_transaction_is_found_by_its_text(procedures: Site, body: str, ends: bool) -> None:
    procedures.execute(f"CREATE PROCEDURE remove_vendor(a int) BEGIN {body} END")
    problems = _custom_problems(procedures, del_cmd="CALL remove_vendor")
    assert ["ends the transaction" in it.message for it in problems] == [True] * ends


@pytest.mark.parametrize(
    ("sql_mode", "body", "ends"),
    [
        ("NO_BACKSLASH_ESCAPES", "SELECT 'it\\'; COMMIT;", True),
        ("NO_BACKSLASH_ESCAPES", "SELECT 'it\\; COMMIT;';", False),
        ("ANSI_QUOTES", 'SELECT 1 AS "a\\"; COMMIT;', True),
        ("", 'SELECT 1 AS "a\\"; COMMIT;";', False),
    ],
)
def test_a_procedures_text_is_read_by_the_mode_it_was_made_in(
    procedures: Site, sql_mode: str, body: str, ends: bool
) -> None:
    procedures.execute(f"SET sql_mode = '{sql_mode}'", f"CREATE PROCEDURE remove_vendor(a int) BEGIN {body} END")
    assert len(_custom_problems(procedures, del_cmd="CALL remove_vendor")) == ends


def test_the_skeleton_of_a_custom_procedure_works(procedures: Site) -> None:
    site = procedures
    article, table = _vendor(site, upd_cmd="MCALL my_update")
    made = registered(article, table, 1)
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        drop, create = subscriber.scripts(made, table, Scripted.CUSTOM)
    vendor = site.article("vendor", VENDOR, upd_cmd="MCALL my_update")
    site.execute(drop, create)
    assert _custom_problems(site, upd_cmd="MCALL my_update") == []
    history = History().insert(vendor, ["1", "one"]).update(vendor, ["1", "one"], ["2", "two"])
    history.update(vendor, ["9", "x"], ["9", "y"])
    error = site.deliver(history).error
    assert error is not None
    assert (error.number, error.command_id) == ("20598", 3)


def test_a_procedure_that_commits_fails_clearly(procedures: Site) -> None:
    site = procedures
    vendor = site.article("vendor", VENDOR, del_cmd="CALL hidden")
    site.execute("CREATE PROCEDURE inner_one() COMMIT", "CREATE PROCEDURE hidden(a int) BEGIN CALL inner_one(); END")
    error = site.deliver(History().insert(vendor, ["1", "one"]).delete(vendor, ["1", "one"])).error
    assert error is not None
    assert error.kind is ErrorKind.CONFIGURATION
    assert "ended the transaction by itself" in error.message


def test_an_error_that_a_trigger_signals_is_a_data_error_of_its_command(procedures: Site) -> None:
    site = procedures
    vendor = site.article("vendor", VENDOR)
    site.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON vendor FOR EACH ROW BEGIN IF NEW.id = 2 THEN "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no two'; END IF; END"
    )
    error = site.deliver(History().insert(vendor, ["1", "one"]).insert(vendor, ["2", "two"])).error
    assert error is not None
    assert (error.kind, error.shown_number, error.command_id) == (ErrorKind.DATA, "50000 (1644)", 2)
    assert "no two" in error.message


# Connections


def _connect(connection: Connection) -> None:
    with dialect_of(connection).subscriber(connection, KEY, "test") as subscriber:
        subscriber.find_watermark()


def test_a_refused_login_is_an_error_without_the_password(mariadb: MariaDbServer, mariadb_database: str) -> None:
    connection = replace(mariadb.connection(mariadb_database), password=_PASSWORD)
    with pytest.raises(ConfigurationError, match="Access denied") as caught:
        _connect(connection)
    assert _PASSWORD not in repr(caught.value) + str(caught.value) + repr(caught.value.__cause__)
    with pytest.raises(ConfigurationError, match="Unknown database"):
        _connect(mariadb.connection("nowhere"))
    with pytest.raises(ConfigurationError, match="names no database"):
        _connect(replace(connection, database=None))


def test_options_of_airflows_mysql_hook_are_taken_and_what_has_no_use_is_named(
    mariadb: MariaDbServer, mariadb_database: str
) -> None:
    mariadb.execute("CREATE USER IF NOT EXISTS 's o@k%'@localhost IDENTIFIED BY 'p@ss/:é'")
    mariadb.execute(f"GRANT ALL ON `{mariadb_database}`.* TO 's o@k%'@localhost")
    ((socket,),) = mariadb.execute("SELECT CONCAT(@@datadir, @@socket)")
    extra = {
        "unix_socket": socket,
        "ssl_mode": "DISABLED",
        "init_command": "SET @given = 1",
        "charset": "latin1",
        "cursor": "SSCursor",
        "local_infile": True,
        "no_such_option": 1,
    }
    uri = f"mysql://s%20o%40k%25:p%40ss%2F%3A%C3%A9@localhost:1/{mariadb_database}?__extra__={quote(json.dumps(extra))}"
    connection = from_environment("reporting", {"AIRFLOW_CONN_REPORTING": uri})
    dialect = dialect_of(connection)
    assert list(dialect.unused_options(connection)) == ["charset", "cursor", "local_infile", "no_such_option"]
    _connect(connection)


def test_tls_that_a_hooks_extra_asks_for_is_asked_of_the_server(mariadb: MariaDbServer, mariadb_database: str) -> None:
    connection = replace(mariadb.connection(mariadb_database), options={"ssl_mode": "REQUIRED"})
    ((has_tls,),) = mariadb.execute("SELECT @@have_ssl")
    if has_tls == "YES":
        _connect(connection)
        return
    with pytest.raises(TransientError, match="SSL"):
        _connect(connection)


def test_a_server_that_is_not_there_is_transient(mariadb: MariaDbServer) -> None:
    with pytest.raises(TransientError, match="check host"):
        _connect(replace(mariadb.connection("x"), port=1))


@pytest.mark.parametrize("kind", ["nosuchdatabase", "oracle"])
def test_a_kind_without_dialect_or_driver_is_a_configuration_error(kind: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _connect(Connection("subscriber", kind, "127.0.0.1", 1, "me", _PASSWORD, "x"))
    assert _PASSWORD not in str(caught.value)


def test_a_sqlite_file_that_cannot_be_written_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unable to open"):
        _connect(Connection("subscriber", "sqlite", database=str(tmp_path / "no" / "such.db")))


def test_a_connection_that_is_lost_is_transient_and_nothing_stays(
    mariadb: MariaDbServer, procedures: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site = procedures
    vendor = site.article("vendor", VENDOR, del_cmd="CALL die")
    site.execute("CREATE PROCEDURE die(a int) BEGIN KILL CONNECTION_ID(); END")
    history = History().insert(vendor, ["1", "one"])
    history.transaction().insert(vendor, ["2", "two"]).delete(vendor, ["1", "one"])
    result = site.deliver(history, transactions=1)
    assert result.error is not None
    assert result.error.kind is ErrorKind.TRANSIENT
    assert site.rows("vendor") == [(1, "one")]
    assert site.watermark() == seqno(1)
    assert [it.getMessage() for it in caplog.records if not it.name.startswith("tranrepl")] == []


def test_a_row_that_another_session_keeps_locked_is_transient(mariadb: MariaDbServer, procedures: Site) -> None:
    site = procedures
    vendor = site.article("vendor", VENDOR)
    site.deliver(History().insert(vendor, ["1", "one"])).raise_error()
    history = History(xact=1).transaction().insert(vendor, ["2", "two"]).update(vendor, ["1", "one"], ["1", "uno"])
    with mariadb.connect(site.schema) as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM vendor WHERE id = 1 FOR UPDATE")
        error = site.deliver(history, seqno(1), options=ApplierOptions(lock_timeout_seconds=1)).error
    assert error is not None
    assert (error.kind, error.shown_number) == (ErrorKind.TRANSIENT, "1222 (1205)")
    assert site.rows("vendor") == [(1, "one")]
    assert site.deliver(history, site.watermark()).error is None
    assert site.rows("vendor") == [(1, "uno"), (2, "two")]
