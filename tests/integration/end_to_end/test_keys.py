"""Keys of any type and shape find their rows, also where a key changes and where one is taken again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.article_styles import STYLES, SiteFactory, unequal_articles
from support.databases import Databases
from support.every_type import TYPES, at_both_ends, read_plainly
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.errors import ConfigurationError, ReplicationError

_VALUES: dict[str, Sequence[str]] = {
    "smallint": ["1", "2", "-3"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "0"],
    "numeric": ["1.0", "'NaN'", "1.00"],
    "real": ["'-0'", "'NaN'", "'0'"],
    "double precision": ["0.1::float8 + 0.2::float8", "5e-324::float8", "0.3"],
    "money": ["'1234.5'", "'-0.01'", "'0'"],
    "boolean": ["true", "false", "true"],
    "char(5)": ["'ab'", "''", "'a'"],
    "varchar(12)": ["''", r"E'\\N'", "' '"],
    "text": [r"E'\n\\.\n'", "'NULL'", "'😀'"],
    '"char"': ["'x'", "''", "'y'"],
    "name": ["'n'", "repeat('n', 63)", "''"],
    "bytea": [r"'\x'", r"'\x5c00'", r"'\x5c'"],
    "date": ["'infinity'", "'4713-01-01 BC'", "'2024-02-29'"],
    "timestamptz": ["'2024-10-27 02:30+02'", "'-infinity'", "'2024-10-27 02:30+01'"],
    "time": ["'24:00'", "'0:00'", "'1:00'"],
    "timetz": ["'24:00+15:59:59'", "'1:00-11'", "'1:00+11'"],
    "interval": ["'1 day'", "'1 month -1 day'", "'24 hours'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'" + "0" * 32 + "'", "'" + "f" * 32 + "'"],
    "jsonb": ["""'{"a": 1.0}'""", "'null'", """'{"a": 1.00}'"""],
    "inet": ["'10.0.0.1/8'", "'::1'", "'10.0.0.1'"],
    "macaddr": ["'08:00:2b:01:02:03'", "'08:00:2b:01:02:04'", "'08:00:2b:01:02:05'"],
    "bit(3)": ["B'101'", "B'000'", "B'111'"],
    "bit varying": ["B''", "B'0'", "B'00'"],
    "text[]": ["ARRAY['a,b', NULL]", "'{}'", """ARRAY['"']"""],
    "int4range": ["'empty'", "'[1,5)'", "'(,)'"],
    "int4multirange": ["'{}'", "'{[1,5)}'", "'{(,)}'"],
    "public.mood": ["'sad'", "'it''s ok'", """'Very "happy"'"""],
    "public.positive": ["1", "2", "3"],
    "public.pair": ["(1, '')::public.pair", r"(2, E'\\,')::public.pair", """(2, 'q"')::public.pair"""],
    "tsvector": ["'a:1'", "''", "'a:2'"],
    "pg_lsn": ["'16/B374D848'", "'0/0'", "'0/1'"],
    "oid": ["'4294967295'", "'0'", "'1'"],
    "xid8": ["'18446744073709551615'", "'0'", "'1'"],
    "tid": ["'(1,2)'", "'(0,1)'", "'(1,3)'"],
}
"""Types that may be a key: two values, and a third that the first becomes. Equal ones of another text among them."""


def _work_by_key(table: str, values: Sequence[str]) -> list[str]:
    first, second, third = values
    return [
        f"INSERT INTO {table} VALUES ({first}, 1, 1), ({second}, 1, 1)",
        f"UPDATE {table} SET v = 2 WHERE id = {second}",
        f"UPDATE {table} SET id = {third} WHERE id = {first}",
        f"UPDATE {table} SET v = 3 WHERE id = {third}",
        f"INSERT INTO {table} VALUES ({third}, 2, 1), ({second}, 2, 1)",
        f"DELETE FROM {table} WHERE part = 2 AND id = {second}",
    ]


@pytest.mark.parametrize("identity", ["full", "default"])
def test_a_key_of_any_type_finds_its_row(identity: str, databases: DatabasesFactory, tmp_path: Path) -> None:
    tables = [f"public.key{at}" for at in range(len(_VALUES))]
    articles = [{"source": table, "replica_identity": identity} for table in tables]
    site = Site(databases(), tmp_path / "store", articles, SparkHere())
    at_both_ends(site.databases, TYPES)
    site.at_publisher(
        *(
            f"CREATE TABLE {table} (id {type_name}, part int, v int, PRIMARY KEY (part, id))"
            for table, type_name in zip(tables, _VALUES, strict=True)
        )
    )
    site.set_up()
    for table, values in zip(tables, _VALUES.values(), strict=True):
        site.at_publisher(*_work_by_key(table, values))
    site.run()
    found = zip(_VALUES, tables, strict=True)
    assert [type_name for type_name, table in found if not _same_keys(site.databases, table)] == []


def _same_keys(databases: Databases, table: str) -> bool:
    contents = [
        sorted(execute(read_plainly(connection), f"SELECT id::text, part, v FROM {table}"))
        for connection in (databases.publisher, databases.subscriber)
    ]
    return contents[0] == contents[1] and len(contents[0]) == 3


_TABLES = """
    CREATE TABLE other_order (a int, v text, b int, c text, PRIMARY KEY (c, a, b));
    CREATE TABLE all_key (b int, a text, PRIMARY KEY (a, b));
    CREATE TABLE only_key (id int PRIMARY KEY);
    CREATE TABLE including (id int, v text, PRIMARY KEY (id) INCLUDE (v));
    CREATE TABLE by_index (v text, b int NOT NULL, c int UNIQUE, a text NOT NULL, UNIQUE (a, b) INCLUDE (v));
    CREATE UNIQUE INDEX ON by_index (b) WHERE b > 100;
    CREATE UNIQUE INDEX ON by_index (lower(a), b);
    ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_a_b_v_key;
