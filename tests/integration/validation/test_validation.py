"""Validation: what differs is found exactly, nothing where nothing differs; a repair makes both ends equal."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer
from support.shell import Outcome, publication_file, typed
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.errors import TransientError
from tranrepl.jobs.requests import Repair
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.validation_report import ArticleValidation
from tranrepl.postgres.compared_table import SnapshotPlace
from tranrepl.publisher.postgres.exported_snapshot import ExportedSnapshot
from tranrepl.publisher.postgres.publisher import PostgresPublisher
from tranrepl.validation import comparison, comparison_targets, job
from tranrepl.validation.comparison import Found

_COLUMNS = "id int PRIMARY KEY, region int NOT NULL, name text, note text, price numeric(9, 2), body text"
_ROWS = 200_000
_MIB = 1024 * 1024
_VALIDATIONS = int(os.environ.get("TRANREPL_VALIDATIONS", "10"))


def article_of(result: JobResult, source: str = "public.item") -> ArticleValidation:
    assert result.validation is not None, result.error
    return next(it for it in result.validation.articles if it.article == source)


def named(article: ArticleValidation) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(it.difference.value, ", ".join(map(str, it.key.values())), it.columns) for it in article.rows}


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> Site:
    return Site(databases(), tmp_path / "store", [{"source": "public.item", "filter": "region <> 0"}], spark)


def test_planted_differences_are_found_exactly_and_repaired(site: Site) -> None:
    """About 5 s."""
    rows = (
        f"SELECT g AS id, g % 3 AS region, 'name ' || g, CASE WHEN g % 2 = 0 THEN 'note' END, g / 7.0, "
        f"CASE WHEN g = 100000 THEN repeat('x', {_MIB}) END FROM generate_series(1, {_ROWS}) g"
    )
    site.at_publisher(f"CREATE TABLE item ({_COLUMNS})", f"INSERT INTO item {rows}")
    site.at_subscriber(
        f"CREATE TABLE item ({_COLUMNS})", f"INSERT INTO item SELECT * FROM ({rows}) it WHERE region <> 0"
    )
    site.set_up()
    assert site.validate().error is None

    site.at_subscriber(
        "DELETE FROM item WHERE id = 4",
        "INSERT INTO item VALUES (2000000, 1, 'extra')",
        "UPDATE item SET note = '' WHERE id = 7",
        "UPDATE item SET body = overlay(body placing 'y' from 700000) WHERE id = 100000",
        "UPDATE item a SET name = b.name FROM item b WHERE (a.id, b.id) IN ((10, 11), (11, 10))",
        # Outside of the filter: the Subscriber's whole table is the article's.
        "INSERT INTO item VALUES (3, 0, 'outside')",
    )
    planted = {
        ("missing", "4", ()),
        ("extra", "2000000", ()),
        ("extra", "3", ()),
        ("different", "7", ("note",)),
        ("different", "100000", ("body",)),
        ("different", "10", ("name",)),
        ("different", "11", ("name",)),
    }
    result = site.validate()
    found = article_of(result)
    assert named(found) == planted
    assert (found.missing, found.extra, found.different) == (1, 2, 4)
    assert result.error is not None
    assert result.error.number == "20574"

    repaired = site.validate(repair=Repair.APPLY)
    assert repaired.error is None
    assert article_of(repaired).repaired == len(planted)
    assert article_of(site.validate()).equal
    assert site.at_subscriber("SELECT count(*) FROM item") == site.at_publisher(
        "SELECT count(*) FROM item WHERE region <> 0"
    )


_TYPES = {
    # type: at the Subscriber, value, another one that is easily taken for it
    "smallint": ("smallint", "1", "2"),
    "bigint": ("bigint", "1", "4294967297"),
    "boolean": ("boolean", "f", None),
    "numeric": ("numeric", "1.0", "1.00"),
    "numeric(9,2)": ("numeric(9,2)", "1.00", "1.01"),
    "double precision": ("double precision", "0", "-0"),
    "real": ("real", "0.1", "0.10000001"),
    "text": ("text", "e\u0301", "\u00e9"),
    "character varying(20)": ("character varying(20)", "a", "a "),
    "character(5)": ("text", "a    ", "a"),
    "bytea": ("bytea", "\\x00", "\\x0000"),
    "date": ("date", "2000-02-29", "infinity"),
    "time(3) without time zone": ("time(3) without time zone", "00:00:00.001", "00:00:00.002"),
    "timestamp without time zone": ("timestamp without time zone", "2000-01-01", "2000-01-01 00:00:00.000001"),
    "timestamp with time zone": ("timestamp with time zone", "2000-01-01 00:00+00", "2000-01-01 00:00+01"),
    "interval": ("interval", "1 day", "24 hours"),
    "json": ("json", '{"a": 1}', '{"a":1}'),
    "jsonb": ("jsonb", '{"a": 1.0}', '{"a": 1.00}'),
    "uuid": ("uuid", "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"),
    "integer[]": ("integer[]", "{1,NULL}", "{1}"),
    "text[]": ("text", '{"a,b"}', "{a,b}"),
    "int4range": ("int4range", "[1,2)", "empty"),
    "public.mood": ("public.mood", "glad", "sad"),
    "integer": ("numeric(12,2)", "5", "5.01"),
    "timestamp(6) without time zone": (
        "timestamp(0) without time zone",
        "2000-01-01 00:00:00.4",
        "2000-01-01 00:00:01",
    ),
}


def test_every_column_is_compared_in_the_publishers_text_form(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    """The table has another name at the Subscriber, columns of its own, and some of other types."""
    names = [f"c{number}" for number in range(len(_TYPES))]
    columns = ["day", "Näme", *names]
    article = {"source": "public.every", "destination": "copy.Every", "columns": columns}
    site = Site(databases(), tmp_path / "store", [article], spark)
    here = ", ".join(f"{name} {it}" for name, it in zip(names, _TYPES, strict=True))
    there = ", ".join(f"{name} {it}" for name, (it, _, _) in zip(names, _TYPES.values(), strict=True))
    for create, table, own in (
        (site.at_publisher, f"every (secret text, {here}", "public"),
        (site.at_subscriber, f'copy."Every" (loaded timestamptz DEFAULT now(), {there}', "copy"),
    ):
        create(
            "CREATE TYPE mood AS ENUM ('sad', 'glad')",
            f"CREATE SCHEMA IF NOT EXISTS {own}",
            f'CREATE TABLE {table}, day date, "Näme" text, PRIMARY KEY ("Näme", day))',
        )
    site.set_up()
    values = ", ".join(f"'{value}'" for _, value, _ in _TYPES.values())
    listed = ", ".join(names)
    site.at_publisher(
        f"INSERT INTO every (secret, day, \"Näme\", {listed}) SELECT 'x', date '2000-01-01' + g % 2, "
        f"CASE WHEN g % 3 = 0 THEN 'Ä|~' ELSE 'ä' END || g, {values} FROM generate_series(1, 60) g",
        "INSERT INTO every (day, \"Näme\") VALUES ('2000-01-01', 'nulls')",
    )
    met = site.validate()
    assert met.error is None
    assert met.commands_by_article == {"public.every": 61}, "what was delivered on the way"

    planted = set()
    for at, (name, (_, _, other)) in enumerate(zip(names, _TYPES.values(), strict=True)):
        other_text = "NULL" if other is None else f"'{other}'"
        changed = site.at_subscriber(
            f"UPDATE copy.\"Every\" SET {name} = {other_text} WHERE substring(\"Näme\" from '[0-9]+$') = '{at + 1}' "
            'RETURNING "Näme", day'
        )
        planted.add(("different", ", ".join(map(str, changed[0])), (name,)))
    site.at_subscriber('UPDATE copy."Every" SET c0 = 0 WHERE "Näme" = \'nulls\'')
    planted.add(("different", "nulls, 2000-01-01", ("c0",)))
    assert named(article_of(site.validate(), "public.every")) == planted

    assert site.validate(repair=Repair.APPLY).error is None
    assert site.validate().error is None


def test_a_repair_script_makes_both_ends_equal(
    databases: DatabasesFactory, tmp_path: Path, spark: Any, postgres: PostgresServer
) -> None:
    tables = (
        "CREATE TABLE parent (id int PRIMARY KEY, name text UNIQUE)",
        "CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent, note text)",
    )
    site = Site(databases(), tmp_path / "store", ["public.parent", "public.child"], spark)
    site.at_publisher(*tables)
    site.at_subscriber(*tables)
    site.set_up()
    site.at_publisher(
        "INSERT INTO parent VALUES (1, 'it''s \\ one'), (2, 'two'), (3, 'three'), (4, NULL)",
        "INSERT INTO child VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 2, NULL)",
    )
    site.run()
    site.at_subscriber(
        "UPDATE parent SET name = NULL WHERE id IN (2, 3)",
        "UPDATE parent SET name = 'two' WHERE id = 3",
        "UPDATE parent SET name = 'three' WHERE id = 2",
        "DELETE FROM child WHERE id = 1",
        "DELETE FROM parent WHERE id = 1",
        "INSERT INTO parent VALUES (9, 'nine')",
        "INSERT INTO child VALUES (9, 9, 'nine')",
        "UPDATE child SET note = 'c' WHERE id = 3",
    )
    script = tmp_path / "repair.sql"
    result = site.validate(repair=Repair.SCRIPT, repair_script=script)
    assert result.error is not None
    assert (article_of(result, "public.parent").scripted, article_of(result, "public.child").scripted) == (4, 3)
    assert stat.S_IMODE(script.stat().st_mode) == 0o600
    # The swapped names are of rows that a child's foreign key holds.
    site.at_subscriber("ALTER TABLE child DROP CONSTRAINT child_parent_fkey")
    postgres.run(
        "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(script), database=site.databases.subscriber.database or ""
    )
    assert site.validate().error is None


@pytest.fixture
def shell(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`tranrepl validate`, its job on the shared Spark session instead of one of its own."""
    monkeypatch.setattr(
        "tranrepl.cli.validating.submit", lambda request, _: job.run(site.spark, request, site.connections)
    )
    file = publication_file(tmp_path, [{"source": "public.item", "filter": "region <> 0"}])
    site.at_publisher(f"CREATE TABLE item ({_COLUMNS})")
    site.set_up()
    site.at_publisher("INSERT INTO item SELECT g, 1, 'name' FROM generate_series(1, 50) g")
    site.run()
    environment = {**site.databases.environment, "COLUMNS": "100"}
    return lambda *arguments: typed("validate", file, *arguments, environment=environment)


