"""Bulk ends in what serial apply ends in, or falls back to it; and where nothing is in the way, it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from support.command_history import Column, History, Image, seqno
from support.mariadb import MariaDbServer
from support.subscribers import KEY, KINDS, Rows, Site
from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.jobs.results import JobResult
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.settings.publication import Apply
from tranrepl.subscriber.applier_options import AS_CONFIGURED, ApplierOptions
from tranrepl.subscriber.registry import dialect_of

MakeSite = Callable[[str], Site]
INS, UPD, DEL = Operation.INSERT, Operation.UPDATE, Operation.DELETE
ALL: frozenset[Operation] = frozenset({INS, UPD, DEL})
NOTHING: frozenset[Operation] = frozenset()
VENDOR = [
    Column("id", "integer", key=1),
    Column("name", "character varying(40)", not_null=True),
    Column("rating", "integer"),
    Column("note", "text"),
]
ONE: Image = ["1", "one", "10", "first"]
TWO: Image = ["2", "two", "20", None]
_NO_TRANSACTION = {
    "postgres": "decode(repeat('00', 8), 'hex')",
    "mariadb": "UNHEX(REPEAT('00', 8))",
    "mssql": "0x0000000000000000",
}
NINE: Image = ["9", "nine", None, r"back\slash 'quoted' %s :p"]


@pytest.fixture(params=[it.name for it in KINDS if it.database in ("postgres", "mariadb", "mssql")])
def bulk_site(request: pytest.FixtureRequest, make_site: MakeSite) -> Site:
    """Return a site for every database that applies in bulk, and every way to it."""
    return make_site(request.param)


@pytest.fixture(
    params=["postgres procedures", "mariadb procedures", "mariadb statements", "mssql procedures", "mssql statements"]
)
def plain_bulk_site(request: pytest.FixtureRequest, make_site: MakeSite) -> Site:
    """Return a site for every database that applies in bulk, in one call syntax."""
    return make_site(request.param)


def _bulk_operations(site: Site, options: ApplierOptions = AS_CONFIGURED) -> dict[int, frozenset[Operation]]:
    with dialect_of(site.connection).applier(site.connection, KEY, site.articles, options) as applier:
        return dict(applier.bulk_operations)


def _deliver_anew(site: Site, history: History, apply: Apply, before: Sequence[str]) -> JobResult:
    """Deliver from the start, after `before` has put the tables into their first state."""
    zeros = _NO_TRANSACTION[site.kind.database]
    site.execute(f"UPDATE msreplication_subscriptions SET transaction_timestamp = {zeros}", *before)
    return site.deliver(history, options=ApplierOptions(apply=apply))


def _both_ways(site: Site, history: History, *before: str, tables: Sequence[str] = ("vendor",)) -> JobResult:
    """Return the bulk way's result, after both ways have come to the same rows and the same error."""
    outcomes: list[tuple[list[Rows], Any]] = []
    results = []
    for apply in (Apply.SERIAL, Apply.AUTO):
        result = _deliver_anew(site, history, apply, before)
        results.append(result)
        outcomes.append(([_content(site, it) for it in tables], _told(result.error)))
    assert results[0].in_bulk == 0
    assert outcomes[0] == outcomes[1]
    return results[1]


def _content(site: Site, table: str) -> Rows:
    return sorted(site.execute(f"SELECT * FROM {site.quoted(table)}"), key=repr)


def _told(error: ErrorReport | None) -> tuple[object, ...]:
    return (error.kind, error.number, error.message, error.xact_seqno, error.command_id) if error else ()


def _random_history(article: RegisteredArticle, seed: int, rows: dict[str, Image]) -> History:
    """Return a history in which no key changes; `rows` are there before."""
    chance, history = Random(seed), History()
    for _ in range(400):
        if chance.random() < 0.3:
            history.transaction()
        key = str(chance.randrange(60))
        image = [key, chance.choice(["a", "", "é\\'"]), chance.choice(["1", None]), chance.choice(["x\t\n", "", None])]
        if key not in rows:
            history.insert(article, image)
            rows[key] = image
        elif chance.random() < 0.3:
            history.delete(article, rows.pop(key))
        else:
            history.update(article, rows[key], image)
            rows[key] = image
    return history


