"""The shell's verbs as a person types them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from conftest import DatabasesFactory
from support.databases import Databases
from support.shell import Outcome, publication_file, tranrepl, typed
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.errors import DataError
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.opening import open_log_reader

TABLES = """
    CREATE SCHEMA sales;
    CREATE TABLE sales.customer (id int PRIMARY KEY, name varchar(40) NOT NULL, note text);
    CREATE TABLE sales."Order Lines" (order_id int, line int, price numeric(9, 2), PRIMARY KEY (order_id, line));
"""
ARTICLES: list[dict[str, str]] = [
    {"source": "sales.customer"},
    {"source": 'sales."Order Lines"', "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
]
# A job that were started there would fail.
NOWHERE = ("--master", "spark://127.0.0.1:1")


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return databases with tables; the rest is done by the command."""
    site = Site(databases(migrated=False), tmp_path / "store", ARTICLES)
    site.at_publisher(TABLES)
    return site


def _done(outcome: Outcome) -> str:
    """Return what it printed. Only progress may stand on standard error, where it took long."""
    told = [line for line in outcome.err.splitlines() if not re.search(r": [\d,]+( of [\d,]+)? commands", line)]
    assert (outcome.status, told) == (0, []), outcome
    return outcome.out


# Usage


def test_help_and_wrong_use_end_with_their_status() -> None:
    text = _done(typed("run", "--help", environment={"COLUMNS": "80"}))
    assert "Example: tranrepl run dags/publications/purchasing.yaml" in text
    outcome = tranrepl("chekc", environment={"COLUMNS": "80"})
    assert (outcome.status, outcome.out) == (2, "")
    assert "No such command 'chekc'" in outcome.err


def test_a_file_that_is_not_there_is_told_with_status_1(tmp_path: Path) -> None:
    outcome = typed("check", tmp_path / "absent.yaml", environment={})
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.errors[0].startswith(f"{tmp_path}/absent.yaml: there is no such file")


def test_the_schema_is_that_of_a_publication_file(tmp_path: Path) -> None:
    schema = json.loads(_done(typed("schema", environment={})))
    document = yaml.safe_load(publication_file(tmp_path, ARTICLES).read_text(encoding="utf-8"))
    assert list(Draft202012Validator(schema).iter_errors(document)) == []
    assert _done(typed("--version", environment={})).startswith("tranrepl 0.")


# The whole way


def test_a_publication_is_checked_and_set_up(site: Site, tmp_path: Path) -> None:
    file = publication_file(tmp_path, ARTICLES)
    environment = {**site.databases.environment, "AIRFLOW_HOME": str(tmp_path / "no airflow")}
    assert _done(typed("check", file, environment=environment)) == (
        "purchasing: 2 articles, 1 subscription: no errors, no warnings\n"
    )
    checked = json.loads(_done(typed("check", file, "--json", environment=environment)))
    assert checked == {"problems": [], "warnings": [], "not_checked": [], "alerts": []}
    scripted = _done(typed("script", file, environment=environment))
    set_up = tranrepl("setup", file, environment=environment)
    assert (set_up.status, set_up.err) == (0, "")
    done = set_up.out.splitlines()
    subscriber, publisher = site.databases.subscriber, site.databases.publisher
    distribution = f"distribution database {site.databases.distribution.database}"
    procedures = ", ".join(f"sp_MS{it}_salescustomer" for it in ("ins", "upd", "del"))
    assert done == [
        f"  created the tables of {distribution}",
        f"  marked store {site.publication.distributor.store} as that of {distribution}",
        "  created the tables of Subscriber reporting",
        '  created tables sales.customer, sales."Order Lines" at Subscriber reporting',
        f"  created procedures {procedures} at Subscriber reporting",
        f"  created subscription reporting at {subscriber.database}",
        f"  created schema tranrepl at Publisher {publisher.database}",
        f"  made the secret that signs messages in the log at Publisher {publisher.database}",
        f"  created the functions that capture schema changes at Publisher {publisher.database}",
        f"  created the event triggers that capture schema changes at Publisher {publisher.database}",
        '  set REPLICA IDENTITY FULL on tables sales.customer, sales."Order Lines"',
        f"  created publication {_slot(site)} at Publisher {publisher.database}",
        f"  created replication slot {_slot(site)} at Publisher {publisher.database}",
        "purchasing: set up",
    ]
    assert typed("setup", file, environment=environment).out == "purchasing: nothing to do\n"
    # What is scripted is what setup made, and may be run by hand.
    assert scripted.startswith("-- Subscriber reporting, PostgreSQL\n")
    made = "SELECT proname, md5(prosrc) FROM pg_proc WHERE proname LIKE 'sp_MS%' ORDER BY 1"
    before = site.at_subscriber(made)
    site.at_subscriber('DROP PROCEDURE public."sp_MSins_salescustomer"', scripted)
    assert site.at_subscriber(made) == before
    assert len(before) == 3
    assert typed("script", file, "-s", "reporting", environment=environment).out == scripted
    (error,) = typed("script", file, "-s", "absent", environment=environment).errors
    assert error == "publication purchasing has no subscription 'absent'\n  → allowed: reporting"
    custom = typed("script", file, "--custom", environment=environment)
    assert (custom.status, custom.out) == (0, "")
    assert "no article calls a custom procedure: there is nothing to print" in custom.err