def test_the_shell_tells_what_differs_and_what_was_repaired(
    site: Site, shell: Callable[..., Outcome], tmp_path: Path
) -> None:
    equal = shell()
    assert (equal.status, equal.err) == (0, "")
    assert re.search(r"public.item +50 +0 +0 +0 +equal", equal.out)
    assert _history(site) == [(2, None, "Validation passed")]
    site.at_subscriber("UPDATE item SET name = 'wrong' WHERE id = 7")
    only_counted = shell("--rowcount-only")
    assert only_counted.status == 0
    assert re.search(r"public.item +50 +counts equal; contents not compared +$", only_counted.out, re.MULTILINE)
    assert (" equal " in only_counted.out, "different" in only_counted.out) == (False, False)
    assert _history(site)[0] == (2, None, "Counts equal")

    site.at_subscriber("UPDATE item SET name = NULL WHERE id = 7", "DELETE FROM item WHERE id > 20")
    differs = shell("--article", "public.item")
    assert differs.status == 1
    assert differs.errors[0].startswith(
        "Subscriber reporting: data validation failed: article public.item: 30 missing, 1 different\n"
    )
    assert "  public.item id = 7  different: name\n" in differs.out
    assert "public.item: 11 more; --json names them" in differs.out
    assert "public.item id = 40  missing" not in differs.out
    assert _history(site)[0] == (2, "20574", "Subscriber reporting")

    counted = shell("--rowcount-only", "--json")
    assert counted.status == 1
    (article,) = json.loads(counted.out)["reporting"]["validation"]["articles"]
    assert (article["publisher_rows"], article["subscriber_rows"], article["rows"]) == (50, 20, [])

    script = tmp_path / "repair.sql"
    assert shell("--repair-script", script).status == 1
    assert script.read_text().count("\nINSERT INTO ") == 30
    again = shell("--repair-script", script)
    assert (again.status, again.errors[0].split(":")[0]) == (1, "--repair-script")

    repaired = shell("--repair")
    assert (repaired.status, repaired.err) == (0, "")
    assert "31 rows repaired" in repaired.out
    assert shell().status == 0