def test_random_histories_go_in_bulk_and_end_in_the_same_rows(bulk_site: Site) -> None:
    site = bulk_site
    text, moment = ("nvarchar", "datetime2") if site.kind.database == "mssql" else ("varchar", "timestamp")
    site.execute(
        f"CREATE TABLE vendor (id int PRIMARY KEY, own varchar(20) DEFAULT 'own', "
        f"name {text}(40) NOT NULL, rating int, note {text}(20), at_subscriber {moment}(6) NULL)"
    )
    vendor = site.article("vendor", VENDOR)
    before = ["DELETE FROM vendor"]
    before += [f"INSERT INTO vendor VALUES ({it}, 'mine', 'there', 1, NULL, NULL)" for it in range(0, 60, 2)]
    for seed in range(3):
        history = _random_history(vendor, seed, {str(it): [str(it), "there", "1", None] for it in range(0, 60, 2)})
        result = _both_ways(site, history, *before)
        assert (result.error, result.in_bulk, result.fallbacks) == (None, len(history.rows), {})


def test_rows_of_a_key_of_two_columns_are_updated_and_deleted_in_bulk(plain_bulk_site: Site) -> None:
    site = plain_bulk_site
    columns = [Column("b", "integer", key=2), Column("value"), Column("a", "character varying(10)", key=1)]
    pair = site.article("pair", columns)
    before = ("DELETE FROM pair", "INSERT INTO pair (b, value, a) VALUES (1, 'x', 'k'), (2, 'y', 'k'), (1, 'z', 'l')")
    history = History().update(pair, ["1", "x", "k"], ["1", "X", "k"]).update(pair, ["2", "y", "k"], ["2", "Y", "k"])
    history.transaction().delete(pair, ["1", "z", "l"]).insert(pair, ["3", None, "k"]).delete(pair, ["3", None, "k"])
    result = _both_ways(site, history, *before, tables=["pair"])
    assert (result.error, result.in_bulk, result.fallbacks) == (None, 5, {})


def test_an_update_without_effect_still_meets_its_row_in_bulk(bulk_site: Site) -> None:
    site = bulk_site
    vendor = site.article("vendor", VENDOR)
    before = ("DELETE FROM vendor", "INSERT INTO vendor VALUES (1, 'one', 10, 'first'), (2, 'two', 20, NULL)")
    history = History().update(vendor, ["1", "one", "0", "first"], ONE).update(vendor, TWO, TWO)
    result = _both_ways(site, history, *before)
    assert (result.error, result.in_bulk, result.fallbacks) == (None, 2, {})


def _missing(vendor: RegisteredArticle) -> History:
    return History().insert(vendor, ONE).update(vendor, NINE, ["9", "new", None, None])


def _gone(vendor: RegisteredArticle) -> History:
    return History().insert(vendor, ONE).transaction().delete(vendor, NINE)


def _doubled(vendor: RegisteredArticle) -> History:
    return History().insert(vendor, ONE).insert(vendor, TWO)


def _passing(vendor: RegisteredArticle) -> History:
    return History().insert(vendor, ONE).insert(vendor, TWO).delete(vendor, TWO)


def _not_null(vendor: RegisteredArticle) -> History:
    return History().update(vendor, TWO, ["2", None, "20", None])


def _inserted_null(vendor: RegisteredArticle) -> History:
    return History().insert(vendor, ONE).insert(vendor, ["3", None, None, None])


def _too_long(vendor: RegisteredArticle) -> History:
    return History().insert(vendor, ONE).insert(vendor, ["3", "x" * 41, None, None])


def _swapped(vendor: RegisteredArticle) -> History:
    """Return a swap that goes through a third value in order; at once, no database here checks it."""
    history = History().insert(vendor, ["5", "five", "50", None])
    history.update(vendor, TWO, ["2", "two", "99", None])
    history.update(vendor, ["5", "five", "50", None], ["5", "five", "20", None])
    return history.update(vendor, ["2", "two", "99", None], ["2", "two", "50", None])


_FAILING = (_missing, _gone, _doubled, _passing, _not_null, _inserted_null, _too_long)


def test_what_fails_in_bulk_ends_as_serial_apply_does(plain_bulk_site: Site) -> None:
    site = plain_bulk_site
    vendor = site.article("vendor", VENDOR)
    site.execute("CREATE UNIQUE INDEX by_rating ON vendor (rating)")
    before = ("DELETE FROM vendor", "INSERT INTO vendor VALUES (2, 'two', 20, NULL), (4, 'four', 40, NULL)")
    failing = [_both_ways(site, history_of(vendor), *before) for history_of in _FAILING]
    assert [(it.error is not None, it.in_bulk) for it in failing] == [(True, 0)] * len(_FAILING)
    swapped = _both_ways(site, _swapped(vendor), *before)
    assert (swapped.error, swapped.in_bulk) == (None, 4)


