"""Values of every built-in type arrive as they left, byte for byte in text form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer
from support.every_type import TYPES, change_every_value, differing_values, every_type_site, set_other_defaults
from support.in_process import replicate_stored
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.batching import staging


@pytest.mark.slow_after(1)
@pytest.mark.spark
@pytest.mark.parametrize("defaults", ["same", "other"])
def test_every_type_arrives_as_it_left(defaults: str, databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    site = every_type_site(databases(), tmp_path, spark)
    if defaults == "other":
        # Where names are found differs too.
        set_other_defaults(site.databases.publisher)
        site.set_up()
        set_other_defaults(site.databases.subscriber)
        site.at_subscriber(f'ALTER DATABASE "{site.databases.subscriber.database}" SET search_path = public')
    else:
        site.set_up()
    change_every_value(site)
    site.run()
    assert differing_values(site) == []


def test_every_type_arrives_out_of_an_array(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tables too wide for a staging table travel so.
    monkeypatch.setattr(staging, "_MOST_ARGUMENTS", 0)
    site = every_type_site(databases(), tmp_path, apply="serial")
    site.set_up()
    change_every_value(site)
    delivered = replicate_stored(site)
    assert (delivered.commands > 100, delivered.in_bulk) == (True, 0)
    assert differing_values(site) == []


def test_setup_creates_an_enumerated_type_and_gives_the_statement_of_another_one(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t", "public.u"])
    columns = "(id int PRIMARY KEY, n numeric(9, 2), m public.mood, p public.pair[])"
    site.at_publisher(TYPES, f"CREATE TABLE t {columns}", f"CREATE TABLE u {columns}")
    assert len(check(site.topology).problems) == 1
    with pytest.raises(ConfigurationError) as refused:
        site.set_up()
    assert refused.value.message == "Subscriber reporting has no type public.pair"
    statement, _, then = str(refused.value.report.remedy).removeprefix("run at the Subscriber: ").partition("; ")
    assert then.startswith("then `tranrepl setup FILE`")
    assert site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()") == []
    assert site.at_publisher("SELECT pubname FROM pg_publication") == []
    assert site.at_subscriber("SELECT to_regclass('public.t')") == [(None,)]
    site.at_subscriber(statement)
    assert "created type public.mood at Subscriber reporting" in site.set_up()
    attributes = (
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'public.pair'::regclass"
    )
    assert site.at_subscriber(attributes) == site.at_publisher(attributes)


def test_a_type_of_anothers_over_an_enumerated_one_that_setup_creates_is_refused(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    """Its casts and checks would run with our role's rights. Our own role needs the right to create types."""
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher(
        "CREATE SCHEMA kinds",
        "CREATE TYPE kinds.mood AS ENUM ('sad')",
        "CREATE DOMAIN own AS kinds.mood",
        "CREATE TABLE t (id int PRIMARY KEY, m kinds.mood, o own)",
    )
    role = f"mallory_{site.databases.subscriber.database}"
    site.at_subscriber(
        f"CREATE ROLE {role} LOGIN PASSWORD 'x'",
        f"GRANT CREATE ON SCHEMA public TO {role}",
        f"SET ROLE {role}; CREATE DOMAIN own AS text; RESET ROLE",
    )
    (problem,) = check(site.topology).problems
    assert f"type public.own belongs to role {role}" in problem.message
    site.at_subscriber(
        "ALTER DOMAIN own OWNER TO postgres", "CREATE SCHEMA kinds", f"GRANT USAGE ON SCHEMA kinds TO {role}"
    )
    subscriber = replace(site.databases.subscriber, login=role, password="x")  # noqa: S106 — of nobody
    site.connections["subscriber"] = subscriber
    grants = [problem.report.remedy or "" for problem in check(site.topology).problems]
    assert any('GRANT CREATE ON SCHEMA "kinds"' in it for it in grants)


def test_the_failing_command_is_named_whatever_the_defaults(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t"], SparkHere())
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, v int)")
    site.set_up()
    set_other_defaults(site.databases.subscriber)
    site.at_publisher("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    site.run()
    site.at_subscriber("DELETE FROM t WHERE id = 2")
    site.at_publisher("UPDATE t SET v = 5")
    site.read_log().raise_error()
    error = site.deliver().error
    assert error is not None
    assert (error.number, error.command_id, error.article) == ("20598", 2, "public.t")
    assert error.message.endswith("for Table 'public.t' with Primary Key(s): id = 2")
    assert site.at_subscriber("SELECT * FROM t ORDER BY id") == [(1, 1), (3, 3)]


_XML = ["'<a b=\"c\">&amp; <![CDATA[x]]></a>'", "'text <b/> more'", "'<?xml version=\"1.0\"?><a>é</a>'", "''"]


def test_xml_arrives_as_it_left(databases: DatabasesFactory, debian_postgres: PostgresServer, tmp_path: Path) -> None:
    # The embedded server is built without libxml.
    ends = databases(publisher=debian_postgres, subscriber=debian_postgres)
    site = Site(ends, tmp_path / "store", ["public.x"], SparkHere())
    site.at_publisher("CREATE TABLE x (id int PRIMARY KEY, v xml, vs xml[])")
    site.set_up()
    database = site.databases.subscriber.database
    site.at_subscriber(f'ALTER DATABASE "{database}" SET xmloption = document')
    site.at_publisher(
        *(f"INSERT INTO x VALUES ({at}, {value}, ARRAY[{value}, NULL]::xml[])" for at, value in enumerate(_XML)),
        "UPDATE x SET v = '<!DOCTYPE a><a/>' WHERE id = 1",
        "UPDATE x SET v = NULL WHERE id = 0",
        "DELETE FROM x WHERE id = 2",
    )
    site.run()
    assert site.differences() == []