"""
_CHANGES = [
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
    "INSERT INTO by_index SELECT 'v', n, nullif(n, 3), 'a' FROM generate_series(1, 5) n",
    "UPDATE by_index SET v = 'w' WHERE b = 1",
    "UPDATE by_index SET b = 20, c = NULL WHERE b = 2",
    "DELETE FROM by_index WHERE b = 5",
]


@pytest.mark.parametrize("identity", ["full", "default"])
@pytest.mark.parametrize("style", STYLES)
def test_keys_of_any_shape_find_their_rows(style: str, identity: str, site_of: SiteFactory) -> None:
    tables = [f"public.{it}" for it in ("other_order", "all_key", "only_key", "including", "by_index")]
    here = site_of(*({"source": table, "replica_identity": identity} for table in tables), style=style)
    here.at_publisher(_TABLES)
    here.set_up()
    here.at_publisher(*_CHANGES)
    here.run()
    assert here.at_subscriber("SELECT id FROM only_key ORDER BY id") == [(3,), (4,), (5,), (12,)]
    assert unequal_articles(here) == []


def test_an_index_in_the_place_of_a_primary_key(site_of: SiteFactory) -> None:
    here = site_of({"source": "public.t", "replica_identity": "default"})
    here.publication = here.publication.model_copy(update={"replicate_ddl": True})
    here.at_publisher("CREATE TABLE t (a int, b int NOT NULL UNIQUE, v text)")
    with pytest.raises(ConfigurationError, match="replica_identity: default") as refused:
        here.set_up()
    assert 'USING INDEX "t_b_key"' in (refused.value.report.remedy or "")
    here.at_publisher("ALTER TABLE t REPLICA IDENTITY USING INDEX t_b_key")
    here.set_up()
    here.at_publisher("INSERT INTO t VALUES (1, 1, ''), (1, 2, '')", "UPDATE t SET v = 'x' WHERE b = 2")
    here.at_publisher("ALTER TABLE t ADD COLUMN more int", "UPDATE t SET more = 5 WHERE b = 1")
    here.run()
    assert unequal_articles(here) == []
    here.at_publisher("ALTER TABLE t REPLICA IDENTITY FULL", "ALTER TABLE t ALTER COLUMN b DROP NOT NULL")
    with pytest.raises(ReplicationError, match="14088"):
        here.run()
    here.at_publisher("ALTER TABLE t ALTER COLUMN b SET NOT NULL", "DELETE FROM t WHERE b = 1")
    here.set_up()
    here.run()
    assert unequal_articles(here) == []


def test_which_index_takes_the_place_of_a_primary_key(site_of: SiteFactory) -> None:
    here = site_of("public.t")
    here.publication = here.publication.model_copy(update={"replicate_ddl": True})
    here.at_publisher(
        "CREATE TABLE t (a int NOT NULL, b int NOT NULL UNIQUE, v text NOT NULL, UNIQUE (a, v))",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_a_v_key",
    )
    here.set_up()
    # Setup has changed the replica identity, and not the key.
    assert here.set_up() == []
    here.at_publisher("INSERT INTO t VALUES (1, 1, 'v')", "ALTER TABLE t ADD COLUMN more int", "UPDATE t SET a = 2")
    here.run()
    assert unequal_articles(here) == []


def test_a_key_that_may_hold_nulls_is_refused(site_of: SiteFactory) -> None:
    here = site_of("public.t")
    ((version,),) = here.at_publisher("SELECT current_setting('server_version_num')::int")
    if version < 180000:
        pytest.skip("NOT NULL is always valid before PostgreSQL 18")
    here.at_publisher("CREATE TABLE t (a int UNIQUE, v text)", "INSERT INTO t VALUES (NULL, 'x'), (NULL, 'y')")
    here.at_publisher('ALTER TABLE t ADD CONSTRAINT "no null" NOT NULL a NOT VALID')
    with pytest.raises(ConfigurationError, match="rows may have NULL there") as refused:
        here.set_up()
    assert refused.value.report.remedy == 'ALTER TABLE public.t VALIDATE CONSTRAINT "no null"'
    here.at_publisher("UPDATE t SET a = ascii(v)", refused.value.report.remedy or "")
    here.set_up()


@pytest.mark.parametrize(
    ("table", "remedy"),
    [
        (
            "id int PRIMARY KEY DEFERRABLE, v text",
            'DROP CONSTRAINT "t_pkey", ADD CONSTRAINT "t_pkey" PRIMARY KEY ("id")',
        ),
        ('id int PRIMARY KEY, "A b" text UNIQUE DEFERRABLE', 'ADD CONSTRAINT "t_A b_key" UNIQUE ("A b")'),
    ],
)
def test_a_deferrable_key_is_refused(table: str, remedy: str, site_of: SiteFactory) -> None:
    here = site_of("public.t")
    here.at_publisher(f"CREATE TABLE t ({table})")
    with pytest.raises(ConfigurationError, match="is DEFERRABLE: within a transaction") as refused:
        here.set_up()
    assert remedy in (refused.value.report.remedy or "")
    here.at_publisher(refused.value.report.remedy or "")
    here.set_up()