def test_fallbacks_are_counted_by_reason_and_leave_nothing_behind(mariadb_site: Site) -> None:
    site = mariadb_site
    vendor = site.article("vendor", VENDOR)
    site.execute("CREATE UNIQUE INDEX by_rating ON vendor (rating)")
    before = ("DELETE FROM vendor", "INSERT INTO vendor VALUES (2, 'two', 20, NULL)")
    result = _both_ways(site, _swapped_in_place(vendor), *before, "INSERT INTO vendor VALUES (5, 'five', 50, NULL)")
    assert (result.error, result.in_bulk, result.fallbacks) == (None, 0, {"error 2627 (1062)": 1})


def _swapped_in_place(vendor: RegisteredArticle) -> History:
    history = History().update(vendor, TWO, ["2", "two", "99", None])
    history.update(vendor, ["5", "five", "50", None], ["5", "five", "20", None])
    return history.update(vendor, ["2", "two", "99", None], ["2", "two", "50", None])


_BY_LETTER = [Column("id", "text", key=1), Column("value", "integer")]


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_keys_that_are_one_to_a_collation_are_told_apart_by_counting(mariadb_site: Site, collation: str) -> None:
    site = mariadb_site
    site.execute(f"CREATE TABLE letter (id varchar(9) COLLATE {collation} PRIMARY KEY, value int) CHARSET utf8mb4")
    letter = site.article("letter", _BY_LETTER)
    # `A` is `a` but where the collation is binary; `a ` is `a` in all of them.
    before = ("DELETE FROM letter", "INSERT INTO letter VALUES ('a', 0), ('b', 0)")
    changes: list[tuple[History, bool]] = [
        (History().update(letter, ["a", "0"], ["a", "1"]).update(letter, ["a ", "0"], ["a ", "2"]), False),
        (History().delete(letter, ["a", "0"]).delete(letter, ["a ", "0"]), False),
        (History().delete(letter, ["a", "0"]).insert(letter, ["a ", "3"]), True),
        (History().insert(letter, ["a ", "3"]).delete(letter, ["a ", "3"]), False),
        (History().insert(letter, ["c", "1"]).insert(letter, ["c ", "1"]), False),
        (History().update(letter, ["a", "0"], ["a", "1"]).insert(letter, ["a ", "2"]), False),
        (History().update(letter, ["A", "0"], ["A", "1"]).delete(letter, ["b", "0"]), collation != "utf8mb4_bin"),
    ]
    for at, (history, in_bulk) in enumerate(changes):
        result = _both_ways(site, history, *before, tables=["letter"])
        assert (at, result.in_bulk == len(history.rows)) == (at, in_bulk)


def test_children_go_before_parents_and_come_after_them(mariadb_site: Site) -> None:
    site = mariadb_site
    child = site.article("line", [Column("id", "integer", key=1), Column("vendor", "integer")])
    vendor = site.article("vendor", VENDOR)
    site.execute("ALTER TABLE line ADD FOREIGN KEY (vendor) REFERENCES vendor (id)")
    before = (
        *("DELETE FROM line", "DELETE FROM vendor", "INSERT INTO vendor VALUES (2, 'two', 20, NULL)"),
        *("INSERT INTO line VALUES (1, 2)",),
    )
    history = History().insert(vendor, ONE).update(child, ["1", "2"], ["1", "1"]).insert(child, ["2", "1"])
    history.transaction().delete(child, ["1", "1"]).delete(vendor, TWO)
    result = _both_ways(site, history, *before, tables=["line", "vendor"])
    assert (result.error, result.in_bulk, result.fallbacks) == (None, 5, {})
    orphan = History().insert(vendor, ONE).insert(child, ["2", "7"])
    result = _both_ways(site, orphan, *before, tables=["line", "vendor"])
    assert result.error is not None
    assert (result.error.shown_number, result.error.command_id) == ("547 (1452)", 2)


_TABLE = "CREATE TABLE {{0}} (id int PRIMARY KEY, name varchar(40) NOT NULL, rating int, note longtext{0}){1}"


def _table(more: str = "", options: str = "") -> str:
    return _TABLE.format(more, options)


def _trigger(when: str) -> str:
    return f"CREATE TRIGGER on_{{0}} {when} ON {{0}} FOR EACH ROW SET @seen = 1"


def _child(action: str) -> str:
    return f"CREATE TABLE child_of_{{0}} (vendor int REFERENCES {{0}} (id) {action})"