def test_what_cannot_be_asked_is_refused(shell: Callable[..., Outcome]) -> None:
    asked = {
        ("--repair", "--repair-script", "out.sql"): "--repair and --repair-script",
        ("--repair", "--rowcount-only"): "--rowcount-only does not tell which rows differ",
        ("--article", "public.other"): "publication purchasing has no article 'public.other'",
        ("-s", "other"): "publication purchasing has no subscription 'other'",
    }
    for arguments, message in asked.items():
        outcome = shell(*arguments)
        assert (outcome.status, outcome.out) == (1, "")
        assert outcome.errors[0].startswith(message)


def _history(site: Site) -> list[tuple[int, str | None, str]]:
    """Validations, the newest first: status, error number, the first words."""
    rows = execute(
        site.databases.distribution,
        "SELECT runstatus, error_code, substring(comments from '^\\w+ \\w+') FROM msdistribution_history h "
        "LEFT JOIN msrepl_errors e ON e.id = h.error_id WHERE comments ~ 'alidation|^Counts' ORDER BY h.id DESC",
    )
    return [(status, number, words) for status, number, words in rows]


def test_articles_that_are_not_copies_are_reported_and_never_repaired(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    articles = [
        {"source": "public.kept", "del_cmd": "NONE"},
        {"source": "public.logged", "del_cmd": "CALL log_delete"},
        {"source": "public.plain"},
    ]
    site = Site(databases(), tmp_path / "store", articles, spark)
    for name in ("kept", "logged", "plain"):
        site.at_publisher(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    site.at_subscriber("CREATE PROCEDURE log_delete(id int) LANGUAGE sql AS ''")
    site.set_up()
    for name in ("kept", "logged", "plain"):
        site.at_publisher(f"INSERT INTO {name} SELECT generate_series(1, 5)", f"DELETE FROM {name} WHERE id = 2")
    site.at_publisher("DELETE FROM plain WHERE id = 3")
    site.run()
    site.at_subscriber("DELETE FROM plain WHERE id = 4")
    result = site.validate(repair=Repair.APPLY)
    reasons = {it.article: (it.not_repaired, it.repaired) for it in _articles(result)}
    assert reasons == {
        "public.kept": ("del_cmd is NONE", None),
        "public.logged": ("del_cmd calls the custom procedure log_delete", None),
        "public.plain": (None, 1),
    }
    assert result.error is not None
    assert "plain" not in result.error.message
    assert [it.equal for it in _articles(site.validate())] == [False, False, True]
    some = site.validate(articles=("public.kept", "public.plain"))
    assert [it.article for it in _articles(some)] == ["public.kept", "public.plain"]


def test_rows_that_a_subscriber_without_a_key_has_twice_are_extra(site: Site) -> None:
    site.at_publisher(f"CREATE TABLE item ({_COLUMNS})")
    site.at_subscriber(f"CREATE TABLE item ({_COLUMNS.replace('PRIMARY KEY', '')})")
    site.set_up()
    site.at_publisher("INSERT INTO item SELECT g, 1, 'name' FROM generate_series(1, 5) g")
    site.run()
    site.at_subscriber(
        "INSERT INTO item SELECT * FROM item WHERE id IN (2, 3)",
        "INSERT INTO item SELECT * FROM item WHERE id = 3",
        "UPDATE item SET note = 'wrong' WHERE id = 3",
    )
    found = article_of(site.validate(repair=Repair.APPLY))
    assert named(found) == {("extra", "2", ()), ("extra", "3", ()), ("different", "3", ("note",))}
    assert site.validate().error is None
    assert site.at_subscriber("SELECT id, note FROM item ORDER BY 1") == [(number, None) for number in range(1, 6)]


def _articles(result: JobResult) -> tuple[ArticleValidation, ...]:
    assert result.validation is not None, result.error
    return result.validation.articles


def test_a_table_that_is_read_in_parts_is_read_whole(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "SELECT n, 1, 'name ' || n FROM generate_series(1, 20000) n"
    site.at_publisher(f"CREATE TABLE item ({_COLUMNS})", f"INSERT INTO item {rows}")
    site.at_subscriber(f"CREATE TABLE item ({_COLUMNS})", f"INSERT INTO item {rows} ORDER BY n DESC")
    site.set_up()
    monkeypatch.setattr("tranrepl.validation.comparison_targets._part_bytes", lambda *_: 8 * 8192)
    assert site.validate().error is None

    site.at_subscriber(
        "DELETE FROM item WHERE id = 1",
        "UPDATE item SET name = '' WHERE id = 20000",
        "INSERT INTO item VALUES (0, 1, '')",
    )
    assert named(article_of(site.validate())) == {
        ("missing", "1", ()),
        ("different", "20000", ("name",)),
        ("extra", "0", ()),
    }


def test_a_repair_corrects_only_what_still_differs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between comparison and repair the Publisher changes rows, and a delivery brings one of them."""
    site.at_publisher(f"CREATE TABLE item ({_COLUMNS})")
    site.set_up()
    site.at_publisher("INSERT INTO item SELECT g, 1, 'name' FROM generate_series(1, 9) g")
    site.run()
    site.at_subscriber(
        "UPDATE item SET name = 'wrong' WHERE id < 5", "CREATE TABLE written (id int, name text)", _AUDIT
    )

    def compare_and_change(*arguments: Any, **named: Any) -> list[Found]:
        found = comparison.compare(*arguments, **named)
        site.at_publisher(
            "UPDATE item SET name = 'right' WHERE id = 1",
            "DELETE FROM item WHERE id = 2",
            "UPDATE item SET name = 'later' WHERE id = 9",
        )
        return found

    monkeypatch.setattr("tranrepl.validation.job.compare", compare_and_change)
    assert site.validate(repair=Repair.APPLY).error is None
    monkeypatch.undo()
    # 1, 2 and 9 came by their commands.
    assert site.at_subscriber("SELECT id, name FROM written ORDER BY 1") == [
        (1, "right"),
        (3, "name"),
        (4, "name"),
        (9, "later"),
    ]
    assert site.validate().error is None


_AUDIT = """
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
    INSERT INTO written VALUES (new.id, new.name); RETURN new; END';
CREATE TRIGGER audit BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION audit();
"""


def test_nothing_is_found_under_load(databases: DatabasesFactory, tmp_path: Path) -> None:
    """About 5 s: the jobs' tasks run in this process."""
    articles = [{"source": "public.item", "filter": "region <> 0"}, {"source": "public.pair"}]
    site = Site(databases(), tmp_path / "store", articles, SparkHere())
    site.at_publisher(
        f"CREATE TABLE item ({_COLUMNS})",
        "CREATE TABLE pair (a text, b int, value double precision, PRIMARY KEY (a, b))",
    )
    site.set_up()
    site.at_publisher("INSERT INTO pair SELECT 'ä' || g, -g, g / 3.0 FROM generate_series(1, 1000) g")
    with writing(site) as written:
        for _ in range(_VALIDATIONS):
            before = len(written)
            result = site.validate()
            assert result.error is None, result
            assert len(written) > before
    assert article_of(result).publisher_rows > 0


def test_delivery_is_held_only_until_the_snapshots_are_open(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _delivered_once(site)
    delivering: list[Future[JobResult]] = []

    with ThreadPoolExecutor(1) as executor:

        @contextmanager
        def open_comparison_targets(*arguments: Any) -> Iterator[Any]:
            site.at_publisher("UPDATE item SET name = 'later'")
            site.read_log().raise_error()
            delivering.append(executor.submit(site.deliver))
            assert wait(delivering, 1.5).not_done
            with comparison_targets.open_comparison_targets(*arguments) as opened:
                yield opened

        def compare(*arguments: Any, **named: Any) -> list[Found]:
            assert delivering[0].result(300).commands == 1
            assert site.at_subscriber("SELECT name FROM item") == [("later",)]
            return comparison.compare(*arguments, **named)

        monkeypatch.setattr("tranrepl.validation.job.open_comparison_targets", open_comparison_targets)
        monkeypatch.setattr("tranrepl.validation.job.compare", compare)
        assert site.validate().error is None


def test_the_end_whose_snapshot_is_gone_is_named(databases: DatabasesFactory) -> None:
    place = SnapshotPlace(databases().subscriber, "00000003-00000001-1", "Subscriber reporting")
    with pytest.raises(TransientError, match=r"^Subscriber reporting: the exported snapshot"), place.session():
        pass


def test_where_another_delivery_was_faster_a_new_snapshot_is_taken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _delivered_once(site)
    taken: list[int] = []
    snapshot_of = PostgresPublisher.snapshot

    @contextmanager
    def overtaken(*arguments: Any) -> Iterator[ExportedSnapshot]:
        with snapshot_of(*arguments) as snapshot:
            taken.append(snapshot.consistent_point)
            if len(taken) == 1:
                site.at_publisher("UPDATE item SET name = 'later'")
                site.run()
            yield snapshot

    monkeypatch.setattr(PostgresPublisher, "snapshot", overtaken)
    result = site.validate()
    assert result.error is None
    assert result.validation is not None
    assert [int(result.validation.xact_seqno, 16) + 1] == taken[1:]


def test_two_rows_that_have_exchanged_a_value_do_not_cancel_out(site: Site) -> None:
    _delivered_once(site, rows=2)
    site.at_subscriber("UPDATE item SET note = CASE id WHEN 1 THEN '2' ELSE '1' END")
    assert named(article_of(site.validate())) == {("different", "1", ("note",)), ("different", "2", ("note",))}


def _delivered_once(site: Site, rows: int = 1) -> None:
    site.at_publisher(f"CREATE TABLE item ({_COLUMNS})")
    site.set_up()
    site.at_publisher(f"INSERT INTO item SELECT g, 1, 'name', g FROM generate_series(1, {rows}) g")
    site.run()


@contextmanager
def writing(site: Site) -> Iterator[list[int]]:
    """Two writers at the Publisher, which leave others some of the machine: inserts, updates, deletes, key changes,
    rows that enter and leave the filter, transactions that overlap, some that are rolled back. Yields those so far."""
    done = threading.Event()
    written: list[int] = []

    def write(writer: int) -> None:
        random = Random(writer)
        with psycopg.connect(**site.databases.publisher.libpq_parameters("writer")) as session:  # type: ignore[arg-type]
            while not done.wait(0.002):
                for _ in range(random.randint(1, 4)):
                    session.execute(random.choice(_WRITES).encode(), {"a": random.randrange(500) * 2 + writer})
                (session.rollback if random.random() < 0.1 else session.commit)()
                written.append(writer)

    with ThreadPoolExecutor(2) as executor:
        writers = [executor.submit(write, writer) for writer in range(2)]
        try:
            yield written
        finally:
            done.set()
        for it in writers:
            it.result()


_WRITES = (
    "INSERT INTO item VALUES (%(a)s, %(a)s %% 3, 'ü' || %(a)s) ON CONFLICT (id) DO UPDATE SET price = item.id",
    "UPDATE item SET region = region + 1, note = NULL WHERE id = %(a)s",
    "UPDATE item SET region = 0, note = 'left' WHERE id = %(a)s",
    "UPDATE item SET id = id + 1000 WHERE id = %(a)s AND NOT EXISTS (SELECT FROM item WHERE id = %(a)s + 1000)",
    "DELETE FROM item WHERE id IN (%(a)s, %(a)s + 1000)",
)
