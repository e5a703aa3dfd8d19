"""Articles by pattern: tables of a schema that one entry of the file names, made before setup or after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.continuous_delivery import delivering
from support.continuous_reader import continuous_reader
from support.continuous_run import written
from support.databases import connection_environment
from support.mariadb import MariaDbServer
from support.observed import distribution_rows, wait_until
from support.publishers import new_mariadb_database
from support.shell import typed
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS
from support.whole_run import good_run, whole_run
from tranrepl.admin.articles_of_file import registered_articles
from tranrepl.admin.check import check
from tranrepl.admin.joining_tables import joining_new_tables
from tranrepl.admin.run import LOG_READER
from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.jobs.requests import Repair, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Article, SyncType
from tranrepl.snapshot.without_spark import run_without_spark
from tranrepl.topology import Topology

_TABLES = (
    "CREATE SCHEMA sales",
    "CREATE SCHEMA archive",
    'CREATE TABLE sales.orders (id int PRIMARY KEY, v text, "note*" text)',
    'CREATE TABLE sales."Order Lines" (id int PRIMARY KEY, v text)',
    "CREATE TABLE sales.parted (id int PRIMARY KEY, photo oid) PARTITION BY RANGE (id)",
    "CREATE TABLE sales.parted_1 PARTITION OF sales.parted FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE sales.own (id int PRIMARY KEY, v text)",
    "CREATE TABLE sales.tmp_1 (id int PRIMARY KEY)",
    "CREATE TABLE sales.keyless (id int)",
    "CREATE VIEW sales.seen AS SELECT 1 AS id",
)
_ENTRIES: list[dict[str, Any]] = [
    {"source": "sales.*", "exclude": ["sales.tmp_*"], "destination": "archive.*", "new_tables": "join"},
    {"source": "sales.own", "destination": "archive.mine", "ins_cmd": "SQL"},
]
_MADE = "CREATE TABLE sales.later (id int PRIMARY KEY, v text)"
_FILLED = "INSERT INTO sales.later VALUES (1, 'before it joined')"


def _site(databases: DatabasesFactory, tmp_path: Path, *changed: dict[str, Any], **settings: Any) -> Site:
    entries = [{**entry, **(changed[at] if at < len(changed) else {})} for at, entry in enumerate(_ENTRIES)]
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    file = {"replicate_ddl": True, **settings}
    site = Site(databases(), tmp_path / "store", entries, SparkHere(), [subscription], **file)
    site.at_publisher(*_TABLES)
    site.at_subscriber("CREATE SCHEMA archive")
    site.set_up()
    return site


def _copied(site: Site) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of each table at the Subscriber."""
    tables = site.at_subscriber(
        "SELECT relname FROM pg_class WHERE relnamespace = 'archive'::regnamespace AND relkind = 'r'"
    )
    return {name: site.at_subscriber(f'TABLE archive."{name}" ORDER BY 1') for (name,) in tables}


def _registered(site: Site) -> set[str]:
    with site.topology.distributor() as database:
        return {str(it.source) for it in registered_articles(site.topology, database)}


