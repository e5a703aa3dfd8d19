"""Tables and columns of any name and kind: identity, generated, quoted, reserved, too long, all key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from conftest import DatabasesFactory
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.subscriber.capabilities import NameLimit, NameUnit
from tranrepl.subscriber.procedure_names import procedure_name

SQL = {"ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"}
STYLES: dict[str, Mapping[str, str]] = {"procedures": {}, "statements": SQL}
SiteFactory = Callable[..., Site]


@pytest.fixture
def spark() -> SparkHere:
    """The jobs' tasks run in this process: nothing here is Spark's."""
    return SparkHere()


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> SiteFactory:
    """A factory of sites whose articles have one style."""

    def create(*articles: Mapping[str, object] | str, style: str = "procedures") -> Site:
        written = [{"source": it} if isinstance(it, str) else it for it in articles]
        return Site(databases(), tmp_path / "store", [{**it, **STYLES[style]} for it in written], spark)

    return create


def _rows(connection: Connection, table: TableName) -> Rows:
    statement = sql.SQL("SELECT * FROM {}").format(sql.Identifier(table.schema, table.table))
    return sorted(execute(connection, statement.as_string(None)), key=repr)


def _unequal(site: Site) -> list[str]:
    """Articles whose tables differ, or are empty: each whole, with what the Subscriber computes itself."""
    found = []
    for article in site.publication.articles:
        publisher = _rows(site.databases.publisher, article.source)
        if not publisher or publisher != _rows(site.databases.subscriber, article.destination_table):
            found.append(str(article.source))
    return found


def _problems(site: Site) -> list[str]:
    return [problem.message for problem in check(site.topology).problems]


# Names

NAMES = [
    "Mixed Case",
    "with.dot",
    'with "quotes"',
    "it's",
    "100% of %s and %(x)s %%",
    "{} {0} {name}",
    "back\\slash \\n",
    "$procedure$",
    "$1",
    "select",
    "user",
    "order",
    "c1",
    "pkc1",
    "bitmap",
    "destination",
    "tranrepl_command",
    "seq",
    "kind",
    "s0",
    "found",
    "sqlstate",
    "ünïcödé 表",
    "--",
    "/* ",
    ":colon",
    "[x]",
    "l" * 63,
    "\u00e9" * 31 + "x",
]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _create(table: TableName, columns: Sequence[str], key: Sequence[str]) -> str:
    fields = ", ".join(f"{_quoted(name)} text" for name in columns)
    listed = ", ".join(map(_quoted, key))
    return f"CREATE TABLE {_quoted(table.schema)}.{_quoted(table.table)} ({fields}, PRIMARY KEY ({listed}))"


def _work(table: TableName, columns: Sequence[str], key: Sequence[str]) -> list[str]:
    name = f"{_quoted(table.schema)}.{_quoted(table.table)}"
    first, last = _quoted(key[0]), _quoted(next((it for it in reversed(columns) if it not in key), key[-1]))
    values = ", ".join(f"n || {at}::text" for at in range(len(columns)))
    return [
        f"INSERT INTO {name} SELECT {values} FROM generate_series(1, 9) n",
        f"UPDATE {name} SET {last} = {last} || '!' WHERE left({first}, 1) < '5'",
        f"UPDATE {name} SET {first} = 'moved' || {first} WHERE left({first}, 1) = '2'",
        f"DELETE FROM {name} WHERE left({first}, 1) = '3'",
    ]


@pytest.mark.parametrize("style", STYLES)
def test_columns_of_any_name_arrive(style: str, site: SiteFactory) -> None:
    # Each name once inside the key and once outside; the two tables share nothing else.
    inside, outside = TableName("public", "inside"), TableName("public", "outside")
    here = site(str(inside), str(outside), style=style)
    here.at_publisher(_create(inside, [*NAMES, "plain"], NAMES), _create(outside, ["plain", *NAMES], ["plain"]))
    here.set_up()
    here.at_publisher(*_work(inside, [*NAMES, "plain"], NAMES), *_work(outside, ["plain", *NAMES], ["plain"]))
    here.run()
    assert _unequal(here) == []
    assert here.set_up() == []


@pytest.mark.parametrize("style", STYLES)
def test_tables_and_schemas_of_any_name_arrive(style: str, site: SiteFactory) -> None:
    tables = [TableName(schema, table) for schema, table in zip(NAMES, reversed(NAMES), strict=True)]
    here = site(*map(str, tables), style=style)
    for table in tables:
        here.at_publisher(
            f"CREATE SCHEMA IF NOT EXISTS {_quoted(table.schema)}", _create(table, ["id", "value"], ["id"])
        )
    here.set_up()
    for table in tables:
        here.at_publisher(*_work(table, ["id", "value"], ["id"]))
    here.run()
    assert _unequal(here) == []


@pytest.mark.parametrize("style", STYLES)
def test_a_missing_row_is_told_by_its_key_of_any_name(style: str, site: SiteFactory) -> None:
    key = ["id", "100%s", "%", "a = %s, b", "%(id)s", "%1$s", "{}", "\\", "it's", 'a "quote"']
    table = TableName("public", "t %s '\\ 100%")
    here = site(str(table), style=style)
    here.at_publisher(_create(table, [*reversed(key), "value"], key))
    here.set_up()
    name = _quoted(table.table)
    values = ", ".join(f"'{at}%s'" for at in range(len(key)))
    here.at_publisher(f"INSERT INTO {name} VALUES ({values}, 'v')")
    here.run()
    here.at_subscriber(f"DELETE FROM {name}")
    here.at_publisher(f"UPDATE {name} SET value = 'w'")
    here.read_log().raise_error()
    error = here.deliver().error
    assert error is not None
    assert (error.number, error.article) == ("20598", str(table))
    told = ", ".join(f"{column} = {len(key) - 1 - at}%s" for at, column in enumerate(key))
    assert error.message == (
        "Subscriber reporting: The row was not found at the Subscriber when applying the replicated UPDATE command "
        f"for Table '{table}' with Primary Key(s): {told}"
    )


def test_a_procedures_name_is_cut_to_63_bytes_and_stays_the_same(site: SiteFactory) -> None:
    tables = [TableName("s" * 63, "t" * 62 + end) for end in "ab"]
    here = site(*map(str, tables))
    here.at_publisher(f"CREATE SCHEMA {'s' * 63}", *(_create(it, ["id", "value"], ["id"]) for it in tables))
    here.set_up()
    expected = {
        procedure_name(operation, table, NameLimit(63, NameUnit.BYTES))
        for table in tables
        for operation in (Operation.INSERT, Operation.UPDATE, Operation.DELETE)
    }
    names = here.at_subscriber("SELECT proname FROM pg_proc WHERE proname LIKE 'sp_MS%'")
    assert {name for (name,) in names} == expected
    assert here.at_subscriber("SELECT object_name FROM msreplication_objects ORDER BY 1") == sorted(
        (name,) for name in expected
    )
    assert len(expected) == 6
    for table in tables:
        here.at_publisher(*_work(table, ["id", "value"], ["id"]))
    here.run()
    assert _unequal(here) == []


def test_articles_whose_procedures_would_share_a_name_are_refused(site: SiteFactory) -> None:
    here = site("a.bc", "ab.c")
    here.at_publisher(
        "CREATE SCHEMA a",
        "CREATE SCHEMA ab",
        "CREATE TABLE a.bc (i int PRIMARY KEY)",
        "CREATE TABLE ab.c (i int PRIMARY KEY)",
    )
    assert _problems(here) == [
        f"articles a.bc and ab.c would share the procedure sp_MS{operation}_abc" for operation in ("ins", "upd", "del")
    ]
    assert _problems(site("a.bc", "ab.c", style="statements"))[0].startswith("article a.bc: Publisher")


def test_publications_of_similar_names_keep_apart(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    """A slot's name has neither capital letters nor hyphens."""
    shared = databases()
    names = ["a-b", "a_b", "A-b"]
    sites = [Site(shared, tmp_path / name, [f"public.t{at}"], spark, publication=name) for at, name in enumerate(names)]
    for at, here in enumerate(sites):
        here.at_publisher(f"CREATE TABLE t{at} (id int PRIMARY KEY)")
        here.set_up()
    for at, here in enumerate(sites):
        here.at_publisher(f"INSERT INTO t{at} VALUES ({at})")
    for here in sites:
        here.run()
        assert _unequal(here) == []


