"""An article whose table has another name at one of the Subscribers."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run, whole_run
from tranrepl.admin import setup
from tranrepl.admin.check import check
from tranrepl.admin.teardown import plan_teardown, tear_down
from tranrepl.connections import Connection
from tranrepl.settings.publication import Publication

_ROWS = "SELECT id, customer_id, note FROM {} ORDER BY id"


@pytest.fixture(params=["procedures", "statements"])
def site(
    request: pytest.FixtureRequest, databases: DatabasesFactory, database: DatabaseFactory, tmp_path: Path
) -> Site:
    """Orders go to `public.orders` of one Subscriber, `mart.sold` of another one, and by statements to `shop_orders` of
    SQLite."""
    places = {"mart": "mart.sold"}
    style: dict[str, str] = {}
    if request.param == "statements":
        places["files"], style = "main.shop_orders", STATEMENTS
    site = Site(
        databases(),
        tmp_path / "store",
        [
            {"source": "public.customers", "pre_creation_cmd": "drop", **style},
            {"source": "public.orders", "destinations": places, "pre_creation_cmd": "drop", **style},
        ],
        SparkHere(),
        [{"name": it, "connection": it, "sync_type": "automatic"} for it in ("subscriber", *places)],
        replicate_ddl=True,
    )
    site.connections["mart"] = database("mart")
    site.connections["files"] = Connection("files", "sqlite", database=str(tmp_path / "files.db"))
    site.at_publisher(
        "CREATE TABLE customers (id int PRIMARY KEY, name text)",
        "CREATE TABLE orders (id int PRIMARY KEY, customer_id int REFERENCES customers, note text)",
        "INSERT INTO customers VALUES (1, 'one'), (2, 'two')",
        "INSERT INTO orders VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 1, 'c')",
    )
    for it in (site.connections["mart"], site.connections["subscriber"]):
        execute(it, "CREATE SCHEMA mart")
    return site


def _orders(site: Site, mart: str = "mart.sold", columns: str = "id, customer_id, note") -> list[Rows]:
    """Return the rows of orders at the Publisher and at each Subscriber."""
    query = f"SELECT {columns} FROM {{}} ORDER BY id"
    found = [
        site.at_publisher(query.format("orders")),
        site.at_subscriber(query.format("public.orders")),
        execute(site.connections["mart"], query.format(mart)),
    ]
    if any(it.name == "files" for it in site.publication.subscriptions):
        at_files = sqlite_execute(str(site.connections["files"].database))
        found.append([tuple(row) for row in at_files(query.format("shop_orders"))])
    return found


def _require_equal(found: list[Rows]) -> None:
    assert found == [found[0]] * len(found)


def _edit(site: Site, **destinations: str) -> None:
    document = site.publication.model_dump(mode="json")
    document["articles"][1]["destinations"] |= destinations
    site.publication = Publication.model_validate(document)


def test_each_subscription_has_the_article_in_its_own_table(site: Site) -> None:
    site.set_up()
    good_run(site)
    _require_equal(_orders(site))
    site.at_publisher(
        "INSERT INTO orders VALUES (4, 2, 'd')",
        "UPDATE orders SET note = 'changed' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
        "ALTER TABLE orders ADD COLUMN paid int",
        "UPDATE orders SET paid = id, id = id + 10",
    )
    assert not any(it.snapshot for it in good_run(site).values())
    _require_equal(_orders(site, columns="id, customer_id, note, paid"))
    site.at_publisher("ALTER TABLE orders RENAME TO sales", "INSERT INTO sales VALUES (5, 1, 'e', 5)")
    good_run(site)
    document = site.publication.model_dump(mode="json")
    document["articles"][1] |= {"source": "public.sales", "destination": "public.orders"}
    site.publication = Publication.model_validate(document)
    assert site.set_up() == []
    for it in site.publication.subscriptions:
        validation = site.validate(it.name).validation
        assert validation is not None
        assert [(it.article, it.differences, it.destination) for it in validation.articles if it.differences] == []
    assert execute(site.connections["mart"], "SELECT to_regclass('public.orders')") == [(None,)]


def test_a_new_table_is_copied_to_the_subscription_that_has_it_and_no_other(site: Site) -> None:
    site.set_up()
    good_run(site)
    site.at_publisher("UPDATE orders SET note = 'before'")
    site.read_log().raise_error()
    _edit(site, mart="mart.orders")
    site.set_up()
    site.at_publisher("UPDATE orders SET note = 'after' WHERE id = 1")
    whole_run(site)
    taken = {name: it.snapshot for name, it in good_run(site).items() if it.snapshot}
    assert {name: [table.article for table in it] for name, it in taken.items()} == {"mart snapshot": ["public.orders"]}
    site.at_publisher("DELETE FROM orders WHERE id = 2")
    assert not any(it.snapshot for it in good_run(site).values())
    _require_equal(_orders(site, mart="mart.orders"))


@pytest.mark.parametrize("site", ["procedures"], indirect=True)
def test_a_validation_before_the_next_delivery_leaves_a_moved_article_to_its_snapshot(site: Site) -> None:
    site.set_up()
    good_run(site)
    _edit(site, mart="mart.orders")
    site.set_up()
    site.at_publisher("INSERT INTO orders VALUES (4, 2, 'd')", "UPDATE orders SET note = 'after' WHERE id = 1")
    site.read_log().raise_error()
    validated = site.validate("mart")
    validated.raise_error()
    assert any("public.orders still waits for its snapshot" in it for it in validated.notices)
    good_run(site)
    _require_equal(_orders(site, mart="mart.orders"))


@pytest.mark.parametrize("site", ["procedures"], indirect=True)
def test_a_subscription_keeps_its_rows_where_the_others_get_another_table(site: Site) -> None:
    site.set_up()
    good_run(site)
    document = site.publication.model_dump(mode="json")
    document["articles"][1]["destination"] = "public.sales"
    site.publication = Publication.model_validate(document)
    site.set_up()
    site.at_publisher("UPDATE orders SET note = 'after' WHERE id = 1")
    results = [whole_run(site), good_run(site)]
    assert {name for it in results for name, result in it.items() if result.snapshot} == {"subscriber snapshot"}
    found = [
        execute(it, f"SELECT * FROM {table} ORDER BY id")
        for it, table in (
            (site.connections["publisher"], "orders"),
            (site.connections["subscriber"], "public.sales"),
            (site.connections["mart"], "mart.sold"),
        )
    ]
    _require_equal(found)


@pytest.mark.parametrize("site", ["procedures"], indirect=True)
def test_a_subscription_may_lose_its_own_table_again_where_setup_stopped(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = site.publication.model_dump(mode="json")
    whole, places = document["subscriptions"], document["articles"][1]["destinations"]
    document["subscriptions"], document["articles"][1]["destinations"] = whole[:1], {}
    site.publication = Publication.model_validate(document)
    site.set_up()
    document["subscriptions"], document["articles"][1]["destinations"] = whole, places
    site.publication = Publication.model_validate(document)
    with monkeypatch.context() as patched:
        patched.setattr(setup, "_set_up_subscriber", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            site.set_up()
    document["articles"][1]["destinations"] = {}
    site.publication = Publication.model_validate(document)
    site.set_up()
    whole_run(site)
    good_run(site)
    _require_equal(_orders(site, mart="public.orders"))


def test_teardown_names_the_tables_that_stay(site: Site) -> None:
    site.set_up()
    good_run(site)
    planned = plan_teardown(site.topology)
    stays = [it for part in planned.parts for it in part.stays if "orders" in it or "sold" in it]
    assert [it.split(",")[0] for it in stays] == ["table public.orders", "table mart.sold", "table main.shop_orders"][
        : len(site.publication.subscriptions)
    ]
    tear_down(planned, lambda _: None)
    _require_equal(_orders(site))


@pytest.mark.parametrize("site", ["procedures"], indirect=True)
def test_a_subscription_that_is_new_has_only_its_own_table(site: Site) -> None:
    document = site.publication.model_dump(mode="json")
    whole, places = document["subscriptions"], document["articles"][1]["destinations"]
    document["subscriptions"] = [it for it in whole if it["name"] != "mart"]
    document["articles"][1]["destinations"] = {name: it for name, it in places.items() if name != "mart"}
    site.publication = Publication.model_validate(document)
    site.set_up()
    good_run(site)
    document["articles"][1]["truncate"] = "ignore"
    site.publication = Publication.model_validate(document)
    assert any("new definition" in it for it in site.set_up())
    # The log reader has not come to that when the other subscription is added.
    document["subscriptions"], document["articles"][1]["destinations"] = whole, places
    site.publication = Publication.model_validate(document)
    site.at_publisher("INSERT INTO orders VALUES (4, 2, 'd')")
    assert not any("new definition" in it for it in site.set_up())
    site.at_publisher("UPDATE orders SET note = 'after' WHERE id = 1")
    whole_run(site)
    good_run(site)
    _require_equal(_orders(site))
    assert execute(site.connections["mart"], "SELECT to_regclass('public.orders')") == [(None,)]
    made = execute(site.connections["mart"], "SELECT proname FROM pg_proc WHERE proname LIKE 'sp_MS%publicorders'")
    assert made == []


@pytest.mark.parametrize("site", ["procedures"], indirect=True)
def test_tables_that_would_share_procedures_at_one_subscriber_are_refused(site: Site) -> None:
    _edit(site, subscriber="a.bc")
    document = site.publication.model_dump(mode="json")
    document["articles"][0]["destinations"] = {"subscriber": "ab.c"}
    site.publication = Publication.model_validate(document)
    problems = [it.message for it in check(site.topology).problems if "share" in it.message]
    expected = [f"articles ab.c and a.bc would share the procedure sp_MS{it}_abc" for it in ("ins", "upd", "del")]
    assert problems == expected


@pytest.mark.parametrize("site", ["procedures"], indirect=True)
def test_a_table_of_another_subscription_in_the_same_database_is_refused(site: Site) -> None:
    site.connections["mart"] = site.connections["subscriber"]
    document = site.publication.model_dump(mode="json")
    document["articles"][0]["destinations"] = {"mart": "mart.customers"}
    document["articles"][1]["destinations"] = {"mart": "public.customers"}
    site.publication = Publication.model_validate(document)
    problems = [it.message for it in check(site.topology).problems]
    assert (
        "articles public.customers (subscription subscriber) and public.orders (subscription mart) would share table "
        "public.customers of one database"
    ) in problems
