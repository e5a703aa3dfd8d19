"""The initial snapshot: what a subscription begins with, and the hand-over to the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from sandbox.in_process import deliver_stored, read_log_into_store
from sandbox.site import Site
from tranrepl.errors import ConfigurationError
from tranrepl.status import status

_TABLES = """
CREATE TABLE vendor (vendor_id int PRIMARY KEY, name text UNIQUE, rating int, note text);
CREATE TABLE orders (order_id int PRIMARY KEY, vendor_id int NOT NULL REFERENCES vendor, total numeric);
"""


def automatic_site(
    databases: DatabasesFactory, tmp_path: Path, articles: Sequence[Mapping[str, object] | str], **subscription: object
) -> Site:
    """With one subscription, which takes a snapshot. No table is there."""
    settings = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic", **subscription}
    return Site(databases(), tmp_path / "store", articles, subscriptions=[settings])


def _site(
    databases: DatabasesFactory,
    tmp_path: Path,
    articles: Sequence[Mapping[str, object] | str] = ("public.vendor", "public.orders"),
) -> Site:
    site = automatic_site(databases, tmp_path, articles)
    site.at_publisher(
        _TABLES,
        "INSERT INTO vendor SELECT n, 'v' || n, n % 5, CASE WHEN n % 3 > 0 THEN E'tab\\tline\\n\\\\ \\b\\f\\v' END "
        "FROM generate_series(1, 500) n",
        "INSERT INTO orders SELECT n, n % 500 + 1, n / 7.0 FROM generate_series(1, 2000) n",
    )
    return site


def _deliver(site: Site) -> None:
    read_log_into_store(site).raise_error()
    deliver_stored(site).raise_error()


def _state(site: Site) -> str:
    return status(site.publication, site.connections).subscriptions[0].state


def test_rows_come_by_snapshot_and_changes_by_the_log(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    site.set_up()
    site.at_publisher("UPDATE vendor SET rating = 9 WHERE vendor_id = 1")
    read_log_into_store(site).raise_error()
    with pytest.raises(ConfigurationError, match="snapshot of subscription reporting is not yet available"):
        site.deliver()
    taken = site.take_snapshot()
    assert [(it.article, it.rows, it.share) for it in taken.snapshot] == [
        ("public.vendor", 500, 1.0),
        ("public.orders", 2000, 1.0),
    ]
    assert site.differences() == []
    site.at_publisher(
        "UPDATE vendor SET vendor_id = vendor_id + 1000 WHERE vendor_id > 490 AND vendor_id NOT IN "
        "(SELECT vendor_id FROM orders)",
        "DELETE FROM orders WHERE order_id < 50",
    )
    _deliver(site)
    assert site.differences() == []
    assert site.take_snapshot().snapshot == ()
    assert site.at_subscriber("SELECT count(*) FROM msreplication_snapshots WHERE range_number <> 0") == [(0,)]


@pytest.mark.parametrize("command", ["none", "drop", "delete", "truncate"])
def test_pre_creation_cmd(databases: DatabasesFactory, tmp_path: Path, command: str) -> None:
    articles = [{"source": "public.vendor", "filter": "vendor.rating > 1", "pre_creation_cmd": command}]
    site = _site(databases, tmp_path, articles)
    site.at_subscriber(
        "CREATE TABLE vendor (note text, vendor_id int PRIMARY KEY, name text, rating int, own int DEFAULT 7)",
        "INSERT INTO vendor VALUES ('theirs', 9000, 'x', 0), ('theirs', 3, 'y', 3)",
    )
    site.set_up()
    if command == "none":
        with pytest.raises(ConfigurationError, match="holds rows") as refusal:
            site.take_snapshot()
        assert "delete, truncate or drop" in str(refusal.value)
        assert site.at_subscriber("SELECT count(*) FROM vendor") == [(2,)]
        site.at_subscriber("DELETE FROM vendor")
    site.take_snapshot()
    ((total, theirs),) = site.at_subscriber("SELECT count(*), count(*) FILTER (WHERE note = 'theirs') FROM vendor")
    ((own,),) = site.at_subscriber(
        "SELECT count(*) FROM pg_attribute WHERE attrelid = 'vendor'::regclass AND attname = 'own'"
    )
    assert (total, theirs, own) == (300 + (command == "delete"), int(command == "delete"), int(command != "drop"))
    assert site.at_publisher("SELECT count(*) FROM vendor WHERE rating > 1") == [(300,)]
