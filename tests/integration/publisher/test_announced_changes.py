"""What the event triggers of a Publisher announce: each published table that a command changed, as it is then."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import DatabaseFactory
from support.announced import PUBLICATION, Announcing, Told
from support.site import execute
from tranrepl.model.position import FIRST_POSITION
from tranrepl.postgres.session import connect
from tranrepl.publisher.announcements import TableAnnouncement
from tranrepl.publisher.postgres.schema_messages import read_announcements, read_definitions

_SERVERS = ["postgres", "debian_postgres"]
_HERE = FIRST_POSITION


@pytest.fixture
def site(request: pytest.FixtureRequest, database: DatabaseFactory) -> Announcing:
    site = Announcing(database("publisher", request.getfixturevalue(getattr(request, "param", "postgres")))).create()
    site.set_up()
    return site


def _column(told: Told, name: str) -> dict[str, Any]:
    return next(dict(it) for it in told["columns"] if it["name"] == name)


def _tables(told: list[Told]) -> list[str]:
    return [it["name"] for it in told]


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_an_added_column_comes_with_the_value_of_rows_that_exist(site: Announcing) -> None:
    site.execute("INSERT INTO orders VALUES (1, 'x', 'ok', 1, 1)")
    with site.user() as session:
        session.execute("SET DateStyle = 'German'")
        session.execute("SET TimeZone = 'Asia/Tokyo'")
        session.execute("SET quote_all_identifiers = on")
        session.execute("ALTER TABLE orders ADD COLUMN at timestamptz DEFAULT '2026-01-02 03:04:05+00'")
    (told,) = site.told()
    assert {key: told[key] for key in ("v", "event", "tag", "schema", "name", "kind", "identity", "defaults_told")} == {
        "v": 4,
        "event": "ddl_command_end",
        "tag": "ALTER TABLE",
        "schema": "public",
        "name": "orders",
        "kind": "r",
        "identity": "d",
        "defaults_told": True,
    }
    assert [it["name"] for it in told["columns"]] == ["id", "note", "how", "price", "code", "at"]
    added = _column(told, "at")
    assert (added["num"], added["type"], added["has_missing"]) == (6, "timestamp with time zone", True)
    assert (added["missing"], added["default"]) == (
        "2026-01-02 03:04:05+00",
        "'2026-01-02 03:04:05+00'::timestamp with time zone",
    )
    assert [it["labels"] for it in _column(told, "how")["types"]] == [["sad", "ok"]]
    assert [(it["name"], it["primary"], it["columns"]) for it in told["unique"]] == [("orders_pkey", True, [1])]


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_added_values_are_told_as_they_are_written(site: Announcing) -> None:
    values = {
        "a": "text DEFAULT 'one, \"two\" {3\\4}'",
        "b": "text DEFAULT ''",
        "c": "text DEFAULT 'null'",
        "d": "text DEFAULT E'five\n six'",
        "e": "box DEFAULT '(2,2),(1,1)'",
        "f": "box[] DEFAULT '{(2,2),(1,1);(4,4),(3,3)}'",
        "g": "int[] DEFAULT '{{1,2},{3,NULL}}'",
        "h": "mood[] DEFAULT '{ok,sad}'",
        "i": "pair DEFAULT '(7,8)'",
    }
    site.execute("INSERT INTO orders VALUES (1, 'x', 'ok', 1, 1)")
    (told,) = site.told_of("ALTER TABLE orders " + ", ".join(f"ADD COLUMN {it} {how}" for it, how in values.items()))
    with site.user() as session:
        row = session.execute("SELECT " + ", ".join(f"{it}::text" for it in values) + " FROM orders").fetchone()
    assert [_column(told, it)["missing"] for it in values] == list(row or ())


_OF_OTHER_COLLATIONS = ("a text", 'b text COLLATE "C"', "c name", 'd name COLLATE "POSIX"', "e varchar(9)[]", "f int[]")
_OF_OWN_TYPES = ("g mood", "h mood[]", "i pair", "j amount")
_TYPES = (
    "CREATE DOMAIN tag AS text COLLATE \"C\" CHECK (VALUE <> '') CHECK (length(VALUE) < 9)",
    "CREATE DOMAIN moods AS mood[] NOT NULL DEFAULT '{}'",
    "CREATE TYPE span AS RANGE (subtype = amount)",
    "CREATE TYPE hue AS ENUM ('red', 'blue')",
    "CREATE TYPE nested AS (gone int, hue hue, tags tag[], pairs pair[], spans span, price numeric(9, 2))",
    "ALTER TYPE nested DROP ATTRIBUTE gone",
)
_NESTED = (*_OF_OWN_TYPES, 'k tag COLLATE "POSIX"', "l tag", "m moods DEFAULT '{}'", "n nested[]")


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
@pytest.mark.parametrize(
    "own", [(), _OF_OWN_TYPES[:1], _OF_OWN_TYPES[3:], _NESTED], ids=["none", "enumerated", "domain", "of all kinds"]
)
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_table_is_told_as_setup_describes_it(site: Announcing, own: tuple[str, ...], level: str) -> None:
    columns = ", ".join(f"ADD COLUMN {it}" for it in (*_OF_OTHER_COLLATIONS, *own))
    site.execute(*_TYPES, "ALTER TABLE orders DROP COLUMN how")
    site.execute(f"ALTER TABLE orders {columns}, DROP COLUMN note, DROP COLUMN code")
    site.execute("CREATE UNIQUE INDEX orders_a ON orders (b, a)", "ALTER TYPE mood ADD VALUE 'glad' BEFORE 'ok'")
    site.told()
    site.execute(f"BEGIN ISOLATION LEVEL {level}; ALTER TABLE orders ALTER price SET DEFAULT 1; COMMIT")
    (announced,) = [it for message in site.messages() for it in read_announcements(message, PUBLICATION, _HERE)]
    assert isinstance(announced, TableAnnouncement)
    with connect(site.connection, "test") as session:
        session.execute("SET search_path = pg_catalog")
        (described,) = read_definitions(session, [announced.object_id], _HERE).values()
    assert announced.definition == described


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
@pytest.mark.parametrize(
    ("others", "own"),
    [
        ("ALTER TABLE item ALTER note SET STATISTICS 8", "ALTER TABLE item ALTER note TYPE varchar(30)"),
        ("ALTER TABLE item ALTER note SET DEFAULT 'a'", "ALTER TABLE item ALTER note SET DEFAULT 'b'"),
        ("ALTER TABLE item SET (fillfactor = 90)", "ALTER TABLE item REPLICA IDENTITY FULL"),
    ],
)
def test_what_two_have_altered_is_told_as_the_last_one_left_it(site: Announcing, others: str, own: str) -> None:
    # The catalogues get pages with room for what is altered twice.
    spare = [f"spare_{n}" for n in range(40)]
    site.drop_log()
    site.execute(*(f"CREATE TABLE {it} (a int, b int, c int, d int)" for it in spare))
    site.execute("DROP TABLE " + ", ".join(spare), "VACUUM pg_attribute", "VACUUM pg_class")
    site.keep_log()
    table = "CREATE TABLE item (id int PRIMARY KEY, note varchar(20))"
    site.execute(table, f"ALTER PUBLICATION {PUBLICATION} ADD TABLE item")
    with site.user() as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
        site.execute(others)
        site.told()
        session.execute(own.encode())
        session.execute("COMMIT")
    (announced,) = [it for message in site.messages() for it in read_announcements(message, PUBLICATION, _HERE)]
    assert isinstance(announced, TableAnnouncement)
    assert announced.own is not None
    assert announced.own.columns or announced.own.table
    with connect(site.connection, "test") as session:
        session.execute("SET search_path = pg_catalog")
        (described,) = read_definitions(session, [announced.object_id], _HERE).values()
    assert announced.definition == described


def test_a_rewrite_is_told_with_its_reason_before_the_table(site: Announcing) -> None:
    site.execute("INSERT INTO orders VALUES (1, 'x', 'ok', 1, 1)")
    told = site.told_of("ALTER TABLE orders ADD COLUMN chance float8 DEFAULT random()")
    assert [(it["event"], it.get("rewrite", {}).get("reason")) for it in told] == [
        ("table_rewrite", 2),
        ("ddl_command_end", None),
    ]
    assert not _column(told[1], "chance")["has_missing"]


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
@pytest.mark.parametrize(
    "command",
    [
        "DROP TYPE mood CASCADE",
        "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'",
        "ALTER DOMAIN amount ADD CHECK (VALUE > 0)",
        "CREATE UNIQUE INDEX one_code ON orders (code)",
        "ALTER TABLE orders RENAME COLUMN code TO number",
        "ALTER SCHEMA public RENAME TO common",
    ],
)
def test_a_command_that_does_not_name_the_table_is_told_of_it(site: Announcing, command: str) -> None:
    assert "orders" in _tables(site.told_of(command))


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
@pytest.mark.parametrize(
    ("command", "tables"),
    [
        ("ALTER TYPE mood ADD VALUE 'glad'", {"of_enumerated", "of_list", "of_composite"}),
        ("ALTER DOMAIN amount SET DEFAULT 1", {"of_domain", "of_range"}),
        ("ALTER TYPE inner_one ADD ATTRIBUTE more int", {"of_composite"}),
        ("ALTER TYPE form RENAME ATTRIBUTE a TO b CASCADE", {"of_form"}),
        ("ALTER TYPE span RENAME TO extent", {"of_range"}),
    ],
)
def test_an_altered_type_is_told_of_all_tables_that_are_made_of_it(
    site: Announcing, command: str, tables: set[str]
) -> None:
    site.execute(
        "CREATE TABLE of_enumerated (id int, a mood)",
        "CREATE DOMAIN moods AS mood[]",
        "CREATE TABLE of_list (id int, a moods)",
        "CREATE TYPE inner_one AS (how mood)",
        "CREATE TYPE outer_one AS (inner_ones inner_one[])",
        "CREATE TABLE of_composite (id int, a outer_one[])",
        "CREATE TABLE of_domain (id int, a amount)",
        "CREATE TYPE span AS RANGE (subtype = amount)",
        "CREATE TABLE of_range (id int, a span)",
        "CREATE TYPE form AS (a int)",
        "CREATE TABLE of_form OF form",
        "ALTER TABLE orders DROP COLUMN how, DROP COLUMN price",
        f"ALTER PUBLICATION {PUBLICATION} ADD TABLE of_enumerated, of_list, of_composite, of_domain, of_range, of_form",
    )
    assert set(_tables(site.told_of(command))) == tables
    assert site.warnings() == []


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
@pytest.mark.parametrize(
    ("command", "tables"),
    [
        ("ALTER TABLE root ADD COLUMN more int", ["leaf", "near"]),
        ("ALTER TABLE branch ALTER note SET NOT NULL", ["leaf"]),
        ("CREATE UNIQUE INDEX ON root (id)", ["leaf", "near"]),
        ("CREATE TABLE other PARTITION OF root FOR VALUES FROM (500) TO (600)", []),
        ("BEGIN; SELECT FROM root; ALTER TABLE root RENAME TO trunk; COMMIT", []),
        ("ALTER TABLE low ALTER note SET NOT NULL", ["high", "low"]),
        ("ALTER TABLE event ADD COLUMN more int", ["event", "event_1"]),
        ("ALTER TABLE event_1 ALTER note SET NOT NULL", ["event", "event_1"]),
        ("ALTER TABLE ancestor ADD COLUMN more int", ["ancestor", "heir", "next_heir"]),
        ("ALTER TABLE middle ADD COLUMN more int", ["next_heir"]),
        ("ALTER TABLE heir ADD COLUMN more int", ["heir"]),
    ],
)
def test_what_is_done_to_a_table_is_told_of_those_below_it(site: Announcing, command: str, tables: list[str]) -> None:
    site.execute(
        "CREATE TABLE root (id int, note text) PARTITION BY RANGE (id)",
        "CREATE TABLE branch PARTITION OF root FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF branch FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE near PARTITION OF root FOR VALUES FROM (100) TO (200)",
        "CREATE TABLE low (id int, note text) PARTITION BY LIST (id)",
        "CREATE TABLE lowest PARTITION OF low FOR VALUES IN (1)",
        "CREATE TABLE high (id int, note text) PARTITION BY RANGE (id)",
        "ALTER TABLE high ATTACH PARTITION low FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE ancestor (id int, note text)",
        "CREATE TABLE heir () INHERITS (ancestor)",
        "CREATE TABLE middle () INHERITS (ancestor)",
        "CREATE TABLE next_heir () INHERITS (middle)",
        f"ALTER PUBLICATION {PUBLICATION} ADD TABLE leaf, near, low, high, ONLY ancestor, heir, next_heir, event_1",
    )
    with site.user() as session:
        names = dict(session.execute("SELECT oid::bigint, relname::text FROM pg_class").fetchall())
    assert sorted(names[it["oid"]] for it in site.told_of(command)) == tables
    assert site.warnings() == []


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_an_altered_type_is_told_of_what_is_below_the_tables_of_that_type(site: Announcing) -> None:
    site.execute(
        "CREATE TYPE form AS (id int, note text)",
        "CREATE TABLE divided OF form PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF divided FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE plain OF form",
        f"ALTER PUBLICATION {PUBLICATION} ADD TABLE part, plain, divided",
    )
    told = site.told_of("ALTER TYPE form ADD ATTRIBUTE more int CASCADE")
    assert {it["name"] for it in told if "columns" in it} == {"divided", "part", "plain"}


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_an_index_that_becomes_valid_with_its_last_partition_is_told(site: Announcing) -> None:
    site.execute(
        "CREATE TABLE root (id int NOT NULL) PARTITION BY RANGE (id)",
        "CREATE TABLE branch PARTITION OF root FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF branch FOR VALUES FROM (0) TO (50)",
        f"ALTER PUBLICATION {PUBLICATION} ADD TABLE root",
        *(f"CREATE UNIQUE INDEX {it}_id ON ONLY {it} (id)" for it in ("root", "branch", "leaf")),
        "ALTER INDEX root_id ATTACH PARTITION branch_id",
    )
    (told,) = site.told_of("ALTER INDEX branch_id ATTACH PARTITION leaf_id")
    assert [it["name"] for it in told["unique"]] == ["root_id"]


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
@pytest.mark.parametrize("how", ["", "CONCURRENTLY "])
def test_a_dropped_index_is_told_of_its_table_alone(site: Announcing, how: str) -> None:
    site.execute("CREATE TABLE more (id int PRIMARY KEY)", f"ALTER PUBLICATION {PUBLICATION} ADD TABLE more")
    site.execute(
        "CREATE UNIQUE INDEX one_code ON orders (code)", "ALTER TABLE orders REPLICA IDENTITY USING INDEX one_code"
    )
    assert set(_tables(site.told_of(f"DROP INDEX {how}one_code"))) == {"orders"}


def test_tables_that_are_not_published_are_not_told(site: Announcing) -> None:
    assert site.told_of("ALTER TABLE aside ADD COLUMN a int", "DROP TABLE aside", "CREATE TABLE aside (id int)") == []


def test_what_is_rolled_back_is_not_told(site: Announcing) -> None:
    assert site.told_of("BEGIN", "ALTER TABLE orders ADD COLUMN a int", "ROLLBACK") == []


def test_a_table_that_goes_is_told_as_unpublished(site: Announcing) -> None:
    (dropped,) = site.told_of("DROP TABLE orders")
    (gone,) = dropped["unpublished"]
    assert (dropped["tag"], gone["publication"], gone["name"], gone["oid"] is None) == (
        "DROP TABLE",
        PUBLICATION,
        "orders",
        False,
    )
    (taken_out,) = site.told_of(f"ALTER PUBLICATION {PUBLICATION} DROP TABLE event")
    assert [(it["name"], it["oid"]) for it in taken_out["unpublished"]] == [("event", None)]


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_partitions_are_told_with_their_root(site: Announcing) -> None:
    def partitions(*commands: str) -> list[str]:
        told = site.told_of(*commands)
        with site.user() as session:
            root = session.execute("SELECT 'event'::regclass::oid::bigint").fetchone()
        assert {(it["oid"],) for it in told} == {root}
        return [it["name"] for it in told[-1].get("partitions", [])]

    new = "CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')"
    assert partitions(new) == ["event_1", "event_2"]
    assert partitions("ALTER TABLE event DETACH PARTITION event_1") == ["event_2"]
    attach = "ALTER TABLE event ATTACH PARTITION event_1 FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')"
    assert partitions(attach) == ["event_1", "event_2"]
    month = "FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')"
    below = f"CREATE TABLE event_3 PARTITION OF event {month} PARTITION BY LIST (id)"
    assert partitions(below, "CREATE TABLE event_3_1 PARTITION OF event_3 FOR VALUES IN (1)")[2:] == [
        "event_3",
        "event_3_1",
    ]
    assert partitions("DROP TABLE event_3_1") == ["event_1", "event_2", "event_3"]
    assert partitions("DROP TABLE event_2") == ["event_1", "event_3"]


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_a_partition_is_told_in_full_by_the_transaction_that_made_it_one(site: Announcing) -> None:
    def in_full(*commands: str) -> list[list[str]]:
        told = site.told_of(*commands)
        return [
            [it["name"] for it in one["partitions"] if it["bound"] is not None and it["empty"] is not None]
            for one in told
        ]

    new = "CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')"
    assert in_full(new) == [["event_2"]]
    assert in_full("ALTER TABLE event ALTER COLUMN note SET DEFAULT 'x'") == [[]]
    attach = "ALTER TABLE event ATTACH PARTITION event_2 FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')"
    again = f"ALTER TABLE event DETACH PARTITION event_2; SAVEPOINT a; {attach}; RELEASE a"
    more = "ALTER TABLE event ADD COLUMN more int DEFAULT 7"
    assert in_full(f"BEGIN; {again}; {more}; COMMIT") == [[], ["event_2"], ["event_2"]]
    (told,) = site.told_of("ALTER TABLE event ADD COLUMN most int DEFAULT 8")
    assert (_column(told, "most")["has_missing"], _column(told, "most")["missing"]) == (True, "8")


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_an_added_value_is_told_beside_a_partition_that_is_newer_than_it(site: Announcing) -> None:
    # The new partition, which keeps no such value, takes the place of a dropped one in the catalogue.
    bounds = "FOR VALUES FROM ('2026-0{}-01') TO ('2026-0{}-01')"
    second, third = bounds.format(2, 3), bounds.format(3, 4)
    site.drop_log()
    site.execute(f"CREATE TABLE event_2 PARTITION OF event {second}", "DROP TABLE event_1", "VACUUM pg_inherits")
    site.keep_log()
    site.execute("DROP EVENT TRIGGER tranrepl_ddl_end")
    (told,) = site.told_of(
        "BEGIN",
        "ALTER TABLE event ADD COLUMN more int DEFAULT 7",
        f"CREATE TABLE event_3 PARTITION OF event {third}",
        "SELECT tranrepl.announce('event')",
        "COMMIT",
    )
    assert (_column(told, "more")["has_missing"], _column(told, "more")["missing"]) == (True, "7")


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_a_new_partition_gets_the_identity_of_its_root(site: Announcing) -> None:
    site.execute("ALTER TABLE ONLY event REPLICA IDENTITY FULL")
    site.execute(
        "CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
        "CREATE TABLE event_3 (note text, at date NOT NULL, id int NOT NULL)",
        "ALTER TABLE event ATTACH PARTITION event_3 FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')",
        "CREATE TABLE event_4 (note text, at date NOT NULL, id int NOT NULL) PARTITION BY LIST (id)",
        "CREATE TABLE event_4_1 PARTITION OF event_4 FOR VALUES IN (1)",
        "ALTER TABLE event ATTACH PARTITION event_4 FOR VALUES FROM ('2026-04-01') TO ('2026-05-01')",
        "CREATE SCHEMA more CREATE TABLE event_5 PARTITION OF public.event "
        "FOR VALUES FROM ('2026-05-01') TO ('2026-06-01')",
    )
    identities = (
        "SELECT relname::text, relreplident::text FROM pg_class WHERE relname ~ '^event_[0-9_]+$' AND relkind = 'r'"
    )
    assert dict(execute(site.connection, identities)) == {
        "event_1": "d",
        "event_2": "f",
        "event_3": "f",
        "event_4_1": "f",
        "event_5": "f",
    }
    assert site.warnings() == []


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_a_message_of_a_subtransaction_comes_before_the_next_row(site: Announcing) -> None:
    site.execute("INSERT INTO orders (id) VALUES (1)")
    site.told()
    row, ddl = "UPDATE orders SET price = 3", "ALTER TABLE orders ADD COLUMN a int"
    site.execute("BEGIN", "SAVEPOINT a", row, "SAVEPOINT b", ddl, "RELEASE b", "RELEASE a", row, "COMMIT")
    kinds = [it for it in site.kinds() if it in "MU"]
    assert kinds[:2] == ["U", "M"]


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_an_owner_without_event_triggers_calls_the_function(site: Announcing) -> None:
    site.execute("INSERT INTO orders VALUES (1, 'x', 'ok', 1, 1)")
    for name in ("ddl_end", "drop", "rewrite"):
        site.execute(f"DROP EVENT TRIGGER tranrepl_{name}")
    call = "SELECT tranrepl.announce('orders', 'aside')"
    assert site.told_of("ALTER TABLE orders ADD COLUMN a int") == []
    (told,) = site.told_of("BEGIN", "ALTER TABLE orders ADD COLUMN b int DEFAULT 7", call, "COMMIT")
    assert (told["event"], told["tag"], told["name"], told.get("rewrite")) == ("call", "ALTER TABLE", "orders", None)
    assert _column(told, "b")["missing"] == "7"
    # That rows were rewritten is told too.
    (told,) = site.told_of("BEGIN", "ALTER TABLE orders ALTER COLUMN code TYPE bigint", call, "COMMIT")
    assert told["rewrite"] == {"oid": told["oid"], "reason": 6}