# Identity and generated columns

IDENTITIES = """
    CREATE TABLE always_key (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
    CREATE TABLE default_key (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v text);
    CREATE TABLE always_other (id int PRIMARY KEY, n bigint GENERATED ALWAYS AS IDENTITY (START 100), v text);
    CREATE TABLE serial_key (id serial PRIMARY KEY, v text);
"""
IDENTITY_WORK = [
    "INSERT INTO always_key (v) VALUES ('a'), ('b'), ('c')",
    "INSERT INTO always_key OVERRIDING SYSTEM VALUE VALUES (50, 'd')",
    "UPDATE always_key SET v = v || '!'",
    "DELETE FROM always_key WHERE id = 2",
    "INSERT INTO default_key (v) VALUES ('a'), ('b'), ('c')",
    "UPDATE default_key SET id = id + 100, v = 'moved' WHERE id > 1",
    "DELETE FROM default_key WHERE id = 102",
    "INSERT INTO always_other (id, v) VALUES (1, 'a'), (2, 'b')",
    "UPDATE always_other SET v = NULL, id = 5 WHERE id = 2",
    "INSERT INTO serial_key (v) VALUES ('a'), ('b')",
    "UPDATE serial_key SET id = 9 WHERE id = 2",
]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("style", STYLES)
def test_identity_columns_arrive_with_the_publishers_values(style: str, existing: bool, site: SiteFactory) -> None:
    here = site("public.always_key", "public.default_key", "public.always_other", "public.serial_key", style=style)
    here.at_publisher(IDENTITIES)
    if existing:
        here.at_subscriber(IDENTITIES)
    here.set_up()
    here.at_publisher(*IDENTITY_WORK)
    here.run()
    assert _unequal(here) == []