def test_each_table_that_a_pattern_names_is_replicated_and_new_ones_join(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.at_publisher(
        "INSERT INTO sales.orders VALUES (1, 'one')",
        "INSERT INTO sales.\"Order Lines\" VALUES (1, 'line')",
        "INSERT INTO sales.parted VALUES (1, 12)",
        "INSERT INTO sales.own VALUES (1, 'own')",
        "INSERT INTO sales.tmp_1 VALUES (1)",
    )
    good_run(site)
    rows = {"orders": [(1, "one", None)], "Order Lines": [(1, "line")], "parted": [(1, 12)], "mine": [(1, "own")]}
    assert _copied(site) == rows

    site.at_publisher(
        _MADE, _FILLED, "CREATE TABLE sales.tmp_2 (id int PRIMARY KEY)", "CREATE TABLE sales.heap (id int)"
    )
    notices = good_run(site)[LOG_READER].notices
    assert any("sales.later" in it for it in notices)
    site.at_publisher("UPDATE sales.later SET v = 'after' WHERE id = 1", "INSERT INTO sales.later VALUES (2, 'two')")
    assert good_run(site)[LOG_READER].notices == ()
    assert _copied(site) == {**rows, "later": [(1, "after"), (2, "two")]}

    # Renamed, it is published as before; dropped, it leaves, and the others go on.
    site.at_publisher("ALTER TABLE sales.later RENAME TO tmp_later", "INSERT INTO sales.tmp_later VALUES (3, 'three')")
    good_run(site)
    site.at_publisher("INSERT INTO sales.orders VALUES (2, 'two')", 'DROP TABLE sales.own, sales."Order Lines"')
    (asked,) = (it for it in check(site.topology).warnings if "sales.later" in it)
    assert "give it an entry of its own: write `source: sales.tmp_later` and `destination: archive.later`" in asked
    given = Article.model_validate({"source": "sales.tmp_later", "destination": "archive.later"})
    site.publication = site.publication.model_copy(update={"articles": [site.publication.articles[0], given]})
    site.set_up()
    good_run(site)
    assert _copied(site)["later"] == [(1, "after"), (2, "two"), (3, "three")]
    assert _copied(site)["orders"] == [(1, "one", None), (2, "two", None)]
    assert _registered(site) == {"sales.orders", "sales.parted", "sales.tmp_later"}
    assert site.validate(repair=Repair.NONE).error is None


def test_a_table_of_mariadb_joins_too(
    databases: DatabasesFactory, tmp_path: Path, publishing: Callable[[str], MariaDbServer]
) -> None:
    server = publishing("mariadb")
    shop = new_mariadb_database(server)
    entries = [{"source": f"{shop}.*", "destination": "public.*", "new_tables": "join", **STATEMENTS}]
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    ends = replace(databases(), publisher=server.connection(shop, "publisher"))
    site = Site(ends, tmp_path / "store", entries, SparkHere(), [subscription], replicate_ddl=True)
    server.execute("CREATE TABLE orders (id int PRIMARY KEY, v varchar(20))", database=shop)
    site.set_up()
    good_run(site)
    server.execute(
        "CREATE TABLE later (id int PRIMARY KEY, v varchar(20))",
        "INSERT INTO later VALUES (1, 'before it joined')",
        "CREATE TABLE heap (id int)",
        database=shop,
    )
    good_run(site)
    assert site.at_subscriber("TABLE later") == [(1, "before it joined")]
    server.execute("UPDATE later SET v = 'after'", "INSERT INTO later VALUES (2, 'two')", database=shop)
    server.execute("DROP TABLE orders", database=shop)
    (notice,) = good_run(site)[LOG_READER].notices
    assert f"{shop}.orders: the table was dropped" in notice
    assert site.at_subscriber("TABLE later ORDER BY id") == [(1, "after"), (2, "two")]
    assert _registered(site) == {f"{shop}.later"}


@pytest.mark.parametrize("kind", ["postgres", "mariadb", pytest.param("mysql-9.7", marks=pytest.mark.slow)])
def test_tables_join_while_continuous_agents_run(
    kind: str, databases: DatabasesFactory, tmp_path: Path, publishing: Callable[[str], MariaDbServer]
) -> None:
    ends, schema = databases(), "sales"
    if kind != "postgres":
        server = publishing(kind)
        schema = new_mariadb_database(server)
        ends = replace(ends, publisher=server.connection(schema, "publisher"))
    entry = {"source": f"{schema}.*", "exclude": [f"{schema}.tmp_*"], "destination": "archive.*", **STATEMENTS}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    entries = [{**entry, "new_tables": "join"}]
    # At MariaDB and MySQL, where setup makes nothing for schema changes, new tables join without them, too.
    site = Site(ends, tmp_path / "store", entries, SparkHere(), [subscription], replicate_ddl=kind == "postgres")
    columns = "(id int PRIMARY KEY, v varchar(20))"
    if kind == "postgres":
        site.at_publisher("CREATE SCHEMA sales")
    site.at_publisher(f"CREATE TABLE {schema}.orders {columns}", f"CREATE TABLE {schema}.old (id int)")
    site.at_subscriber("CREATE SCHEMA archive")
    site.set_up()
    good_run(site)
    said: list[str] = []

    def take_snapshot(name: str) -> JobResult:
        request = SnapshotRequest(publication=site.publication, subscription=name)
        return run_without_spark(request, site.topology) or JobResult()

    def arrived(table: str, rows: int) -> bool:
        return table in _copied(site) and len(_copied(site)[table]) == rows

    def write(table: str, *numbers: int) -> None:
        site.at_publisher(*(f"INSERT INTO {schema}.{table} VALUES ({it}, 'x')" for it in numbers))

    with (
        continuous_reader(site),
        delivering(site) as delivery,
        joining_new_tables(lambda: site.topology, ["reporting"], take_snapshot, said.append),
    ):
        goes_on = partial(wait_until, still_possible=lambda: not delivery.job.done())
        # Some have rows before they join, some while they do, and one is only there for a moment.
        for it in range(4):
            site.at_publisher(f"CREATE TABLE {schema}.burst{it} {columns}")
            write(f"burst{it}", 1, 2)
        if kind == "postgres":
            site.at_publisher(f"CREATE TABLE sales.one {columns}; INSERT INTO sales.one VALUES (1, 'x')")
        # What is there at the first look, setup has told of.
        goes_on(lambda: "burst0" in _copied(site))
        site.at_publisher(
            f"CREATE TABLE {schema}.dumped (id int NOT NULL, v varchar(20))",
            f"CREATE TABLE {schema}.tmp_1 {columns}",
            f"CREATE TABLE {schema}.moment {columns}",
            f"DROP TABLE {schema}.moment",
        )
        write("dumped", 1)
        write("orders", 1)
        for number in range(3, 60):
            write(f"burst{number % 4}", number)
            site.at_publisher(f"UPDATE {schema}.burst{number % 4} SET v = CONCAT(v, 'y') WHERE id = {number - 4}")
            time.sleep(0.1)
        goes_on(lambda: any("dumped" in it for it in said))
        assert "dumped" not in _copied(site)
        site.at_publisher(f"ALTER TABLE {schema}.dumped ADD PRIMARY KEY (id)")
        goes_on(lambda: arrived("dumped", 1))
        write("dumped", 2)
        goes_on(lambda: arrived("dumped", 2))
        goes_on(lambda: site.at_subscriber("SELECT 1 FROM archive.burst3 WHERE id = 59") != [])
    assert not any("old" in it for it in said)
    assert len([it for it in said if "dumped" in it and it.startswith("not published: ")]) == 1
    good_run(site)
    tables = ["orders", "dumped", *(f"burst{it}" for it in range(4)), *(["one"] if kind == "postgres" else [])]
    rows = {it: site.at_publisher(f"SELECT * FROM {schema}.{it} ORDER BY 1") for it in tables}
    assert _copied(site) == rows
    assert _registered(site) == {f"{schema}.{it}" for it in tables}


def test_what_cannot_be_published_is_said_once_and_stops_nothing(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    said = check(site.topology).warnings
    assert any("sales.parted: photo: where a value is the number of a large object" in it for it in said)
    warnings = [it for it in said if "cannot be published" in it]
    assert len(warnings) == 1
    assert "sales.keyless" in warnings[0]
    assert "ADD PRIMARY KEY" in warnings[0]
    assert "parted_1" not in warnings[0]
    # Once it is published, the same is an error.
    good_run(site)
    site.at_publisher("ALTER TABLE sales.orders DROP CONSTRAINT orders_pkey")
    assert any("sales.orders" in str(it) for it in check(site.topology).problems)


def test_a_new_table_is_reported_until_setup_publishes_it(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path, {"new_tables": "report"})
    good_run(site)
    site.at_publisher(_MADE, _FILLED)
    for _ in range(2):
        (notice,) = good_run(site)[LOG_READER].notices
        assert "sales.later" in notice
        assert "tranrepl setup FILE" in notice
    assert "later" not in _copied(site)
    site.set_up()
    assert good_run(site)[LOG_READER].notices == ()
    assert _copied(site)["later"] == [(1, "before it joined")]
    site.at_publisher("DROP TABLE sales.later")
    (notice,) = good_run(site)[LOG_READER].notices
    assert "sales.later: the table was dropped" in notice


def test_a_new_table_does_not_join_where_setup_could_not_work_or_would_do_more(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    good_run(site)
    site.at_publisher(_MADE, _FILLED)
    file = site.publication
    kept = [it.model_copy(update={"sync_type": SyncType.REPLICATION_SUPPORT_ONLY}) for it in file.subscriptions]
    more = [*file.subscriptions, file.subscriptions[0].model_copy(update={"name": "more"})]
    for edit, said in (
        ({"replicate_ddl": False}, "the file was edited"),
        ({"subscriptions": more}, "the file was edited"),
        ({"subscriptions": kept}, "`tranrepl setup FILE` publishes them"),
    ):
        site.publication = file.model_copy(update=edit)
        (notice,) = whole_run(site)[LOG_READER].notices
        assert said in notice
        assert "sales.later" not in _registered(site)
    assert site.at_publisher("SELECT 1 FROM pg_event_trigger WHERE evtname LIKE 'tranrepl%'")
    site.publication = file
    site.at_subscriber(
        "CREATE TABLE archive.later (id int PRIMARY KEY, v text)", "INSERT INTO archive.later VALUES (9, '')"
    )
    (notice,) = good_run(site)[LOG_READER].notices
    assert "sales.later" in notice
    assert "archive.later" in notice
    assert "sales.later" not in _registered(site)
    site.at_subscriber("DROP TABLE archive.later")
    # The file was edited, and not set up: that is not for a run to do.
    edited = site.publication
    entries = [edited.articles[0].model_copy(update={"exclude": []}), *edited.articles[1:]]
    site.publication = edited.model_copy(update={"articles": entries})
    site.at_publisher("ALTER TABLE sales.orders ADD COLUMN more int")
    good_run(site)
    assert "sales.later" not in _registered(site)
    # Nor while another run does it.
    with site.topology.distributor() as database:
        record = database.publications.get(site.publication.publication)
        with database.publications.publishing_tables(record):
            good_run(site)
    assert "sales.later" not in _registered(site)
    good_run(site)
    assert _registered(site) >= {"sales.later", "sales.tmp_1"}
    # Setup reads its list of tables once theirs are registered.
    path, ends = written(site, tmp_path), connection_environment(site.connections.values())
    with ThreadPoolExecutor() as shell, site.topology.distributor() as database:
        with database.publications.publishing_tables(record):
            setup = shell.submit(typed, "setup", path, environment=ends)
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            wait_until(lambda: distribution_rows(site, waiting) != [], lambda: not setup.done())
        assert setup.result().status == 0


def test_what_fails_while_a_table_joins_is_done_at_the_next_look_and_what_was_taken_out_does_not_join(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tranrepl.admin.joining_tables.LOOKED_EVERY_SECONDS", 0.2)
    monkeypatch.setattr("tranrepl.admin.joining_tables._REST", 0)
    site = _site(databases, tmp_path)
    good_run(site)
    stale, said, taken = site.topology, list[str](), list[str]()
    unreachable = iter([TransientError("the server starts")])
    failures = iter([ValueError("not foreseen"), TransientError("not now")])

    def topology() -> Topology:
        for failure in unreachable:
            raise failure
        return stale

    def take_snapshot(name: str) -> JobResult:
        for failure in failures:
            raise failure
        taken.append(name)
        return JobResult()

    with joining_new_tables(topology, ["reporting"], take_snapshot, said.append):
        wait_until(lambda: taken == ["reporting"])
        # Another file, which these agents have not read, was set up.
        pattern = Article.model_validate({**_ENTRIES[0], "exclude": ["sales.tmp_*", "sales.o*"]})
        articles = [pattern, *stale.publication.articles[1:]]
        site.publication = stale.publication.model_copy(update={"articles": articles})
        site.set_up()
        left = _registered(site)
        site.at_publisher(_MADE)
        wait_until(lambda: "sales.later" in _registered(site))
    assert "sales.orders" not in left
    assert _registered(site) == {*left, "sales.later"}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{"source": "nowhere.*"}], "no table matches nowhere.*"),
        ([{"source": "sales.keyless*"}], "no primary key"),
        ([{"source": "sales.or*"}, {"source": "sales.own", "destination": "sales.orders"}], "more than once"),
    ],
)
def test_patterns_that_no_publication_can_be_made_of(
    databases: DatabasesFactory, tmp_path: Path, entries: list[dict[str, Any]], said: str
) -> None:
    site = Site(databases(), tmp_path / "store", entries, SparkHere())
    site.at_publisher(*_TABLES)
    site.at_subscriber("CREATE SCHEMA sales")
    with pytest.raises(ConfigurationError, match=said.replace("*", r"\*")):
        site.set_up()
