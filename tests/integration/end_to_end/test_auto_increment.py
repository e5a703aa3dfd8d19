"""AUTO_INCREMENT columns of a MariaDB or MySQL Publisher: after a cut-over the Subscriber goes on with their
numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.publishers import new_mariadb_database
from support.shell import publication_file, typed
from support.site import Site, execute
from support.spark_here import SparkHere

_PLENTY = "id bigint unsigned AUTO_INCREMENT PRIMARY KEY, v varchar(9)"
_LONG = [f"{'x' * 50}_{number}_plenty" for number in range(2)]
"""PostgreSQL would cut the names of their sequences to the same."""
_KEYS = {
    "tiny": "id tinyint(1) AUTO_INCREMENT PRIMARY KEY, v varchar(9)",
    "plenty": _PLENTY,
    **dict.fromkeys(_LONG, _PLENTY),
    "pairs": "id int AUTO_INCREMENT, v varchar(9), PRIMARY KEY (id, v)",
    "unused": "id mediumint unsigned AUTO_INCREMENT PRIMARY KEY, v varchar(9)",
    "own": "id int AUTO_INCREMENT PRIMARY KEY, v varchar(9)",
}


@pytest.fixture(
    params=[
        ("mariadb", "postgres"),
        ("mariadb", "mariadb"),
        pytest.param(("mariadb-11.8", "postgres"), marks=pytest.mark.slow),
        pytest.param(("mysql-9.7", "postgres"), marks=pytest.mark.slow),
        pytest.param(("mysql-9.7", "mysql"), marks=pytest.mark.slow),
    ],
    ids="-to-".join,
)
def site(
    request: pytest.FixtureRequest,
    databases: DatabasesFactory,
    publishing: Callable[[str], MariaDbServer],
    tmp_path: Path,
) -> Site:
    publisher, subscriber = request.param
    server = publishing(publisher)
    name = new_mariadb_database(server)
    ends = replace(databases(), publisher=server.connection(name, "publisher"))
    schema = "public"
    if subscriber != "postgres":
        schema = new_mariadb_database(server)
        ends = replace(ends, subscriber=server.connection(schema, "subscriber"))
    articles = [{"source": f"{name}.{it}", "destination": f"{schema}.{it}"} for it in _KEYS]
    return Site(ends, tmp_path / "store", articles, SparkHere())


def _next_ids(site: Site) -> dict[str, int]:
    """Return the number that an INSERT at each end gives a row of each table; both must be the same."""
    found = {}
    for article in site.publication.articles:
        ids = []
        for connection, table in (
            (site.databases.publisher, article.source),
            (site.databases.subscriber, article.destination_table),
        ):
            execute(connection, f"INSERT INTO {table} (v) VALUES ('new')")
            ((number,),) = execute(connection, f"SELECT id FROM {table} WHERE v = 'new'")
            ids.append(int(number))
        assert ids == [ids[0], ids[0]], article.source
        found[article.source.table] = ids[0]
    return found


def test_the_subscriber_goes_on_with_the_publishers_numbers(site: Site, tmp_path: Path) -> None:
    site.at_publisher(*(f"CREATE TABLE {name} ({key})" for name, key in _KEYS.items()))
    places = [str(it.destination_table) for it in site.publication.articles]
    destination = places[-1]
    site.at_subscriber(f"CREATE TABLE {destination} (id int NOT NULL PRIMARY KEY, v varchar(9))")
    site.set_up()
    for name in ("tiny", "plenty", "pairs", "own"):
        execute(
            site.databases.publisher,
            f"INSERT INTO {name} (v) VALUES ('a'), ('b'), ('c')",
            "BEGIN",
            f"INSERT INTO {name} (v) VALUES ('x'), ('y')",
            "ROLLBACK",
            f"DELETE FROM {name} WHERE v = 'c'",
        )
    site.run()
    file = publication_file(tmp_path, [it.model_dump(mode="json") for it in site.publication.articles])
    asked = typed("sequences", file, environment=site.databases.environment)
    assert asked.status == 1
    found = re.findall("column id of (.*) has a sequence .* run there: (.*); then `tranrepl sequences", asked.err)
    # A number without a sign of eight bytes has no whole number's type at MariaDB as Subscriber.
    plain = [destination, *(it for it in places if "public" not in it and it.endswith("plenty"))]
    assert [table for table, _ in found] == plain
    for _, statement in found:
        site.at_subscriber(statement)
    outcome = typed("sequences", file, environment=site.databases.environment)
    assert outcome.status == 0, outcome
    assert "no sequence is behind" in typed("sequences", file, environment=site.databases.environment).out
    assert _next_ids(site) == {"tiny": 6, "plenty": 6, "pairs": 6, "unused": 1, "own": 6, **dict.fromkeys(_LONG, 1)}