GENERATED = """
    CREATE TABLE stored (sum int GENERATED ALWAYS AS (a + b) STORED, a int, id int PRIMARY KEY, b int,
        name text, upper text GENERATED ALWAYS AS (upper(name)) STORED);
    CREATE TABLE virtual (id int PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) VIRTUAL, b int,
        stored int GENERATED ALWAYS AS (a + 1) STORED);
"""


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("style", STYLES)
def test_generated_columns_are_computed_at_the_subscriber(style: str, existing: bool, site: SiteFactory) -> None:
    here = site("public.stored", "public.virtual", style=style)
    here.at_publisher(GENERATED)
    if existing:
        # Computed in another way there: what is compared must be of the Subscriber's own making.
        here.at_subscriber(GENERATED.replace("(a + b)", "(a + b + 1000)"))
    here.set_up()
    here.at_publisher(
        "INSERT INTO stored (a, id, b, name) SELECT n, n, n * 2, 'n' || n FROM generate_series(1, 9) n",
        "UPDATE stored SET b = NULL WHERE id = 2",
        "UPDATE stored SET id = 30, name = 'moved' WHERE id = 3",
        "DELETE FROM stored WHERE id = 4",
        "INSERT INTO virtual (id, a, b) SELECT n, n, n FROM generate_series(1, 9) n",
        "UPDATE virtual SET a = a + 1 WHERE id < 4",
        "UPDATE virtual SET id = 90 WHERE id = 9",
        "DELETE FROM virtual WHERE id = 5",
    )
    here.run()
    if existing:
        assert here.at_subscriber("SELECT sum, a, id, b FROM stored WHERE id = 1") == [(1003, 1, 1, 2)]
        here.at_publisher("ALTER TABLE stored DROP COLUMN sum")
        here.at_subscriber("ALTER TABLE stored DROP COLUMN sum")
    assert _unequal(here) == []


# Keys

KEYS = """
    CREATE TABLE other_order (a int, v text, b int, c text, PRIMARY KEY (c, a, b));
    CREATE TABLE all_key (b int, a text, PRIMARY KEY (a, b));
    CREATE TABLE only_key (id int PRIMARY KEY);
    CREATE TABLE including (id int, v text, PRIMARY KEY (id) INCLUDE (v));
"""
KEY_WORK = [
    "INSERT INTO other_order SELECT n, 'v' || n, n + 100, 'c' || n FROM generate_series(1, 9) n",
    "UPDATE other_order SET v = NULL WHERE a = 1",
    "UPDATE other_order SET b = 0 WHERE a = 2",
    "UPDATE other_order SET c = 'new', a = 20, v = 'w' WHERE a = 3",
    "DELETE FROM other_order WHERE a = 4",
    "INSERT INTO all_key SELECT n, 'a' || n FROM generate_series(1, 5) n",
    "UPDATE all_key SET a = 'x' WHERE b = 1",
    "UPDATE all_key SET b = 30 WHERE b = 3",
    "UPDATE all_key SET a = a WHERE b = 2",
    "DELETE FROM all_key WHERE b = 5",
    "INSERT INTO only_key SELECT generate_series(1, 5)",
    "UPDATE only_key SET id = 10 WHERE id = 1",
    "DELETE FROM only_key WHERE id = 2",
    # Chains: a key is taken again in the moment it is given up.
    "BEGIN",
    "UPDATE only_key SET id = 99 WHERE id = 3",
    "UPDATE only_key SET id = 3 WHERE id = 4",
    "UPDATE only_key SET id = 4 WHERE id = 99",
    "COMMIT",
    "UPDATE only_key SET id = 11 WHERE id = 10",
    "BEGIN",
    "UPDATE only_key SET id = 12 WHERE id = 11",
    "INSERT INTO only_key VALUES (11)",
    "DELETE FROM only_key WHERE id = 12",
    "UPDATE only_key SET id = 12 WHERE id = 11",
    "COMMIT",
    "INSERT INTO including VALUES (1, 'a'), (2, 'b')",
    "UPDATE including SET v = 'c' WHERE id = 2",
]