# Statements that make the table {0}, then what of it may go in bulk.
_DECLARED: list[tuple[Sequence[str], frozenset[Operation]]] = [
    ([_table()], ALL),
    ([_table(", a int DEFAULT 5, b datetime DEFAULT current_timestamp, c varchar(9) DEFAULT 'it''s'")], ALL),
    ([_table(", twice int AS (id * 2) STORED, half double AS (id / 2) VIRTUAL")], ALL),
    ([_table(", own int AUTO_INCREMENT, KEY (own)")], ALL - {INS}),
    ([_table(", own varchar(36) DEFAULT uuid()")], ALL - {INS}),
    ([_table(", own double DEFAULT rand()")], ALL - {INS}),
    (["CREATE SEQUENCE numbers", _table(", own bigint DEFAULT nextval(numbers)")], ALL - {INS}),
    ([_table(", own datetime DEFAULT current_timestamp ON UPDATE current_timestamp")], ALL - {UPD}),
    ([_table(options=" WITH SYSTEM VERSIONING")], NOTHING),
    (["CREATE TABLE {0} (id int, name varchar(40), rating int, note longtext, KEY (id))"], NOTHING),
    (["CREATE TABLE {0} (id int, name varchar(40), rating int, note text, UNIQUE (id, rating))"], NOTHING),
    (["CREATE TABLE {0} (id int UNIQUE, name varchar(40), rating bit(8), note longtext)"], NOTHING),
    (["CREATE TABLE {0} (id int UNIQUE, name enum('a'), rating int, note longtext)"], NOTHING),
    ([_table(), _trigger("BEFORE INSERT")], ALL - {INS}),
    ([_table(), _trigger("AFTER UPDATE")], ALL - {UPD}),
    ([_table(), _trigger("AFTER DELETE")], ALL - {DEL}),
    ([_table(), _child("ON DELETE CASCADE")], frozenset({INS})),
    ([_table(), _child("ON UPDATE SET NULL")], frozenset({INS})),
    ([_table(), _child("")], ALL),
]


def test_what_a_table_lets_go_in_bulk(mariadb_site: Site) -> None:
    site, expected = mariadb_site, dict[int, frozenset[Operation]]()
    for at, (statements, allowed) in enumerate(_DECLARED):
        site.execute(*(it.format(f"t{at}") for it in statements))
        article = site.article(f"t{at}", VENDOR)
        expected |= {article.article_id: allowed} if allowed else {}
    assert _bulk_operations(site) == expected
    assert _bulk_operations(site, ApplierOptions(apply=Apply.SERIAL)) == {}


def test_cascades_that_are_kept_from_acting_are_in_nobodys_way(mariadb_site: Site) -> None:
    vendor = mariadb_site.article("vendor", VENDOR)
    mariadb_site.execute("CREATE TABLE child (vendor int REFERENCES vendor (id) ON DELETE CASCADE)")
    assert _bulk_operations(mariadb_site) == {vendor.article_id: {INS}}
    assert _bulk_operations(mariadb_site, ApplierOptions(not_for_replication=True)) == {vendor.article_id: ALL}


def test_a_procedure_that_was_edited_is_called(make_site: MakeSite) -> None:
    site = make_site("mariadb procedures")
    vendor = site.article("vendor", VENDOR)
    assert _bulk_operations(site) == {vendor.article_id: ALL}
    name = f"sp_MSins_{site.schema}vendor"
    ((_, _, created, *_),) = site.execute(f"SHOW CREATE PROCEDURE {name}")
    edited = created.replace("BEGIN\n", "BEGIN\n  INSERT INTO trail VALUES (c1);\n", 1)
    site.execute("CREATE TABLE trail (id int)", f"DROP PROCEDURE {name}", edited)
    assert _bulk_operations(site) == {vendor.article_id: {UPD, DEL}}
    history = History().insert(vendor, ONE).insert(vendor, TWO).update(vendor, ONE, ["1", "uno", "10", "first"])
    history.transaction().update(vendor, TWO, ["2", "due", "20", None]).delete(vendor, TWO)
    result = _both_ways(site, history, "DELETE FROM vendor", "DELETE FROM trail", tables=["vendor", "trail"])
    assert (result.error, result.in_bulk) == (None, 3)
    assert site.rows("trail") == [(1,), (2,)]


def test_a_lock_that_is_held_is_no_reason_to_go_serially(mariadb_site: Site, mariadb: MariaDbServer) -> None:
    vendor = mariadb_site.article("vendor", VENDOR)
    mariadb_site.deliver(History().insert(vendor, ONE)).raise_error()
    history = History(xact=1).transaction().update(vendor, ONE, ["1", "uno", "10", "first"])
    with mariadb.connect(mariadb_site.schema) as session, session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM vendor FOR UPDATE")
        result = mariadb_site.deliver(history, seqno(1), options=ApplierOptions(lock_timeout_seconds=1))
    assert result.error is not None
    assert (result.error.kind, result.error.shown_number, result.fallbacks) == (ErrorKind.TRANSIENT, "1222 (1205)", {})
