"""Schema changes in the log become commands in their place, and what follows them is of the new definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from conftest import DatabasesFactory
from support.announced import signed
from support.databases import Databases
from support.in_process import read_log_into_store
from support.site import Site, execute
from tranrepl.admin.check import check
from tranrepl.distributor.command_store import path_in
from tranrepl.errors import ARTICLE_DOES_NOT_EXIST, ConfigurationError
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.schema_changes import SchemaFollower
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import Operation
from tranrepl.model.schema_change import SchemaChange

_MOOD = "CREATE TYPE mood AS ENUM ('sad', 'happy')"
_TABLES = """
CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, price numeric(8,2), spare int, feeling mood);
CREATE TABLE other (id int PRIMARY KEY, v text);
"""


def _site(databases: Databases, tmp_path: Path, *articles: Mapping[str, object], replicate_ddl: bool = True) -> Site:
    chosen: Sequence[Mapping[str, object]] = articles or ({"source": "public.item"}, {"source": "public.other"})
    site = Site(databases, tmp_path / "store", chosen, replicate_ddl=replicate_ddl)
    site.at_publisher(_MOOD, _TABLES)
    site.at_subscriber(_MOOD)
    site.set_up()
    return site


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return _site(databases(), tmp_path)


def _read(site: Site) -> JobResult:
    result = read_log_into_store(site)
    result.raise_error()
    return result


def _in_one(site: Site, *statements: str) -> None:
    execute(site.databases.publisher, "BEGIN; " + "; ".join(statements) + "; COMMIT")


def _stored(site: Site) -> list[dict[str, object]]:
    """Return all stored commands, in order."""
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        folders = [path_in(record.store, it.folder) for it in database.batches.after(record, bytes(8))]
        tables = [ds.dataset(it, format="parquet", schema=ROW_LAYOUT).to_table() for it in folders]
        rows: list[dict[str, object]] = pa.concat_tables(tables).to_pylist() if tables else []
        stored = database.schema_changes.after(record, bytes(8))
    schema = [row for row in rows if row["operation"] == Operation.SCHEMA]
    assert [(it.xact_seqno, it.command_id, it.change) for it in stored] == [
        (row["xact_seqno"], row["command_id"], SchemaChange.model_validate_json(str(row["after"]))) for row in schema
    ]
    return rows


def _shown(site: Site) -> list[str]:
    """Return the commands as `transaction.command article_id operation after`, transactions counted from 1."""
    rows = _stored(site)
    seqnos = sorted({row["xact_seqno"] for row in rows})  # type: ignore[type-var]
    ids = sorted({int(str(row["article_id"])) for row in rows} | {it.article_id for it in _articles(site)})
    return [
        f"{seqnos.index(row['xact_seqno']) + 1}.{row['command_id']} {ids.index(int(str(row['article_id']))) + 1} "
        f"{_what(row)}"
        for row in rows
    ]


def _what(row: dict[str, object]) -> str:
    operation, after = Operation(int(str(row["operation"]))), row["after"]
    if operation is not Operation.SCHEMA:
        return f"{operation.name} {after}".replace("\t", " ")
    change = SchemaChange.model_validate_json(str(after))
    told = [*change.columns, *change.labels]
    done = [" ".join(f"{v}" for v in it.model_dump().values() if v not in (None, False)) for it in told]
    return "; ".join([*done, *([f"unknown: {change.rows_unknown}"] if change.rows_unknown else [])])


def _articles(site: Site) -> Sequence[RegisteredArticle]:
    with site.topology.distributor() as database:
        return database.articles.registered(database.publications.get("purchasing"))


def test_rows_before_and_after_a_change_are_of_their_definitions(site: Site) -> None:
    site.at_publisher("INSERT INTO item VALUES (1, 'a', 1, 1, 'sad')")
    _in_one(
        site,
        "INSERT INTO item VALUES (2, 'b', 2, 2)",
        "ALTER TABLE item ADD COLUMN added text DEFAULT 'x y'",
        "INSERT INTO item VALUES (3, 'c', 3, 3, 'sad', 'z')",
        "ALTER TABLE item DROP COLUMN spare",
        "ALTER TABLE item RENAME COLUMN name TO title",
        "INSERT INTO item VALUES (4, 'd', 4, 'happy', 'z')",
        "INSERT INTO other VALUES (1, 'o')",
    )
    site.at_publisher("UPDATE item SET title = 'e' WHERE id = 1")
    result = _read(site)
    assert _shown(site) == [
        "1.1 1 INSERT 1 a 1.00 1 sad",
        "2.1 1 INSERT 2 b 2.00 2 \\N",
        "2.2 1 add added text x y 'x y'::text",
        "2.3 3 INSERT 3 c 3.00 3 sad z",
        "2.4 3 drop spare; rename name title",
        "2.5 4 INSERT 4 d 4.00 happy z",
        "2.6 2 INSERT 1 o",
        "3.1 4 UPDATE \\N e \\N \\N \\N",
    ]
    assert (result.schema_changes, result.transactions, result.commands) == (2, 3, 8)
    assert [[c.name for c in it.columns] for it in _articles(site)] == [
        ["id", "v"],
        ["id", "title", "price", "feeling", "added"],
    ]


def test_a_transaction_of_schema_changes_alone_is_a_batch(site: Site) -> None:
    site.at_publisher("ALTER TABLE item DROP COLUMN spare")
    assert _read(site).schema_changes == 1
    assert _shown(site) == ["1.1 1 drop spare"]
    site.at_publisher("CREATE TABLE nobody (id int)", "ALTER TABLE nobody ADD COLUMN c int")
    assert _read(site).commands == 0


def test_a_rolled_back_schema_change_is_none(site: Site) -> None:
    _in_one(
        site,
        "SAVEPOINT a",
        "ALTER TABLE item DROP COLUMN spare",
        "ROLLBACK TO a",
        "INSERT INTO item VALUES (1, 'a', 1, 1)",
    )
    _read(site)
    assert _shown(site) == ["1.1 1 INSERT 1 a 1.00 1 \\N"]


def test_a_change_in_a_subtransaction_stands_before_the_rows_after_it(site: Site) -> None:
    _in_one(
        site,
        "SAVEPOINT a",
        "ALTER TABLE item ADD COLUMN c int",
        "RELEASE a",
        "INSERT INTO item VALUES (1, 'a', 1, 1, NULL, 7)",
    )
    _read(site)
    assert _shown(site) == ["1.1 1 add c integer", "1.2 3 INSERT 1 a 1.00 1 \\N 7"]


def test_a_rewrite_reinitializes_its_article(site: Site) -> None:
    site.at_publisher(
        "INSERT INTO item VALUES (1, 'a', 1, 1)",
        "ALTER TABLE item ADD COLUMN c double precision DEFAULT random()",
        "ALTER TABLE item ALTER COLUMN spare TYPE bigint USING spare * 2",
    )
    result = _read(site)
    assert _shown(site)[1:] == [
        "2.1 1 add c double precision random(); unknown: column c was added with values that the log does not have",
        "3.1 3 retype spare bigint; unknown: column spare got another type",
    ]
    assert any("public.item of subscription reporting" in it for it in result.notices)


def test_without_replicate_ddl_a_dropped_column_stops_the_log_reader(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, replicate_ddl=False)
    site.at_publisher("ALTER TABLE item DROP COLUMN spare", "INSERT INTO item VALUES (1, 'a', 1)")
    with pytest.raises(ConfigurationError, match="column spare was dropped or renamed"):
        _read(site)


def test_names_in_the_file_follow_a_rename(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(
        databases(),
        tmp_path,
        {"source": "public.item", "columns": ["id", "name", "price"], "filter": "name > 'a'", "lob_columns": ["name"]},
    )
    site.at_publisher(
        "INSERT INTO item VALUES (1, 'a', 1), (2, 'b', 1)",
        "ALTER TABLE item RENAME name TO title",
        "ALTER TABLE item RENAME TO thing",
        "INSERT INTO thing VALUES (3, 'a', 1), (4, 'd', 1)",
    )
    _read(site)
    (article,) = _articles(site)
    assert (str(article.source), str(article.destination)) == ("public.thing", "public.item")
    assert article.filter == "\"title\" > 'a'"
    site.at_publisher("DELETE FROM thing")
    assert _read(site).commands == 2
    assert [it for it in check(site.topology).warnings if "was altered: " in it] == [
        (
            "article public.item: its table was altered: write `source: public.thing` and `destination: public.item`, "
            "`columns: [id, title, price]`, `filter: \"title\" > 'a'`, `lob_columns: [title]` into the file"
        )
    ]


def test_an_article_ends_with_its_table_and_the_others_go_on(site: Site) -> None:
    site.at_publisher("INSERT INTO item VALUES (1, 'a', 1)", "DROP TABLE item", "INSERT INTO other VALUES (1, 'o')")
    result = read_log_into_store(site)
    assert _shown(site)[1:] == ["2.1 1 ", "3.1 2 INSERT 1 o"]
    assert [it for it in result.notices if "was dropped, or taken out" in it] != []
    site.at_publisher("INSERT INTO other VALUES (2, 'p')")
    again = read_log_into_store(site)
    assert again.commands == 1
    for it in (result, again):
        assert it.error is not None
        assert it.error.number == ARTICLE_DOES_NOT_EXIST


def test_a_failed_announcement_stops_until_the_next_setup(site: Site) -> None:
    ((publication,),) = site.at_publisher("SELECT pubname FROM pg_publication")
    failed = '{"v": 1, "event": "x", "tag": "ALTER TABLE", "failed": "XX000", "message": "no reason", '
    failed += f'"publications": ["{publication}"]}}'
    site.at_publisher(
        "INSERT INTO other VALUES (1, 'o')",
        signed("schema", f"'{failed}'"),
        "INSERT INTO other VALUES (2, 'p')",
    )
    with pytest.raises(ConfigurationError, match="no reason"):
        _read(site)
    assert _shown(site) == ["1.1 2 INSERT 1 o"]
    site.set_up()
    assert _read(site).commands == 1


def test_a_domain_that_is_altered_stops(databases: DatabasesFactory, tmp_path: Path) -> None:
    ends = databases()
    domain = "CREATE DOMAIN small AS int"
    execute(ends.publisher, domain, "CREATE TABLE d (id int PRIMARY KEY, s small)")
    execute(ends.subscriber, domain)
    site = Site(ends, tmp_path / "store", ["public.d"], replicate_ddl=True)
    site.set_up()
    site.at_publisher("ALTER DOMAIN small ADD CHECK (VALUE < 10)")
    with pytest.raises(ConfigurationError, match="the type of column s, or one that it is made of, was altered"):
        _read(site)


def test_messages_of_other_programs_do_no_harm(site: Site) -> None:
    _in_one(
        site,
        "INSERT INTO other VALUES (1, 'o')",
        "SELECT pg_logical_emit_message(false, 'theirs', 'x')",
        "SELECT pg_logical_emit_message(true, 'theirs', 'x')",
        "SELECT pg_logical_emit_message(false, 'tranrepl.schema', 'x')",
        "INSERT INTO other VALUES (2, 'p')",
    )
    _read(site)
    assert _shown(site) == ["1.1 2 INSERT 1 o", "1.2 2 INSERT 2 p"]


def test_labels_that_are_renamed_reinitialize_without_a_new_announcement(site: Site) -> None:
    _in_one(
        site,
        "INSERT INTO item VALUES (1, 'a', 1, 1, 'sad')",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "INSERT INTO item VALUES (2, 'b', 1, 1, 'blue')",
    )
    _read(site)
    assert _shown(site) == [
        "1.1 1 INSERT 1 a 1.00 1 sad",
        "1.2 1 add public.mood blue happy; unknown: a label of type public.mood was renamed",
        "1.3 3 INSERT 2 b 1.00 1 blue",
    ]


def test_numbers_for_the_definitions_of_one_transaction_are_taken_a_few_times(site: Site) -> None:
    """Each time the transaction is read again."""
    with site.topology.distributor() as database:
        follower = SchemaFollower(site.publication, database, database.publications.get("purchasing"), lambda _: None)
        for _ in range(8):
            follower.take_ids()
    assert len(set(follower.reading.article_ids)) > 5_000