def test_a_missing_custom_procedure_is_named_and_its_skeleton_printed(site: Site, tmp_path: Path) -> None:
    articles = [{"source": "sales.customer", "upd_cmd": "XCALL audit", "ins_cmd": "NONE"}]
    file, environment = publication_file(tmp_path, articles), site.databases.environment
    assert "public.audit" not in typed("script", file, environment=environment).out
    checked = typed("check", file, environment=environment)
    assert checked.status == 1
    assert "warning: article sales.customer: ins_cmd: NONE also drops the INSERT" in checked.err
    assert 'no procedure that takes the call of "public"."audit"' in checked.err
    set_up = typed("setup", file, environment=environment)
    assert (set_up.status, set_up.out.splitlines()[-1]) == (0, "purchasing: set up")
    assert "needs attention: article sales.customer" in set_up.err
    assert f"`tranrepl script {file} --custom` prints a skeleton" in set_up.err
    skeleton = _done(typed("script", file, "--custom", environment=environment))
    assert '\n\nCREATE OR REPLACE PROCEDURE "public"."audit"("old_c1" ' in skeleton
    assert "20598" in skeleton
    site.at_subscriber(skeleton)
    again = typed("setup", file, environment=environment)
    assert (again.out, "needs attention" in again.err) == ("purchasing: nothing to do\n", False)


def test_a_failed_run_is_told_by_status(site: Site, tmp_path: Path) -> None:
    file, environment = publication_file(tmp_path, ARTICLES), site.databases.environment
    site.set_up()
    result = JobResult(error=DataError("the row was not found", remedy="load it").report)
    with open_log_reader(site.topology) as opened:
        opened.database.history.record_log_reader(opened.record, result)
    told = typed("status", file, environment=environment)
    lines = told.out.splitlines()
    assert told.status == 2
    assert any(line.split()[:3] == ["log", "reader", "Failed"] for line in lines)
    (error,) = [it for it, line in enumerate(lines) if line.startswith("  last error at 2")]
    assert lines[error].endswith(": the row was not found")
    assert lines[error + 1] == "    → load it"
    site.at_publisher(f"SELECT pg_drop_replication_slot('{_slot(site)}')")
    assert "no log is kept" in typed("status", file, environment=environment).out


def _slot(site: Site) -> str:
    query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    return str(site.at_publisher(query)[0][0])


