"""Publications whose subscription takes a snapshot, and one of vendors and orders with rows to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from support.databases import Databases
from support.site import Site
from tranrepl.settings.publication import Publication

TABLES = """
CREATE TABLE vendor (vendor_id int PRIMARY KEY, name text UNIQUE, rating int, note text);
CREATE TABLE orders (order_id int PRIMARY KEY, vendor_id int NOT NULL REFERENCES vendor, total numeric);
"""


def automatic_site(
    databases: Databases, tmp_path: Path, articles: Sequence[Mapping[str, object] | str], **subscription: object
) -> Site:
    """Return a site without tables; its one subscription takes a snapshot."""
    settings = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic", **subscription}
    return Site(databases, tmp_path / "store", articles, subscriptions=[settings])


def vendors_and_orders(
    databases: Databases,
    tmp_path: Path,
    articles: Sequence[Mapping[str, object] | str] = ("public.vendor", "public.orders"),
) -> Site:
    """Return a site of two tables with rows at the Publisher; it is not set up."""
    site = automatic_site(databases, tmp_path, articles)
    site.at_publisher(
        TABLES,
        "INSERT INTO vendor SELECT n, 'v' || n, n % 5, CASE WHEN n % 3 > 0 THEN E'tab\\tline\\n\\\\ \\b\\f\\v' END "
        "FROM generate_series(1, 500) n",
        "INSERT INTO orders SELECT n, n % 500 + 1, n / 7.0 FROM generate_series(1, 2000) n",
    )
    return site


def with_articles(site: Site, *sources: str) -> Site:
    """Change the site's publication to these articles, whose tables a snapshot truncates; return the site."""
    articles = [{"source": source, "pre_creation_cmd": "truncate"} for source in sources]
    settings = site.publication.model_dump(mode="json")
    site.publication = Publication.model_validate({**settings, "articles": articles})
    return site