@pytest.mark.parametrize("identity", ["full", "default"])
@pytest.mark.parametrize("style", STYLES)
def test_keys_of_any_shape_find_their_rows(style: str, identity: str, site: SiteFactory) -> None:
    tables = ["public.other_order", "public.all_key", "public.only_key", "public.including"]
    here = site(*({"source": table, "replica_identity": identity} for table in tables), style=style)
    here.at_publisher(KEYS)
    here.set_up()
    here.at_publisher(*KEY_WORK)
    here.run()
    assert here.at_subscriber("SELECT id FROM only_key ORDER BY id") == [(3,), (4,), (5,), (12,)]
    assert _unequal(here) == []


def test_keys_that_move_in_one_statement_arrive(site: SiteFactory) -> None:
    here = site("public.t")
    here.at_publisher("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v text)")
    here.set_up()
    here.at_publisher("INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 5) n", "UPDATE t SET id = id + 1")
    here.run()
    assert _unequal(here) == []


# Column lists and wide tables


def test_a_change_in_unpublished_columns_only_is_no_command(site: SiteFactory) -> None:
    here = site({"source": "public.t", "columns": ["v", "id"], "destination": "public.subset"})
    here.at_publisher("CREATE TABLE t (secret text, id int PRIMARY KEY, v text, more int NOT NULL DEFAULT 0)")
    here.set_up()
    here.at_publisher("INSERT INTO t SELECT 's' || n, n, 'v' || n FROM generate_series(1, 5) n")
    here.run()
    here.at_publisher("UPDATE t SET secret = 'other', more = 7", "UPDATE t SET secret = NULL, v = 'w' WHERE id = 3")
    read = here.read_log()
    assert (read.transactions, read.commands) == (1, 1)
    here.deliver().raise_error()
    assert here.differences() == []
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'subset'::regclass AND attnum > 0 ORDER BY attnum"
    assert here.at_subscriber(columns) == [("id",), ("v",)]


def _wide(count: int) -> list[str]:
    columns = ", ".join(f"c{at} int" for at in range(1, count))
    return [f"CREATE TABLE wide (id int PRIMARY KEY, {columns})"]


def _wide_work(count: int) -> list[str]:
    last = f"c{count - 1}"
    return [
        f"INSERT INTO wide SELECT n, {', '.join(f'n * {at}' for at in range(1, count))} FROM generate_series(1, 9) n",
        f"UPDATE wide SET {last} = NULL, c8 = -1 WHERE id < 4",
        f"UPDATE wide SET id = id + 100, {last} = 5 WHERE id = 5",
        "DELETE FROM wide WHERE id = 6",
    ]


def test_a_procedure_may_take_100_arguments(site: SiteFactory) -> None:
    here = site("public.wide")
    here.at_publisher(*_wide(98))
    here.set_up()
    assert here.at_subscriber("SELECT max(pronargs) FROM pg_proc WHERE proname LIKE 'sp_MS%'") == [(100,)]
    here.at_publisher(*_wide_work(98))
    here.run()
    assert _unequal(here) == []


@pytest.mark.parametrize(
    ("columns", "settings", "refused"),
    [
        (99, {}, [("upd_cmd", 101)]),
        (99, {"upd_cmd": "SQL"}, []),
        (150, {}, [("ins_cmd", 150), ("upd_cmd", 152)]),
        (150, SQL, []),
    ],
)
def test_more_arguments_are_refused_and_statements_take_them(
    columns: int, settings: Mapping[str, str], refused: list[tuple[str, int]], site: SiteFactory
) -> None:
    here = site({"source": "public.wide", **settings})
    here.at_publisher(*_wide(columns))
    assert _problems(here) == [
        f"article public.wide: {option}: the procedure would take {count} arguments, a PostgreSQL procedure takes 100"
        for option, count in refused
    ]
    if not refused:
        here.set_up()
        here.at_publisher(*_wide_work(columns))
        here.run()
        assert _unequal(here) == []
