"""The snapshot of MariaDB or MySQL finds the rows whose keys commands carry, and reads few others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.in_process import read_log_into_store
from support.mariadb import MariaDbServer
from support.publishers import new_mariadb_database
from support.site import Site
from tranrepl.distribution.opening import open_distribution
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.publisher.mysql.snapshot import MySqlSnapshot
from tranrepl.snapshot.bringing_forward import ChangedSince, _changed_keys, _rows_as_shown

_ROWS = 2000
_TYPES = {
    "int unsigned zerofill": ("5", "0", "4294967295"),
    "bigint unsigned": ("18446744073709551615", "0", "9223372036854775808"),
    "decimal(65,30)": ("-1.5", "0.000000000000000000000000000001", "12345678901234567890123456789012345"),
    "double(10,3)": ("-1", "2.5", "1e6"),
    "float(7,4)": ("1", "0.1", "999"),
    "datetime(6)": ("'2024-03-31 02:30:00.1'", "'9999-12-31 23:59:59'", "'0001-01-01'"),
    "time(3)": ("'-838:59:59'", "'-00:00:00.5'", "'12:00'"),
    "char(5)": ("'ab  '", "''", "' é'"),
    "varchar(20)": ("'a%s '", r"'tab\tline\n\\N'", "'A%S'"),
    "binary(5)": ("'ab'", "X'00'", "X'0102030405'"),
    "enum('a','b c')": ("'a'", "'b c'", "'a'"),
    "bit(64)": ("18446744073709551615", "0", "1"),
}
"""Types of keys' second columns: three values."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mariadb", "mysql-9.7"])
def test_rows_are_found_by_keys_of_any_type(
    kind: str, publishing: Callable[[str], MariaDbServer], databases: DatabasesFactory, tmp_path: Path
) -> None:
    server = publishing(kind)
    ends = replace(databases(), publisher=server.connection(new_mariadb_database(server), "publisher"))
    tables = {"every": list(_TYPES), "owned": ["int"], "wide": ["int"]}
    articles = [{"source": f"{ends.publisher.database}.{it}", "destination": f"public.{it}"} for it in tables]
    site = Site(ends, tmp_path / "store", articles, replicate_ddl=False)
    for table, types in tables.items():
        names = [f"k{at}" for at in range(len(types))]
        columns = ", ".join(f"{name} {of}" for name, of in zip(names, types, strict=True))
        site.at_publisher(
            f"CREATE TABLE {table} (`%s` int, {columns}, n longtext, PRIMARY KEY (`%s`, {', '.join(names)}))"
        )
    site.set_up()
    rows = [", ".join(it) for it in zip(*_TYPES.values(), strict=True)]
    new_key = ", ".join(f"k{at} = {it[2]}" for at, it in enumerate(_TYPES.values()))
    site.at_publisher(
        "INSERT INTO every VALUES " + ", ".join(f"({at}, {it}, 1)" for at, it in enumerate(rows, start=-1)),
        "UPDATE every SET n = 2 WHERE `%s` = 0",
        f"UPDATE every SET {new_key} WHERE `%s` = -1",
        "INSERT INTO owned VALUES " + ", ".join(f"(7, {n}, 1)" for n in range(_ROWS)),
        "INSERT INTO wide VALUES " + ", ".join(f"(7, {n}, repeat('x', 500000))" for n in range(40)),
    )
    read_log_into_store(site).raise_error()
    with (
        open_distribution(site.topology, "reporting") as opened,
        site.topology.publisher("test") as publisher,
        publisher.snapshot(10, print) as taken,
        taken.source.session("test") as session,
    ):
        found: dict[str, int] = {}
        by_name = {it.source.table: it for it in opened.database.articles.registered(opened.record)}
        for table, article in by_name.items():
            keys = _changed_keys(opened, article, FIRST_XACT_SEQNO, taken.xact_seqno, _ROWS)
            assert keys is not None
            chunks = list(_rows_as_shown(session, article, ChangedSince((), keys), {1}))
            found[table] = sum(it.count(b"\n") for it in chunks)
            assert max(map(len, chunks)) < 10_000_000
        assert found == {"every": 3, "owned": _ROWS, "wide": 40}
        assert isinstance(taken, MySqlSnapshot)
        before = _rows_read(taken)
        assert len(session.rows_of_keys(by_name["owned"], [["7", str(n)] for n in range(0, _ROWS, 100)])) == 20
        assert _rows_read(taken) - before < _ROWS / 2


def _rows_read(taken: MySqlSnapshot) -> int:
    """Return how many rows the snapshot's sessions have read."""
    rows = [it.execute("SHOW SESSION STATUS LIKE 'Handler_read%next'") for it in taken.answering.sessions]
    return sum(int(count) for of_session in rows for _, count in of_session)
