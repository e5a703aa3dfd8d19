"""TPC-B's load, made by pgbench's four clients at once, so that transactions overlap and commit out of their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from conftest import DatabasesFactory
from support.comparison import columns_of
from support.embedded_postgres import PostgresServer
from support.equality import copy_rows, differing_rows
from support.site import Site

_SCALE = 3
_CLIENTS = 4
_TRANSACTIONS = 10_000
_COMMANDS_EACH = 4
_TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")


@pytest.mark.slow
def test_pgbench_is_equal_at_both_ends(
    databases: DatabasesFactory, postgres: PostgresServer, tmp_path: Path, spark: Any
) -> None:
    site = Site(databases(), tmp_path / "store", [f"public.{table}" for table in _TABLES], spark)
    publisher = site.databases.publisher.database or ""
    postgres.run("pgbench", "--initialize", "--init-steps=dtgp", f"--scale={_SCALE}", "--quiet", database=publisher)
    site.at_publisher("ALTER TABLE pgbench_history ADD COLUMN hid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    site.set_up()
    _copy_first_rows(site)

    postgres.run(
        "pgbench",
        "--no-vacuum",
        f"--client={_CLIENTS}",
        f"--transactions={_TRANSACTIONS // _CLIENTS}",
        "--random-seed=18",
        database=publisher,
    )
    result = site.run()

    assert result.transactions == _TRANSACTIONS
    assert result.commands_by_article["public.pgbench_history"] == _TRANSACTIONS
    # An UPDATE by 0 changes nothing and is not sent.
    unchanged = site.at_publisher("SELECT count(*) FROM pgbench_history WHERE delta = 0")[0][0]
    assert result.commands >= (_TRANSACTIONS - unchanged) * _COMMANDS_EACH
    assert differing_rows(site) == {}


def _copy_first_rows(site: Site) -> None:
    """Copy what `pgbench --initialize` made before setup; nobody writes meanwhile."""
    source, target = site.databases.publisher, site.databases.subscriber
    for article in site.publication.articles:
        table = article.destination_table
        columns = columns_of(source, article.source)
        copy_rows(source, article.source, target, sql.Identifier(table.schema, table.table), columns)
