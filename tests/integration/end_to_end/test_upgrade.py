"""A site that an earlier version made goes on with this one: what waits for delivery arrives, and nothing is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.earlier_site import PUBLICATIONS, EarlierSite, unpacked
from support.shell import typed
from support.site import execute
from support.submitted_here import run_submitted_jobs_here
from tranrepl import __version__

pytestmark = pytest.mark.spark

_PUBLISHED = {"customer": "*", "orders": "order_id, customer_id, total"}


@pytest.fixture
def site(server_folder: Path, tmp_path: Path) -> Iterator[EarlierSite]:
    """Unpack the site under the server's folder, which its user can reach."""
    site = unpacked(server_folder / tmp_path.name)
    with site.server:
        yield site


def test_a_site_of_an_earlier_version_goes_on_without_loss(
    site: EarlierSite, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_submitted_jobs_here(spark, monkeypatch)
    # A snapshot that was taken again would remove it.
    execute(site.server.connection("subscriber"), "INSERT INTO customer VALUES (7777, 'the Subscriber''s own')")
    before = _watermarks(site)
    _refuse_to_work(site)
    for publication in PUBLICATIONS:
        done = typed("setup", str(site.file(publication)), environment=site.environment)
        assert done.status == 0, done.err
        assert "deactivated" not in done.out
        assert ("migrated the tables of distribution database" in done.out) == (publication == PUBLICATIONS[0])
        assert "migrated the tables of Subscriber" in done.out
    # Where the deliveries of the earlier version ended, those of this one go on.
    assert _watermarks(site) == before
    for publication in PUBLICATIONS:
        done = typed("run", str(site.file(publication)), environment=site.environment)
        assert done.status == 0, done.err
    for table, columns in _PUBLISHED.items():
        query = f"SELECT {columns} FROM {table} ORDER BY 1"
        rows = execute(site.server.connection("publisher"), query)
        assert [it for it in execute(site.server.connection("subscriber"), query) if it[0] != 7777] == rows
        assert len(rows) > 40
    query = "SELECT entry_id, amount * 100, text FROM entry ORDER BY 1"
    entries = execute(site.server.connection("publisher"), query)
    assert _at_archive(site, query) == [(number, float(str(amount)), text) for number, amount, text in entries]
    assert len(execute(site.server.connection("subscriber"), "SELECT name FROM customer WHERE customer_id = 7777")) == 1
    version = "SELECT version FROM msrepl_version"
    assert _at_archive(site, version) == [(__version__,)]
    for database in ("subscriber", "distribution"):
        assert execute(site.server.connection(database), version) == [(__version__,)]


def _refuse_to_work(site: EarlierSite) -> None:
    """See that jobs name the command to type before setup has run."""
    file = str(site.file("shop"))
    refused = typed("distribute", file, environment=site.environment)
    assert refused.status == 1
    assert f"has no current schema\n  → run `tranrepl setup {file}`" in refused.err


def _watermarks(site: EarlierSite) -> list[tuple[object, ...]]:
    query = "SELECT subscription, transaction_timestamp FROM msreplication_subscriptions WHERE stream = 0"
    rows = [*execute(site.server.connection("subscriber"), query), *_at_archive(site, query)]
    return [(subscription, bytes(watermark)) for subscription, watermark in rows]


def _at_archive(site: EarlierSite, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(site.sqlite_file)) as session:
        return list(session.execute(query))
