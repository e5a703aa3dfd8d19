"""A partitioned table's destination is divided as it is, where the article asks for that, or is one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.partitioned_site import division, partitioned_site
from support.site import Site, execute
from support.whole_run import good_run
from tranrepl.admin.check import check


@pytest.fixture(params=["postgres", "debian_postgres"])
def site(request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return a site whose table at the Subscriber is partitioned as the Publisher's."""
    server: PostgresServer = request.getfixturevalue(request.param)
    ends = databases(publisher=server, subscriber=server)
    return partitioned_site(ends, tmp_path, partitions="same")


def test_a_destination_is_divided_as_its_table_and_takes_rows_in_bulk(site: Site) -> None:
    assert division(site.databases.subscriber) == division(site.databases.publisher)
    site.at_publisher(
        "INSERT INTO item SELECT n, 'b', 'more' FROM generate_series(1, 391, 10) n",
        "UPDATE item SET note = note || '!' WHERE id < 200",
        "UPDATE item SET id = 500 - id, kind = 'a' WHERE id % 20 = 1",
        "DELETE FROM item WHERE id % 50 = 0",
    )
    delivered = good_run(site)["reporting"]
    assert differing_rows(site) == {}
    assert delivered.in_bulk == delivered.commands > 0
    assert execute(site.databases.subscriber, "SELECT count(*) FROM item_rest") == execute(
        site.databases.publisher, "SELECT count(*) FROM item_rest"
    )


def test_a_new_partition_is_told_and_setup_makes_it(site: Site) -> None:
    site.at_publisher(
        "CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600) PARTITION BY LIST (kind)",
        "CREATE TABLE item_500_a PARTITION OF item_500 FOR VALUES IN ('a', NULL)",
    )
    site.read_log().raise_error()
    site.at_publisher("INSERT INTO item VALUES (501, 'a', 'x')", "DROP TABLE item_rest")
    warnings = check(site.topology).warnings
    assert any("has no partition public.item_500_a: `tranrepl setup FILE` makes it" in it for it in warnings)
    assert [it for it in site.set_up() if "partition" in it] == [
        "created partitions public.item_500, public.item_500_a of table public.item at Subscriber reporting"
    ]
    good_run(site)
    assert differing_rows(site) == {}


def test_a_run_tells_of_a_partition_that_subscribers_lack(site: Site) -> None:
    site.at_publisher("CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600)")
    told = site.read_log().notices
    assert told == (
        "article public.item: partition public.item_500 is new: `tranrepl setup FILE` makes it at Subscribers",
    )
    assert site.read_log().notices == ()


def test_a_destination_of_other_partitions_takes_rows_as_it_is(databases: DatabasesFactory, tmp_path: Path) -> None:
    ends = databases()
    execute(
        ends.subscriber,
        "CREATE TABLE item (id int, kind text, note text, PRIMARY KEY (id, kind)) PARTITION BY HASH (kind)",
        "CREATE TABLE item_0 PARTITION OF item FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE item_1 PARTITION OF item FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    )
    site = partitioned_site(ends, tmp_path)
    site.at_publisher("UPDATE item SET kind = 'c' WHERE id % 20 = 0", "DELETE FROM item WHERE id < 50")
    good_run(site)
    assert differing_rows(site) == {}
