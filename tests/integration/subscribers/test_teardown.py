"""Teardown at Subscribers of every kind: what setup created goes, the tables and their rows stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.command_history import Column, History
from support.subscribers import KEY, Site
from tranrepl.errors import TransientError
from tranrepl.model.names import TableName
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.teardown import Destinations, SubscriberRemoval

VENDOR = [Column("id", "integer", key=1), Column("name", "character varying(40)", not_null=True)]
OTHER = replace(KEY, publication="other")


def _tear_down(site: Site, others: Destinations | None = None) -> SubscriberRemoval:
    """Tear down; return what was found and removed."""
    with dialect_of(site.connection).teardown(site.connection, KEY, "test") as teardown:
        found = teardown.find(others or {})
        teardown.remove(found)
    return found


def _nothing_is_left(site: Site) -> bool:
    with dialect_of(site.connection).teardown(site.connection, KEY, "test") as teardown:
        return not teardown.find({}).removed


def test_what_setup_made_goes_and_the_rows_stay(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR)
    site.deliver(History().insert(vendor, ["1", "one"])).raise_error()
    found = _tear_down(site)
    assert len(found.procedures) == (3 if site.kind.procedures else 0)
    assert found.tables
    assert site.rows("vendor") == [(1, "one")]
    assert _nothing_is_left(site)
    for table in ("msreplication_subscriptions", "msreplication_snapshots", "msreplication_objects"):
        with pytest.raises(Exception, match=table):
            site.execute(f"SELECT * FROM {table}")
    # Setup begins as at first.
    again = site.article("vendor", VENDOR)
    site.deliver(History().insert(again, ["2", "two"])).raise_error()
    assert site.rows("vendor") == [(1, "one"), (2, "two")]


def test_another_publication_keeps_its_rows_and_what_it_shares(plain_site: Site) -> None:
    site = plain_site
    vendor = site.article("vendor", VENDOR)
    with dialect_of(site.connection).subscriber(site.connection, OTHER, "test") as subscriber:
        subscriber.set_up_watermark()
    key = (OTHER.publisher_system, OTHER.publisher_db, OTHER.publication)
    found = _tear_down(site, {key: frozenset([vendor.destination])})
    assert (found.procedures, found.tables) == ((), False)
    assert len(found.shared) == (3 if site.kind.procedures else 0)
    with dialect_of(site.connection).teardown(site.connection, OTHER, "test") as teardown:
        theirs = teardown.find({})
        assert len(theirs.procedures) == len(found.shared)
        assert theirs.rows == 1
        teardown.remove(theirs)
    assert _nothing_is_left(site)


def test_what_another_publication_does_not_call_goes(plain_site: Site) -> None:
    site = plain_site
    site.article("vendor", VENDOR)
    with dialect_of(site.connection).subscriber(site.connection, OTHER, "test") as subscriber:
        subscriber.set_up_watermark()
    key = (OTHER.publisher_system, OTHER.publisher_db, OTHER.publication)
    found = _tear_down(site, {key: frozenset([TableName(site.schema, "another")])})
    assert (len(found.procedures), found.shared) == (3 if site.kind.procedures else 0, ())
    with dialect_of(site.connection).subscriber(site.connection, OTHER, "test") as subscriber:
        assert subscriber.find_watermark() is not None


def test_a_procedure_edited_by_hand_is_left(plain_site: Site) -> None:
    site = plain_site
    if site.kind.database != "mariadb" or not site.kind.procedures:
        pytest.skip("PostgreSQL has a test of its own")
    site.article("vendor", VENDOR)
    name = f"sp_MSdel_{site.schema}vendor"
    site.execute(f"DROP PROCEDURE {name}", f"CREATE PROCEDURE {name}(IN pkc1 int) DO 1")
    found = _tear_down(site)
    assert found.edited == (name,)
    assert _nothing_is_left(site)
    query = f"SELECT routine_name FROM information_schema.routines WHERE routine_schema = '{site.schema}'"
    assert site.execute(query) == [(name,)]
    assert site.rows("msreplication_objects", "object_name") == [(name,)]


def test_a_delivery_that_goes_on_keeps_everything(plain_site: Site) -> None:
    site = plain_site
    if site.kind.database == "sqlite":
        pytest.skip("a writer of SQLite waits for the whole database, a minute long")
    site.article("vendor", VENDOR)
    with dialect_of(site.connection).applier(site.connection, KEY, site.articles) as applier:
        applier.begin(site.watermark())
        with (
            dialect_of(site.connection).teardown(site.connection, KEY, "test") as teardown,
            pytest.raises(TransientError),
        ):
            teardown.find({})
        applier.rollback()
    assert _tear_down(site).tables
