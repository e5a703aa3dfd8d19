"""What the event triggers of a Publisher announce: each published table that a command changed, as it is then."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import DatabaseFactory
from support.announced import PUBLICATION, Announcing, Told, announcing_template
from support.embedded_postgres import PostgresServer
from support.site import execute

_SERVERS = ["postgres", "debian_postgres"]


@pytest.fixture
def site(request: pytest.FixtureRequest, database: DatabaseFactory) -> Announcing:
    server: PostgresServer = request.getfixturevalue(getattr(request, "param", "postgres"))
    site = Announcing(database("publisher", server, announcing_template))
    site.keep_log()
    return site


def _column(told: Told, name: str) -> dict[str, Any]:
    return next(dict(it) for it in told["columns"] if it["name"] == name)


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
        "v": 1,
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


def test_a_rewrite_is_told_with_its_reason_before_the_table(site: Announcing) -> None:
    site.execute("INSERT INTO orders VALUES (1, 'x', 'ok', 1, 1)")
    told = site.told_of("ALTER TABLE orders ADD COLUMN chance float8 DEFAULT random()")
    assert [(it["event"], it.get("rewrite", {}).get("reason")) for it in told] == [
        ("table_rewrite", 2),
        ("ddl_command_end", None),
    ]
    assert not _column(told[1], "chance")["has_missing"]


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
def test_partitions_that_get_their_identity_are_told_once(site: Announcing) -> None:
    leaves = [f"CREATE TABLE deep_{n} PARTITION OF deep FOR VALUES IN ({n})" for n in range(20)]
    deep = "CREATE TABLE deep (note text, at date NOT NULL, id int NOT NULL) PARTITION BY LIST (id)"
    site.execute("ALTER TABLE ONLY event REPLICA IDENTITY FULL", deep, *leaves)
    site.execute(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE deep_0")
    site.told()
    told = site.told_of("ALTER TABLE event ATTACH PARTITION deep FOR VALUES FROM ('2026-04-01') TO ('2026-05-01')")
    # By itself, deep_0 is told of its root's command and of its own.
    assert sorted(it.get("name", "event") for it in told) == ["deep_0", "deep_0", "event"]
    assert {it["identity"] for it in told if it.get("name") == "deep_0"} == {"f"}
    plain = "SELECT count(*) FROM pg_class WHERE relname ~ '^deep_' AND relkind = 'r' AND relreplident <> 'f'"
    assert execute(site.connection, plain) == [(0,)]


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
