"""Published tables are announced as setup describes them, also those that a command does not name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from conftest import DatabaseFactory
from support.announced import PUBLICATION, Announcing, Told, announcing, announcing_template
from support.embedded_postgres import PostgresServer
from tranrepl.model.position import FIRST_POSITION
from tranrepl.model.table_definition import TableDefinition
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres.schema_messages import read_definitions, read_schema_message
from tranrepl.schema.messages import AlteredTable

_SERVERS = ["postgres", "debian_postgres"]
_HERE = FIRST_POSITION


@pytest.fixture
def site(request: pytest.FixtureRequest, database: DatabaseFactory) -> Announcing:
    server: PostgresServer = request.getfixturevalue(getattr(request, "param", "postgres"))
    site = Announcing(database("publisher", server, announcing_template))
    site.keep_log()
    return site


def _tables(told: list[Told]) -> list[str]:
    return [it["name"] for it in told]


def _announced(site: Announcing) -> AlteredTable:
    """Return the only table that was announced since the log was last read."""
    (announced,) = [it for message in site.messages() for it in read_schema_message(message, PUBLICATION, _HERE)]
    assert isinstance(announced, AlteredTable)
    return announced


def _described(site: Announcing, object_id: int) -> TableDefinition:
    """Return a table as setup describes it."""
    with connect(site.connection, "test") as session:
        session.execute("SET search_path = pg_catalog")
        (described,) = read_definitions(session, [object_id], _HERE).values()
    return described


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
_NESTED = (
    *_OF_OWN_TYPES,
    "o information_schema.sql_identifier",
    'k tag COLLATE "POSIX"',
    "l tag",
    "m moods DEFAULT '{}'",
    "n nested[]",
)


_OWN = {"none": (), "enumerated": _OF_OWN_TYPES[:1], "domain": _OF_OWN_TYPES[3:], "of all kinds": _NESTED}
_Definitions = dict[tuple[str, str], tuple[TableDefinition, TableDefinition]]
_LEVELS = ["READ COMMITTED", "REPEATABLE READ"]


@pytest.fixture(scope="module", params=_SERVERS)
def definitions(
    request: pytest.FixtureRequest,
) -> Iterator[dict[tuple[str, str], tuple[TableDefinition, TableDefinition]]]:
    """Yield how each of the tables of one site, with its own columns and altered at its level, was announced, and how
    setup describes it."""
    cases = {(own, level): f"altered_{at}" for at, (own, level) in enumerate(product(_OWN, _LEVELS))}
    with announcing(request.getfixturevalue(request.param), "definitions") as site:
        site.execute(*_TYPES)
        for (own, _), table in cases.items():
            columns = ", ".join(f"ADD COLUMN {it}" for it in (*_OF_OTHER_COLLATIONS, *_OWN[own]))
            site.execute(
                f"CREATE TABLE {table} (LIKE orders INCLUDING ALL)",
                f"ALTER PUBLICATION {PUBLICATION} ADD TABLE {table}",
                f"ALTER TABLE {table} DROP COLUMN how",
                f"ALTER TABLE {table} {columns}, DROP COLUMN note, DROP COLUMN code",
                f"CREATE UNIQUE INDEX {table}_a ON {table} (b, a)",
            )
        site.execute("ALTER TYPE mood ADD VALUE 'glad' BEFORE 'ok'")
        found = {}
        for (own, level), table in cases.items():
            site.told()
            site.execute(f"BEGIN ISOLATION LEVEL {level}; ALTER TABLE {table} ALTER price SET DEFAULT 1; COMMIT")
            announced = _announced(site)
            found[own, level] = (announced.definition, _described(site, announced.object_id))
        yield found


@pytest.mark.parametrize("own", _OWN)
@pytest.mark.parametrize("level", _LEVELS)
def test_a_table_is_told_as_setup_describes_it(definitions: _Definitions, own: str, level: str) -> None:
    announced, described = definitions[own, level]
    assert announced == described


_BELOW = {
    "ALTER TABLE root ADD COLUMN more int": ["leaf", "near"],
    "ALTER TABLE branch ALTER note SET NOT NULL": ["leaf"],
    "CREATE UNIQUE INDEX ON root (id)": ["leaf", "near"],
    "CREATE TABLE other PARTITION OF root FOR VALUES FROM (500) TO (600)": [],
    "BEGIN; SELECT FROM root; ALTER TABLE root RENAME TO trunk; COMMIT": [],
    "ALTER TABLE low ALTER note SET NOT NULL": ["high", "low"],
    "ALTER TABLE event ADD COLUMN more int": ["event", "event_1"],
    "ALTER TABLE event_1 ALTER note SET NOT NULL": ["event", "event_1"],
    "ALTER TABLE ancestor ADD COLUMN more int": ["ancestor", "heir", "next_heir"],
    "ALTER TABLE middle ADD COLUMN most int": ["next_heir"],
    "ALTER TABLE heir ADD COLUMN most int": ["heir"],
}
_TABLES_BELOW = (
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
_MADE_OF = {
    "ALTER TYPE mood ADD VALUE 'glad'": {"of_enumerated", "of_list", "of_composite"},
    "ALTER DOMAIN amount SET DEFAULT 1": {"of_domain", "of_range"},
    "ALTER TYPE inner_one ADD ATTRIBUTE more int": {"of_composite"},
    "ALTER TYPE form RENAME ATTRIBUTE a TO b CASCADE": {"of_form"},
    "ALTER TYPE span RENAME TO extent": {"of_range"},
}
_TABLES_OF_TYPES = (
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
_UNNAMED_FIRST = (
    "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'",
    "ALTER DOMAIN amount ADD CHECK (VALUE > 0)",
    "CREATE UNIQUE INDEX one_code ON orders (code)",
    "ALTER TABLE orders RENAME COLUMN code TO number",
)
_UNNAMED_LAST = ("DROP TYPE mood CASCADE", "ALTER SCHEMA public RENAME TO common")


@dataclass(frozen=True, slots=True)
class _Executed:
    """What each command told, all of one site, where they follow one another."""

    told: dict[str, list[Told]]
    names: dict[int, str]
    warnings: list[str]


@pytest.fixture(scope="module", params=_SERVERS)
def executed(request: pytest.FixtureRequest) -> Iterator[_Executed]:
    with announcing(request.getfixturevalue(request.param), "executed") as site:
        site.execute(*_TABLES_BELOW)
        told = {it: site.told_of(it) for it in (*_BELOW, *_UNNAMED_FIRST)}
        site.execute(*_TABLES_OF_TYPES)
        told |= {it: site.told_of(it) for it in _MADE_OF}
        with site.user() as session:
            names = dict(session.execute("SELECT oid::bigint, relname::text FROM pg_class").fetchall())
        site.execute("ALTER TABLE orders ADD COLUMN how mood")
        told |= {it: site.told_of(it) for it in _UNNAMED_LAST}
        yield _Executed(told, names, site.warnings())


@pytest.mark.parametrize("command", [*_UNNAMED_FIRST, *_UNNAMED_LAST])
def test_a_command_that_does_not_name_the_table_is_told_of_it(executed: _Executed, command: str) -> None:
    assert "orders" in _tables(executed.told[command])


@pytest.mark.parametrize("command", _MADE_OF)
def test_an_altered_type_is_told_of_all_tables_that_are_made_of_it(executed: _Executed, command: str) -> None:
    assert set(_tables(executed.told[command])) == _MADE_OF[command]
    assert executed.warnings == []


@pytest.mark.parametrize("command", _BELOW)
def test_what_is_done_to_a_table_is_told_of_those_below_it(executed: _Executed, command: str) -> None:
    assert sorted(executed.names[it["oid"]] for it in executed.told[command]) == _BELOW[command]
    assert executed.warnings == []


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


@pytest.mark.parametrize("site", _SERVERS, indirect=True)
def test_a_table_is_told_once_and_only_where_we_publish_it(site: Announcing) -> None:
    site.execute(
        "CREATE PUBLICATION of_others FOR TABLE aside, orders", "CREATE PUBLICATION tranrepl_more FOR TABLE orders"
    )
    assert _tables(site.told_of("ALTER TABLE aside ADD COLUMN a int")) == []
    assert _tables(site.told_of("ALTER TABLE orders ADD COLUMN a int")) == ["orders"]
