"""Articles whose changes are applied by generated procedures or by statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from psycopg import sql

from support.databases import Databases
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from tranrepl.connections import Connection
from tranrepl.model.names import TableName

BY_STATEMENTS = {"ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"}
STYLES: dict[str, Mapping[str, str]] = {"procedures": {}, "statements": BY_STATEMENTS}
SiteFactory = Callable[..., Site]


def styled_site(
    databases: Databases, tmp_path: Path, *articles: Mapping[str, object] | str, style: str = "procedures"
) -> Site:
    """Return a site whose articles have one style, its jobs' tasks in this process."""
    written = [{"source": it} if isinstance(it, str) else it for it in articles]
    return Site(databases, tmp_path / "store", [{**it, **STYLES[style]} for it in written], SparkHere())


def _rows(connection: Connection, table: TableName) -> Rows:
    statement = sql.SQL("SELECT * FROM {}").format(sql.Identifier(table.schema, table.table))
    return sorted(execute(connection, statement.as_string(None)), key=repr)


def unequal_articles(site: Site) -> list[str]:
    """Return articles whose tables differ, or are empty: each whole, with what the Subscriber computes itself."""
    found = []
    for article in site.publication.articles:
        publisher = _rows(site.databases.publisher, article.source)
        if not publisher or publisher != _rows(site.databases.subscriber, article.destination_table):
            found.append(str(article.source))
    return found
