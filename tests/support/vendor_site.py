"""A publication of a table `vendor`, which a test changes, and of `other`, which goes on beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.databases import Databases
from support.equality import differing_rows
from support.observed import distribution_rows
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.whole_run import good_run
from tranrepl.jobs.results import JobResult

VENDOR = "CREATE TABLE vendor (id int PRIMARY KEY, name varchar(20), rating int, note text)"
OTHER = "CREATE TABLE other (id int PRIMARY KEY, name text)"
VENDOR_ROWS = "INSERT INTO vendor SELECT n, 'name ' || n, n, 'note' FROM generate_series(1, 20) n"
AUTOMATIC = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
BY_HAND = {"name": "reporting", "connection": "subscriber"}


def vendor_site(
    databases: Databases,
    tmp_path: Path,
    subscription: Mapping[str, object] = AUTOMATIC,
    **article: Any,
) -> Site:
    """Return a site of `vendor`, with these settings of its article, and `other`."""
    vendor = {"source": "public.vendor", "pre_creation_cmd": "delete", **article}
    articles: list[Mapping[str, object] | str] = [vendor, "public.other"]
    return Site(databases, tmp_path / "store", articles, SparkHere(), [subscription])


def begun(site: Site) -> Site:
    """Give both ends twenty vendors, and changes after them."""
    site.at_publisher(VENDOR, OTHER)
    if site.publication.subscriptions[0].sync_type != "automatic":
        site.set_up()
    site.at_publisher(VENDOR_ROWS, "INSERT INTO other VALUES (1, 'one')")
    site.set_up()
    good_run(site)
    site.at_publisher("UPDATE vendor SET note = 'changed' WHERE id < 5")
    good_run(site)
    assert differing_rows(site) == {}
    return site


def message(result: JobResult) -> str:
    assert result.error is not None
    return result.error.message


def waits_for_snapshot(site: Site, article: str = "public.vendor") -> bool:
    states = distribution_rows(site, "SELECT article, status FROM msarticle_subscriptions")
    return (article, "subscribed") in states


def published(site: Site, table: str = "vendor", columns: str = "*") -> Rows:
    return site.at_publisher(f"SELECT {columns} FROM {table} ORDER BY 1")
