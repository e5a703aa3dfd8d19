"""Snapshots of some articles: one joins or is reinitialized alone, and an older Subscriber is noticed."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_stored, read_log_into_store, replicate_stored
from support.snapshot_site import vendors_and_orders, with_articles
from support.spark_here import SparkHere
from tranrepl.admin.reinitialization import reinitialize
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.settings.publication import Publication
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

pytestmark = pytest.mark.new_sessions


def test_an_article_that_joins_is_copied_alone_and_loses_nothing(
    databases: DatabasesFactory, tmp_path: Path, here: SparkHere
) -> None:
    site = vendors_and_orders(databases(), tmp_path, ["public.vendor"])
    site.spark = here
    site.set_up()
    site.take_snapshot()
    # Setup would wait for the open writer before it altered the table.
    site.at_publisher("UPDATE vendor SET rating = 1 WHERE vendor_id < 10", "ALTER TABLE orders REPLICA IDENTITY FULL")
    with psycopg.connect(**site.databases.publisher.libpq_parameters("open")) as still_open:  # type: ignore[arg-type]
        still_open.execute("INSERT INTO orders VALUES (5000, 1, 1)")
        with_articles(site, "public.vendor", "public.orders").set_up()
        site.at_publisher("UPDATE orders SET total = 0 WHERE order_id < 10")
        read_log_into_store(site).raise_error()
        # The article's commands are left out until its snapshot is there, the others' are not.
        site.deliver().raise_error()
        assert site.at_subscriber("SELECT count(*) FROM vendor WHERE rating = 1 AND vendor_id < 10") == [(9,)]
        assert site.at_subscriber("SELECT count(*) FROM orders") == [(0,)]
        threading.Timer(0.5, still_open.commit).start()
        taken = site.take_snapshot()
    assert [(it.article, it.rows) for it in taken.snapshot] == [("public.orders", 2001)]
    site.at_publisher(
        "UPDATE orders SET order_id = order_id + 10000 WHERE order_id BETWEEN 100 AND 200",
        "UPDATE vendor SET note = 'later' WHERE vendor_id = 3",
        "DELETE FROM orders WHERE order_id = 5000",
    )
    # Commands that the snapshot has in it are stored only now.
    read_log_into_store(site).raise_error()
    site.deliver().raise_error()
    assert site.differences() == []
    assert site.deliver().commands == 0

    site.at_publisher("INSERT INTO orders VALUES (6000, 1, 1)")
    with_articles(site, "public.vendor").set_up()
    site.at_publisher("UPDATE vendor SET note = 'alone'", "INSERT INTO orders VALUES (6001, 1, 1)")
    replicate_stored(site)
    assert site.differences() == []
    assert site.at_subscriber("SELECT count(*) FROM orders WHERE order_id IN (6000, 6001)") == [(0,)]


def test_a_subscriber_of_before_an_articles_snapshot_is_known(
    databases: DatabasesFactory, postgres: PostgresServer, tmp_path: Path
) -> None:
    site = vendors_and_orders(databases(), tmp_path, ["public.vendor"])
    site.set_up()
    site.take_snapshot()
    subscriber = site.databases.subscriber.database or ""
    with postgres.connect() as server:
        server.execute(f'CREATE DATABASE before_join TEMPLATE "{subscriber}"')
    with_articles(site, "public.vendor", "public.orders").set_up()
    site.take_snapshot()
    with postgres.connect() as server:
        server.execute(f'CREATE DATABASE after_join TEMPLATE "{subscriber}"')
    site.at_publisher("DELETE FROM orders WHERE order_id < 50", "UPDATE vendor SET rating = 9 WHERE vendor_id = 1")
    replicate_stored(site)

    _restore(postgres, subscriber, "after_join")
    deliver_stored(site).raise_error()
    assert site.differences() == []

    _restore(postgres, subscriber, "before_join")
    with pytest.raises(ConfigurationError, match="does not know the snapshot"):
        deliver_stored(site)
    with pytest.raises(ConfigurationError, match="does not know the snapshot") as refusal:
        site.deliver()
    assert refusal.value.report.number == "21074"
    assert "reinitialize FILE -s reporting --article public.orders" in (refusal.value.report.remedy or "")
    assert site.at_subscriber("SELECT rating FROM vendor WHERE vendor_id = 1") == [(1,)]
    site.set_up()
    request = SnapshotRequest(publication=site.publication, subscription="reporting", articles=("public.orders",))
    mark_for_reinitialization(request, site.topology)
    site.take_snapshot()
    deliver_stored(site).raise_error()
    assert site.differences() == []


def test_rows_loaded_by_hand_take_the_place_of_snapshots(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = vendors_and_orders(databases(), tmp_path)
    site.set_up()
    site.take_snapshot()
    # As in another database, where somebody has loaded the same rows.
    site.at_subscriber("DELETE FROM msreplication_snapshots")
    settings = site.publication.model_dump(mode="json")
    by_hand = {**settings["subscriptions"][0], "sync_type": "replication_support_only"}
    site.publication = Publication.model_validate({**settings, "subscriptions": [by_hand]})
    with pytest.raises(ConfigurationError, match="does not know the snapshot"):
        site.deliver()
    read_log_into_store(site).raise_error()
    reinitialize(site.topology, "reporting")
    site.at_publisher("DELETE FROM orders WHERE order_id < 50")
    replicate_stored(site)
    assert site.differences() == []


def _restore(server: PostgresServer, database: str, backup: str) -> None:
    server.drop_database(database)
    with server.connect() as session:
        session.execute(f'ALTER DATABASE {backup} RENAME TO "{database}"')


def test_one_article_is_mended_alone(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = with_articles(vendors_and_orders(databases(), tmp_path), "public.vendor", "public.orders")
    site.set_up()
    site.take_snapshot()
    site.at_subscriber("DELETE FROM orders WHERE order_id > 7", "UPDATE vendor SET rating = 77 WHERE vendor_id = 5")
    site.at_publisher("INSERT INTO orders VALUES (7000, 1, 1)", "UPDATE vendor SET note = 'n' WHERE vendor_id = 6")
    read_log_into_store(site).raise_error()
    request = SnapshotRequest(publication=site.publication, subscription="reporting", articles=("public.orders",))
    mark_for_reinitialization(request, site.topology)
    assert [it.article for it in site.take_snapshot().snapshot] == ["public.orders"]
    deliver_stored(site).raise_error()
    assert site.differences() == ["public.vendor"]
    assert site.at_subscriber("SELECT vendor_id FROM vendor WHERE rating = 77") == [(5,)]
