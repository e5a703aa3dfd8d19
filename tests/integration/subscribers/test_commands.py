"""What every Subscriber does with commands, whatever its database and however they reach it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event

import pytest

from support.command_history import Column, History, seqno
from support.subscribers import KEY, Site
from tranrepl.errors import DataError, ErrorKind, FencedError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.subscriber.batching.steps import SerialStep
from tranrepl.subscriber.registry import dialect_of

VENDOR = [
    Column("id", "integer", key=1),
    Column("name", "character varying(40)", not_null=True),
    Column("rating", "integer"),
    Column("note", "text"),
]
ONE = ["1", "one", "10", "first"]
TWO = ["2", "two", "20", None]


def test_rows_are_inserted_updated_and_deleted(site: Site) -> None:
    vendor = site.article("vendor", VENDOR)
    history = History()
    for number in range(1, 21):
        history.transaction().insert(vendor, [str(number), f"name {number}", str(number), None])
    for number in range(1, 16):
        before = [str(number), f"name {number}", str(number), None]
        history.transaction().update(vendor, before, [before[0], "changed", before[2], before[3]])
    for number in range(11, 21):
        name = "changed" if number < 16 else f"name {number}"
        history.transaction().delete(vendor, [str(number), name, str(number), None])
    result = site.deliver(history)
    assert (result.error, result.transactions, result.commands) == (None, 45, 45)
    assert site.rows("vendor") == [(number, "changed", number, None) for number in range(1, 11)]
    assert site.watermark() == seqno(45)


def test_null_and_unchanged_and_empty_are_three_things(site: Site) -> None:
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ONE).insert(vendor, TWO).insert(vendor, ["3", "", None, ""])
    history.transaction().update(vendor, ONE, ["1", "one", None, "first"])
    history.update(vendor, TWO, ["2", "two", "20", ""])
    history.update(vendor, ["3", "", None, ""], ["3", "three", None, None])
    assert site.deliver(history).error is None
    assert site.rows("vendor") == [(1, "one", None, "first"), (2, "two", 20, ""), (3, "three", None, None)]


def test_a_key_changes_by_an_update(site: Site) -> None:
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ONE).insert(vendor, TWO)
    history.transaction().update(vendor, ONE, ["5", "one", "10", "first"])
    history.update(vendor, TWO, ["1", "moved", "20", None])
    assert site.deliver(history).error is None
    assert site.rows("vendor") == [(1, "moved", 20, None), (5, "one", 10, "first")]


def test_a_key_of_two_columns_is_matched_in_its_own_order(site: Site) -> None:
    columns = [Column("b", "integer", key=2), Column("value"), Column("a", "character varying(10)", key=1)]
    pair = site.article("pair", columns)
    history = History().insert(pair, ["1", "x", "k"]).insert(pair, ["2", "y", "k"]).insert(pair, ["1", "z", "l"])
    history.transaction().update(pair, ["1", "x", "k"], ["1", "X", "k"])
    history.update(pair, ["2", "y", "k"], ["3", "y", "m"])
    history.delete(pair, ["1", "z", "l"])
    assert site.deliver(history).error is None
    assert site.rows("pair", "b", "value", "a") == [(1, "X", "k"), (3, "y", "m")]
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        found = [subscriber.rows_of_key(pair, key) for key in (["m", "3"], ["m", "1"])]
        with pytest.raises(DataError):
            subscriber.rows_of_key(pair, ["m", "no number"])
    assert found == [[["3", "y", "m"]], []]


def test_delete_and_insert_of_one_key_go_in_order(site: Site) -> None:
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ONE).insert(vendor, TWO)
    for round_ in range(6):
        one, other = (ONE, TWO) if round_ % 2 == 0 else (["1", *TWO[1:]], ["2", *ONE[1:]])
        history.transaction().delete(vendor, one).delete(vendor, other)
        history.insert(vendor, ["1", *other[1:]]).insert(vendor, ["2", *one[1:]])
    assert site.deliver(history).error is None
    assert site.rows("vendor") == [(1, "one", 10, "first"), (2, "two", 20, None)]


def test_an_update_that_changes_nothing_at_the_subscriber_has_met_its_row(site: Site) -> None:
    vendor = site.article("vendor", VENDOR)
    site.deliver(History().insert(vendor, ONE)).raise_error()
    history = History(xact=1).transaction().update(vendor, ["1", "one", "0", "first"], ONE)
    assert site.deliver(history, seqno(1)).error is None
    assert site.rows("vendor") == [(1, "one", 10, "first")]


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_a_missing_row_is_error_20598_and_rolls_the_batch_back(site: Site, operation: str) -> None:
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ONE)
    history.transaction().insert(vendor, TWO).update(vendor, TWO, ["2", "two", "21", None])
    history.transaction().update(vendor, ONE, ["1", "uno", "10", "first"])
    missing = ["7", "seven", "7", None]
    if operation == "UPDATE":
        history.update(vendor, missing, ["7", "sept", "7", None])
        history.update(vendor, ["1", "uno", "10", "first"], ["1", "eins", "10", "first"])
    else:
        history.delete(vendor, missing).delete(vendor, TWO)
    result = site.deliver(history, transactions=1)
    error = result.error
    assert error is not None
    assert (error.kind, error.number, error.article) == (ErrorKind.DATA, "20598", "public.vendor")
    assert (error.xact_seqno, error.command_id) == (seqno(3).hex(), 2)
    assert f"replicated {operation} command for Table '{site.schema}.vendor'" in error.message
    assert "id = 7" in error.message
    assert (result.transactions, result.commands) == (2, 3)
    assert site.rows("vendor") == [(1, "one", 10, "first"), (2, "two", 21, None)]
    assert site.watermark() == seqno(2)


def test_a_duplicate_key_names_its_command(site: Site) -> None:
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ONE).insert(vendor, TWO).insert(vendor, ONE).insert(vendor, ["3", "x", "1", "x"])
    error = site.deliver(history).error
    assert error is not None
    assert (error.kind, error.article) == (ErrorKind.DATA, "public.vendor")
    assert (error.xact_seqno, error.command_id) == (seqno(1).hex(), 3)
    assert site.rows("vendor") == []
    assert site.watermark() == FIRST_XACT_SEQNO


def test_a_refused_null_names_its_command(site: Site) -> None:
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ONE).insert(vendor, ["2", None, "20", "not \x1b so"])
    error = site.deliver(history).error
    assert error is not None
    assert (error.kind, error.command_id) == (ErrorKind.DATA, 2)
    # As a database of texts and a terminal take it.
    assert r"not \x1b so" in (error.command or "")


def test_commands_are_not_applied_twice(site: Site) -> None:
    # A job died after a commit: the next one starts from the watermark; a second one is fenced off.
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ONE)
    history.transaction().insert(vendor, TWO)
    history.transaction().update(vendor, ONE, ["1", "one", "11", "first"])
    first = site.deliver(history.table().slice(0, 2), transactions=1)
    assert (first.transactions, site.watermark()) == (2, seqno(2))

    again = site.deliver(history, FIRST_XACT_SEQNO)
    assert again.error is not None
    assert again.error.kind is ErrorKind.FENCED
    assert (again.commands, site.rows("vendor")) == (0, [(1, "one", 10, "first"), (2, "two", 20, None)])

    rest = site.deliver(history.table().slice(2), site.watermark())
    assert (rest.error, rest.transactions) == (None, 1)
    assert site.rows("vendor") == [(1, "one", 11, "first"), (2, "two", 20, None)]


def test_columns_of_the_subscribers_own_are_left_alone(plain_site: Site) -> None:
    site = plain_site
    site.execute(
        f"CREATE TABLE {site.quoted('vendor')} (id int PRIMARY KEY, own varchar(20) DEFAULT 'default', "
        "name varchar(40) NOT NULL, rating int, note varchar(20))"
    )
    vendor = site.article("vendor", VENDOR)
    site.deliver(History().insert(vendor, ONE).insert(vendor, TWO)).raise_error()
    site.execute("UPDATE vendor SET own = 'mine' WHERE id = 1")
    history = History(xact=1).transaction().update(vendor, ONE, ["1", "uno", "10", "first"])
    site.deliver(history, seqno(1)).raise_error()
    assert site.rows("vendor", "id", "own", "name") == [(1, "mine", "uno"), (2, "default", "two")]


_TRIGGERS = {
    "postgres": (
        "CREATE TABLE trail (id int)",
        """CREATE FUNCTION leave_trail() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO trail VALUES (coalesce(NEW.id, OLD.id)); RETURN NULL; END $$""",
        "CREATE TRIGGER trail AFTER INSERT OR UPDATE OR DELETE ON vendor FOR EACH ROW EXECUTE FUNCTION leave_trail()",
    ),
    "mariadb": (
        "CREATE TABLE trail (id int)",
        *(
            f"CREATE TRIGGER trail_{event} AFTER {event} ON vendor FOR EACH ROW INSERT INTO trail VALUES ({row}.id)"
            for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"))
        ),
    ),
    "mssql": (
        "CREATE TABLE trail (id int)",
        """CREATE TRIGGER leave_trail ON vendor AFTER INSERT, UPDATE, DELETE AS
        INSERT INTO trail SELECT coalesce(i.id, d.id) FROM inserted i FULL JOIN deleted d ON i.id = d.id""",
    ),
    "sqlite": (
        "CREATE TABLE trail (id int)",
        *(
            f"CREATE TRIGGER trail_{event} AFTER {event} ON vendor BEGIN INSERT INTO trail VALUES ({row}.id); END"
            for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD"))
        ),
    ),
}


def test_a_trigger_fires_once_for_each_command(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR)
    site.execute(*_TRIGGERS[site.kind.database])
    history = History()
    for number in range(1, 31):
        history.insert(vendor, [str(number), "name", None, None])
    for number in range(1, 21):
        history.update(vendor, [str(number), "name", None, None], [str(number), "other", None, None])
    for number in range(1, 11):
        history.delete(vendor, [str(number), "other", None, None])
    assert site.deliver(history).error is None
    fired = site.execute("SELECT id, count(*) FROM trail GROUP BY id ORDER BY id")
    assert fired == [(number, 3 if number <= 10 else 2 if number <= 20 else 1) for number in range(1, 31)]


def test_truncate_empties_the_articles_rows_in_order(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR)
    history = History().insert(vendor, ONE).truncate(vendor).insert(vendor, TWO)
    assert site.deliver(history).error is None
    assert site.rows("vendor") == [(2, "two", 20, None)]


def test_truncate_leaves_rows_that_the_filter_does_not_let_through(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR, filter="Rating > 15 AND name <> 'it''s: 50%'")
    site.execute("INSERT INTO vendor (id, name, rating) VALUES (8, 'theirs', 1), (9, 'it''s: 50%', 99)")
    history = History().insert(vendor, TWO).truncate(vendor).insert(vendor, ["3", "three", "30", None])
    assert site.deliver(history).error is None
    assert [row[0] for row in site.rows("vendor")] == [3, 8, 9]


@pytest.mark.parametrize(("condition", "left"), [("false", [2, 8]), ("1 = 1", []), ("NOT false", [])])
def test_truncate_by_a_filter_without_a_column_takes_all_rows_or_none(
    condition: str, left: list[int], plain_site: Site
) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR, filter=condition)
    site.execute("INSERT INTO vendor (id, name, rating) VALUES (8, 'theirs', 1)")
    assert site.deliver(History().insert(vendor, TWO).truncate(vendor)).error is None
    assert [row[0] for row in site.rows("vendor")] == left


NAMES = [
    "order",
    "Select",
    "it's",
    'a "b"',
    "50%",
    "a`b",
    "c1",
    "pkc1",
    "bitmap",
    ":colon",
    "é ñ",
    "%s",
    "%(x)s",
    "a.b",
]


def test_any_name_is_a_name(plain_site: Site) -> None:
    site = plain_site
    columns = [Column("Key", "integer", key=1), *(Column(name, "text") for name in NAMES)]
    table = 'Order "x" 100%: `y`'
    article = site.article(table, columns)
    row: list[str | None] = ["1", *NAMES]
    history = History().insert(article, row).insert(article, ["2", *NAMES])
    history.transaction().update(article, row, ["1", *(f"{name}!" for name in NAMES)])
    history.delete(article, ["2", *NAMES])
    result = site.deliver(history)
    assert result.error is None
    assert site.rows(table) == [(1, *(f"{name}!" for name in NAMES))]
    error = site.deliver(History(xact=2).transaction().delete(article, row).delete(article, row), seqno(2)).error
    assert error is not None
    assert (error.number, error.command_id) == ("20598", 2)
    assert "Key = 1" in error.message


def test_two_articles_take_turns(plain_site: Site) -> None:
    site = plain_site
    vendor, other = site.article("vendor", VENDOR), site.article("other", VENDOR)
    history = History()
    for number in range(1, 6):
        history.transaction().insert(vendor, [str(number), "vendor", None, None])
        history.insert(other, [str(number), "other", None, None])
    result = site.deliver(history)
    assert result.commands_by_article == {"public.vendor": 5, "public.other": 5}
    assert [row[1] for row in site.rows("vendor") + site.rows("other")] == ["vendor"] * 5 + ["other"] * 5


def test_a_second_delivery_waits_for_the_first_and_is_fenced_off(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR)
    dialect = dialect_of(site.connection)
    begun = Event()

    def second() -> None:
        with dialect.applier(site.connection, KEY, site.articles) as applier:
            begun.set()
            applier.begin(FIRST_XACT_SEQNO)

    with ThreadPoolExecutor(1) as threads, dialect.applier(site.connection, KEY, site.articles) as applier:
        applier.begin(FIRST_XACT_SEQNO)
        other = threads.submit(second)
        assert begun.wait(300)
        applier.apply([SerialStep(History().insert(vendor, ONE).table())])
        with pytest.raises(TimeoutError):
            other.result(0.5)
        applier.commit(seqno(1))
        with pytest.raises(FencedError):
            other.result(300)
    assert site.rows("vendor") == [(1, "one", 10, "first")]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_history_ends_in_the_same_rows_as_in_a_dictionary(site: Site, seed: int) -> None:
    random, vendor = Random(seed), site.article("vendor", VENDOR)
    rows: dict[str, list[str | None]] = {}
    history = History()
    for _ in range(300):
        if random.random() < 0.4:
            history.transaction()
        key = str(random.randrange(12))
        image = [key, random.choice(["a", "", "c"]), random.choice(["1", None]), random.choice(["x", "", None])]
        if key not in rows:
            history.insert(vendor, image)
            rows[key] = image
        elif random.random() < 0.3:
            history.delete(vendor, rows.pop(key))
        else:
            free = [str(it) for it in range(12) if str(it) not in rows]
            image[0] = random.choice([key, key, *free[:1]])
            before = rows.pop(key)
            history.update(vendor, before, image)
            rows[str(image[0])] = image
    assert site.deliver(history, transactions=20).error is None
    found = [[str(row[0]), row[1], None if row[2] is None else str(row[2]), row[3]] for row in site.rows("vendor")]
    assert found == [rows[key] for key in sorted(rows, key=int)]


def test_every_column_of_a_wide_table_has_its_bit(site: Site) -> None:
    columns = [Column("id", "integer", key=1), *(Column(f"c{at}", "integer") for at in range(2, 41))]
    wide = site.article("wide", columns)
    row: list[str | None] = ["1", *(str(at) for at in range(2, 41))]
    history = History().insert(wide, row)
    for at in range(1, 40):
        changed = [*row[:at], str(-at) if at % 2 else None, *row[at + 1 :]]
        history.transaction().update(wide, row, changed)
        row = changed
    assert site.deliver(history).error is None
    assert site.rows("wide") == [tuple(None if it is None else int(it) for it in row)]