def test_stored_commands_and_state_are_shown(site: Site, tmp_path: Path, here: SparkHere) -> None:
    site.spark = here
    file, environment = publication_file(tmp_path, ARTICLES), site.databases.environment
    site.set_up()
    status = json.loads(_done(typed("status", file, "--json", environment=environment)))
    assert (status["log_reader"]["slot"], status["log_reader"]["last_run"]) == ("ready", None)
    nothing = typed("browse", file, environment=environment)
    assert (nothing.status, nothing.out) == (0, "")
    assert nothing.err.startswith(f"no commands are stored yet: `tranrepl run {file}` stores changes")
    assert typed("browse", file, "--json", environment=environment).out == "[]\n"
    site.at_publisher(
        "INSERT INTO sales.customer VALUES (1, 'O''Hara', NULL), (2, 'Smith', '')",
        "UPDATE sales.customer SET note = 'x' WHERE id = 1",
        'INSERT INTO sales."Order Lines" VALUES (1, 1, 9.90)',
        "DELETE FROM sales.customer WHERE id = 2",
    )
    site.read_log().raise_error()

    def browse(*options: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(
            _done(typed("browse", file, "--json", *options, environment=environment))
        )
        return listed

    stored = browse()
    assert [(it["command_id"], it["article"], it["operation"], it["command"]) for it in stored] == [
        (1, "sales.customer", "INSERT", "{CALL [sp_MSins_salescustomer] (1,'O''Hara',NULL)}"),
        (2, "sales.customer", "INSERT", "{CALL [sp_MSins_salescustomer] (2,'Smith','')}"),
        (1, "sales.customer", "UPDATE", "{CALL [sp_MSupd_salescustomer] (,,'x',1,0x04)}"),
        (1, 'sales."Order Lines"', "INSERT", 'INSERT sales."Order Lines" (1,1,9.90)'),
        (1, "sales.customer", "DELETE", "{CALL [sp_MSdel_salescustomer] (2)}"),
    ]
    seqnos = [it["xact_seqno"] for it in stored]
    assert seqnos == sorted(seqnos)
    assert browse("--article", 'sales."Order Lines"') == stored[3:4]
    assert browse("--from", f"0x{seqnos[2]}") == stored[2:]
    assert browse("--from", f"0x{seqnos[2].lstrip('0')}") == stored[2:]
    assert browse("--to", seqnos[2]) == stored[:3]
    assert browse("--from", seqnos[2], "--to", f"0x{seqnos[3]}") == stored[2:4]
    assert browse("--limit", "2") == stored[:2]
    outside = typed("browse", file, "--to", "0x0000000000000001", environment=environment)
    held = f"commands of 0x{seqnos[0]} to 0x{seqnos[-1]} are stored"
    assert (outside.status, outside.err) == (0, f"no stored command is in this selection; {held}\n")
    # At any width each command stands whole in its line, below its transaction.
    lines = _done(typed("browse", file, environment={**environment, "COLUMNS": "40"})).splitlines()
    assert [it.split("  ")[0] for it in lines if it.startswith("0x")] == [f"0x{it}" for it in dict.fromkeys(seqnos)]
    assert [it.strip() for it in lines if it.startswith(" ")] == [
        f"{it['command_id']}  {it['command']}" for it in stored
    ]
    for options, said in (
        (("--from", "xyz"), "'xyz' is no xact_seqno\n  → allowed: hexadecimal digits"),
        (("--article", "sales.absent"), "no article 'sales.absent'\n  → allowed: sales.customer, sales."),
    ):
        outcome = typed("browse", file, *options, environment=environment)
        assert (outcome.status, outcome.out) == (1, "")
        assert said in outcome.errors[0]

    status = json.loads(_done(typed("status", file, "--json", environment=environment)))
    (subscription,) = status["subscriptions"]
    assert status["log_reader"]["registered_xact_seqno"] == seqnos[-1]
    assert status["log_reader"]["last_run"]["status"] == "succeed"
    assert (subscription["undelivered_transactions"], subscription["undelivered_commands"]) == (4, 5)
    text = _done(typed("status", file, environment={**environment, "COLUMNS": "80"}))
    assert f"0x{seqnos[-1]}" in text
    assert "5 commands" in text
    # Committed later than the bound, on whichever clock it is told: no Spark job is started.
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    for bound in (hour_ago.replace(tzinfo=None), hour_ago.astimezone(timezone(timedelta(hours=5)))):
        told = ["--committed-before", bound.isoformat(), "--json", *NOWHERE]
        results = json.loads(_done(typed("distribute", file, *told, environment=environment)))
        assert results["reporting"]["commands"] == 0
    site.deliver().raise_error()
    status = json.loads(_done(typed("status", file, "--json", environment=environment)))
    (subscription,) = status["subscriptions"]
    assert (subscription["watermark"], subscription["undelivered_commands"]) == (seqnos[-1], 0)
    assert subscription["delivered_commands"] == {"sales.customer": 4, 'sales."Order Lines"': 1}
    assert browse() == stored


# All that quoting could do to it.
_MARKER = "m@rk/er pass%41+w?rd#&"
_SPELLINGS = {_MARKER, quote(_MARKER), quote(_MARKER, safe=""), quote_plus(_MARKER)}


@pytest.fixture
def marked(site: Site) -> Iterator[Databases]:
    """Yield the databases by a role with a password that can be searched for."""
    ends = (site.databases.publisher, site.databases.subscriber, site.databases.distribution)
    execute(ends[0], f"CREATE ROLE marked SUPERUSER LOGIN PASSWORD '{_MARKER}'")
    yield Databases(*(replace(it, login="marked", password=_MARKER) for it in ends))
    execute(ends[0], "DROP ROLE marked")


@contextmanager
def _argument_lists() -> Iterator[set[str]]:
    """Collect the argument lists of every process seen meanwhile."""
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.3):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    seen.add((process / "cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " "))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


@pytest.mark.submit
def test_a_run_goes_all_the_way_through_spark_submit(
    site: Site, marked: Databases, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # One run with all that a person and Spark could get wrong on the way; its passwords show nowhere.
    temporary = tmp_path_factory.mktemp("temporary")
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "replication_support_only"}
    file = publication_file(tmp_path, ARTICLES, subscriptions=[{**subscription, "subscription_streams": 2}])
    modules = tmp_path_factory.mktemp("modules")
    (modules / "pandas.py").write_text("raise AssertionError('pandas is loaded')")
    environment = {
        **marked.environment,
        "PYTHONPATH": str(modules),
        "COLUMNS": "100",
        **dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS"), str(temporary)),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={temporary}",
    }
    site.set_up()
    site.at_publisher(
        "INSERT INTO sales.customer SELECT n, 'name' || n, NULL FROM generate_series(1, 50) n",
        "UPDATE sales.customer SET note = '' WHERE id <= 10",
    )
    with _argument_lists() as argument_lists:
        outcome = tranrepl("run", file, "--master", "local[2]", "--json", environment=environment, cwd=tmp_path)
    results = json.loads(_done(outcome))
    submitted = [it for it in argument_lists if "SparkSubmit" in it and str(temporary) in it and "/run.py " in it]
    assert len({it.partition(" --jobs ")[2] for it in submitted}) == 1, "one Spark application for both jobs"
    left_behind = [it.read_bytes().decode(errors="replace") for it in _files(tmp_path, temporary)]
    told = [*argument_lists, *left_behind, outcome.out, outcome.err]
    assert [it for it in _SPELLINGS if any(it in text for text in told)] == []
    assert list(results) == ["log reader", "reporting"]
    for result in results.values():
        assert (result["transactions"], result["commands"], result["error"]) == (2, 60, None)
        assert result["commands_by_article"] == {"sales.customer": 60}
    assert site.differences() == []
    assert sorted(it.name for it in tmp_path.iterdir()) == ["purchasing.yaml", "store"]

    # With nothing to read, no Spark job is started.
    verbs = {"run": ["log reader", "reporting"], "log-reader": ["log reader"], "distribute": ["reporting"]}
    for verb, steps in verbs.items():
        results = json.loads(_done(typed(verb, file, "--json", *NOWHERE, environment=environment)))
        assert {name: result["commands"] for name, result in results.items()} == dict.fromkeys(steps, 0)
    table = _done(typed("run", file, *NOWHERE, environment=environment))
    (row,) = [line for line in table.splitlines() if "log reader" in line]
    assert row.split()[:5] == ["log", "reader", "Idle", "0", "0"]
    runs = "SELECT runstatus, delivered_commands FROM {} ORDER BY id"
    for history in ("mslogreader_history", "msdistribution_history"):
        assert execute(site.databases.distribution, runs.format(history)) == [(2, 60), (4, 0), (4, 0), (4, 0)]


def _files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]
