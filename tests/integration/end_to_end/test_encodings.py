"""Databases of other encodings at each end: text arrives as it is, and what cannot is named by table and key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.in_process import deliver_stored, read_log_into_store, replicate_stored
from support.observed import distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.connections import Connection
from tranrepl.errors import DataError, ErrorKind

_TABLE = "CREATE TABLE t (id int, code text, text text, facts jsonb, hidden text, PRIMARY KEY (id, code))"
_COLUMNS = ["id", "code", "text", "facts"]

Encoded = Callable[[str, str], Connection]


@pytest.fixture
def encoded(postgres: PostgresServer) -> Iterator[Encoded]:
    """Yield a factory of databases of an encoding."""
    names: list[str] = []

    def create(end: str, encoding: str) -> Connection:
        names.append(f"{end}_{uuid4().hex[:8]}")
        with postgres.connect() as session:
            session.execute(f"CREATE DATABASE {names[-1]} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())
        return postgres.connection(names[-1], end)

    yield create
    for name in names:
        postgres.drop_database(name)


def _site(ends: Databases, tmp_path: Path, article: dict[str, object] | None = None, **subscription: object) -> Site:
    settings = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic", **subscription}
    articles = [{"source": "public.t", "columns": _COLUMNS, **(article or {})}]
    # The test itself speaks UTF-8; the jobs' connections say nothing of it.
    utf8 = {"client_encoding": "utf8"}
    own = replace(
        ends, publisher=replace(ends.publisher, options=utf8), subscriber=replace(ends.subscriber, options=utf8)
    )
    site = Site(own, tmp_path / "store", articles, SparkHere(), [settings])
    site.connections |= {"publisher": ends.publisher, "subscriber": ends.subscriber}
    site.at_publisher(_TABLE)
    return site


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
@pytest.mark.parametrize("end", ["publisher", "subscriber", "distribution"])
def test_text_arrives_whatever_the_encoding_of_an_end(
    databases: DatabasesFactory, encoded: Encoded, tmp_path: Path, encoding: str, end: str
) -> None:
    ends = replace(databases(), **{end: encoded(end, encoding)})
    site = _site(ends, tmp_path, {"filter": "text <> 'ÿ'"})
    site.at_publisher("INSERT INTO t SELECT n, 'ä' || n, 'é ' || n, '{\"ö\": 1}' FROM generate_series(1, 10) n")
    site.set_up()
    site.take_snapshot()
    assert differing_rows(site) == {}
    site.at_publisher(
        "INSERT INTO t SELECT n, 'ä' || n, 'ÿ', NULL FROM generate_series(11, 20) n",
        "UPDATE t SET text = 'ø' || text, code = 'ß' || code",
        "DELETE FROM t WHERE id % 3 = 0",
    )
    replicate_stored(site)
    site.validate().raise_error()
    assert differing_rows(site) == {}


def test_bytes_that_are_no_utf8_are_named(databases: DatabasesFactory, encoded: Encoded, tmp_path: Path) -> None:
    ends = replace(databases(), publisher=encoded("publisher", "SQL_ASCII"))
    site = _site(ends, tmp_path)
    site.set_up()
    site.take_snapshot()
    site.at_publisher("INSERT INTO t VALUES (1, 'a', 'é')")
    _execute_as_it_is(ends.publisher, b"INSERT INTO t VALUES (2, 'b', '\xe9')")
    site.at_publisher("INSERT INTO t VALUES (3, 'c', '')")
    assert site.probe_log() is None
    result = read_log_into_store(site)
    error = result.error
    assert error is not None
    assert result.commands == 1
    assert (error.kind, error.database_code, error.article) == (ErrorKind.DATA, "22021", "public.t")
    assert "column text" in error.message
    assert error.key == "id = 2, code = b"
    assert "tranrepl reinitialize FILE" in (error.remedy or "")
    deliver_stored(site).raise_error()
    assert site.at_subscriber("SELECT id, text FROM t") == [(1, "é")]
    with pytest.raises(DataError):
        site.validate().raise_error()


def test_bytes_that_are_not_published_stop_nothing(
    databases: DatabasesFactory, encoded: Encoded, tmp_path: Path
) -> None:
    site = _site(replace(databases(), publisher=encoded("publisher", "SQL_ASCII")), tmp_path)
    _execute_as_it_is(site.databases.publisher, b"INSERT INTO t VALUES (1, 'a', 'x', NULL, '\xff')")
    site.set_up()
    site.take_snapshot()
    _execute_as_it_is(site.databases.publisher, b"UPDATE t SET hidden = '\xfe', text = 'y'")
    replicate_stored(site)
    assert site.at_subscriber("SELECT id, text FROM t") == [(1, "y")]


def test_a_snapshot_names_the_row_that_is_no_utf8_or_does_not_fit(
    databases: DatabasesFactory, encoded: Encoded, tmp_path: Path
) -> None:
    site = _site(replace(databases(), publisher=encoded("publisher", "SQL_ASCII")), tmp_path)
    site.at_publisher("INSERT INTO t SELECT n, 'c', 'é' FROM generate_series(1, 10) n")
    _execute_as_it_is(site.databases.publisher, b"UPDATE t SET text = E'one\\ttwo\\n\xe9' WHERE id = 5")
    site.set_up()
    with pytest.raises(DataError) as refused:
        site.take_snapshot()
    assert (refused.value.report.database_code, refused.value.report.article) == ("22021", "public.t")
    assert "id = 5, code = c" in refused.value.message
    site.at_publisher("UPDATE t SET text = 'é' WHERE id = 5", "UPDATE t SET text = E'é\\tö\\n' WHERE id = 7")
    site.at_subscriber("ALTER TABLE t ALTER text TYPE varchar(3)")
    with pytest.raises(DataError, match="column text: ") as refused:
        site.take_snapshot()
    assert refused.value.report.key == "id = 7, code = c"
    site.at_subscriber("ALTER TABLE t ALTER text TYPE text")
    site.take_snapshot()
    assert differing_rows(site) == {}


@pytest.mark.parametrize("apply", ["auto", "serial"])
def test_a_character_that_the_subscriber_lacks_is_named(
    databases: DatabasesFactory, encoded: Encoded, tmp_path: Path, apply: str
) -> None:
    site = _site(replace(databases(), subscriber=encoded("subscriber", "LATIN1")), tmp_path, apply=apply)
    site.set_up()
    site.take_snapshot()
    site.at_publisher("INSERT INTO t VALUES (1, 'a', 'é')", "INSERT INTO t VALUES (2, 'b', '€'), (3, 'c', 'x')")
    read_log_into_store(site).raise_error()
    error = deliver_stored(site).error
    assert error is not None
    assert (error.kind, error.database_code, error.article) == (ErrorKind.DATA, "22P05", "public.t")
    assert (error.command_id, error.key) == (1, "id = 2, code = b")
    assert site.at_subscriber("SELECT id FROM t") in ([], [(1,)])


def test_a_distribution_database_keeps_errors_that_it_lacks_characters_for(
    databases: DatabasesFactory, encoded: Encoded, tmp_path: Path
) -> None:
    site = _site(replace(databases(), distribution=encoded("distribution", "LATIN1")), tmp_path)
    site.set_up()
    site.take_snapshot()
    site.at_publisher("INSERT INTO t VALUES (1, '€', 'x')")
    read_log_into_store(site).raise_error()
    site.at_subscriber("INSERT INTO t VALUES (1, '€', 'x')")
    error = site.run_distribution("reporting").error
    assert error is not None
    assert error.shown_number == "2627 (23505)"
    ((text,),) = distribution_rows(site, "SELECT error_text FROM msrepl_errors")
    assert "\\u20ac" in str(text)


def _execute_as_it_is(connection: Connection, statement: bytes) -> None:
    with psycopg.connect(**connection.libpq_parameters("test"), autocommit=True) as session:  # type: ignore[arg-type]
        session.execute("SET client_encoding = 'SQL_ASCII'")
        session.execute(statement)
