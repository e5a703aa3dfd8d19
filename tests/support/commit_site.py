"""A publication of `item` whose Subscriber shows which of its transactions inserted each row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from support.databases import Databases
from support.observed import ITEM, ITEM_WITH_ITS_COMMIT
from support.site import Site
from support.spark_here import SparkHere


def commit_site(
    databases: Databases, tmp_path: Path, log_reader: Mapping[str, int] | None = None, **limits: int
) -> Site:
    """Return it set up, its jobs' tasks in this process; `limits` are the subscription's."""
    subscription = {"name": "reporting", "connection": "subscriber", **limits}
    site = Site(
        databases, tmp_path / "store", ["public.item"], SparkHere(), [subscription], log_reader=log_reader or {}
    )
    site.at_publisher(ITEM)
    site.at_subscriber(ITEM_WITH_ITS_COMMIT)
    site.set_up()
    return site
