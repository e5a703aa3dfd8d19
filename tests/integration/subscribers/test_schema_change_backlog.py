"""A backlog of many changes with twenty schema changes among them, for three Subscribers at different watermarks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from uuid import uuid4

import psycopg
import pytest

from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.history_site import HistorySite, Options, history_site
from support.mariadb import MariaDbServer
from support.site import Site, execute

CHANGES = 1_000_000 if os.environ.get("TRANREPL_LARGE_BACKLOG") == "1" else 60_000
_EACH_TRANSACTION = 100
_EARLIER = (
    "ALTER TABLE item ADD COLUMN d integer DEFAULT 7",
    "ALTER TABLE event RENAME COLUMN kind TO sort",
)
_SCHEMA_CHANGES = (
    "ALTER TABLE line ADD COLUMN seen timestamptz DEFAULT now()",
    "ALTER TABLE item RENAME COLUMN b TO words",
    "ALTER TABLE item ALTER COLUMN c TYPE varchar(20)",
    "ALTER TYPE mood ADD VALUE 'm3'",
    "ALTER TABLE event ADD COLUMN note text",
    "ALTER TABLE vendor RENAME COLUMN name TO title",
    "ALTER TABLE line DROP COLUMN note",
    "ALTER TABLE item DROP COLUMN a",
    "ALTER TABLE item ADD COLUMN a text",
    "ALTER TABLE line ALTER COLUMN qty TYPE numeric(12,2)",
    "ALTER TABLE event RENAME COLUMN sort TO kind",
    "ALTER TABLE event ADD COLUMN place text DEFAULT 'here'",
    "ALTER TABLE item ADD COLUMN e boolean NOT NULL DEFAULT true",
    "ALTER TABLE item RENAME COLUMN d TO f",
    "ALTER TABLE line ADD COLUMN note text DEFAULT 'new'",
    "ALTER TABLE item RENAME TO thing; ALTER TABLE thing RENAME TO item",
    "ALTER TABLE event DROP COLUMN note",
    "ALTER TABLE item DROP COLUMN e",
    "ALTER TABLE event RENAME COLUMN place TO town",
    "ALTER TABLE line RENAME COLUMN seen TO looked",
)
# Rows come, cross the filter and go; a few stay, and have the values that later columns gave them.
_BODY = """
    INSERT INTO item (id, c) SELECT 20 * block + n, 'c' || n FROM generate_series(1, 20) n;
    DELETE FROM item WHERE id BETWEEN 20 * (block - 25) + 1 AND 20 * (block - 24) AND id % 50 <> 7;
    UPDATE item SET c = 'u' || block % 1000 WHERE id BETWEEN 20 * block - 60 AND 20 * block - 46;
    INSERT INTO line (doc, number, qty) SELECT block, n, block % 900 FROM generate_series(2, 6) n;
    UPDATE line SET qty = qty + 1 WHERE doc BETWEEN block - 3 AND block - 1;
    DELETE FROM line WHERE doc = block - 40 AND doc % 20 <> 7;
    UPDATE vendor SET rating = block WHERE id < 5;
    INSERT INTO event SELECT 10 * block + n, n % 6, 'm2', '2024-01-01' FROM generate_series(0, 9) n;
    UPDATE event SET {kind} = ({kind} + 1) % 6 WHERE id BETWEEN 10 * block - 20 AND 10 * block - 11;
    DELETE FROM event WHERE id BETWEEN 10 * (block - 30) AND 10 * (block - 30) + 9 AND id % 50 <> 7;
"""


class _Writer:
    """Writes transactions of about a hundred changes at the Publisher."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._block = 1

    def write(self, changes: int, kind: str) -> None:
        """`kind`: what the column is called that the row filter reads."""
        last = self._block + changes // _EACH_TRANSACTION
        body = _BODY.format(kind=kind)
        loop = f"FOR block IN {self._block}..{last - 1} LOOP {body} COMMIT; END LOOP;"
        self._site.at_publisher(f"DO $$ BEGIN {loop} END $$")
        self._block = last

    def write_among(self, schema_changes: Sequence[str], changes: int, kind: str) -> None:
        """Write changes before, between and after the schema changes."""
        each = changes // (len(schema_changes) + 1)
        for schema_change in schema_changes:
            self.write(each, kind)
            kind = "kind" if "RENAME COLUMN sort" in schema_change else kind
            kind = "sort" if "RENAME COLUMN kind" in schema_change else kind
            execute(self._site.databases.publisher, schema_change)
        self.write(each, kind)


def _clock(site: Site) -> datetime:
    (moment,) = site.at_publisher("SELECT clock_timestamp()")[0]
    assert isinstance(moment, datetime)
    return moment


def _deliver(at: HistorySite, subscription: str, before: datetime | None = None) -> int:
    result = at.site.deliver(subscription, before)
    result.raise_error()
    return result.commands


@pytest.mark.slow
def test_subscribers_at_different_watermarks_get_all_of_a_backlog(
    postgres: PostgresServer, mariadb: MariaDbServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schema = f"backlog_{uuid4().hex[:8]}"
    mariadb.execute(f"CREATE DATABASE {schema}")
    try:
        with shared_databases(postgres, schema) as ends:
            at = history_site(ends, tmp_path_factory.mktemp("backlog"), mariadb, schema, Options(statements=True))
            site, writer = at.site, _Writer(at.site)
            # SQLite's watermark stays where its snapshot was, MariaDB's goes beyond one schema change, PostgreSQL's
            # beyond two.
            writer.write_among(_EARLIER[:1], CHANGES // 100, "kind")
            site.read_log().raise_error()
            _deliver(at, "mariadb")
            writer.write_among(_EARLIER[1:], CHANGES // 100, "kind")
            site.read_log().raise_error()
            _deliver(at, "subscriber")
            half = len(_SCHEMA_CHANGES) // 2
            writer.write_among(_SCHEMA_CHANGES[:half], CHANGES // 2, "sort")
            middle = _clock(site)
            writer.write_among(_SCHEMA_CHANGES[half:], CHANGES // 2, "sort")
            read = site.read_log()
            read.raise_error()
            assert read.commands > CHANGES * 0.8
            assert read.schema_changes == len(_SCHEMA_CHANGES) == 20
            assert 0 < _deliver(at, "mariadb", middle) < read.commands
            rest = {name: _deliver(at, name) for name in at.names}
            assert rest["mariadb"] < rest["subscriber"] == read.commands < rest["sqlite"]
            with psycopg.connect(**ends.publisher.libpq_parameters("test")) as session:  # type: ignore[arg-type]
                assert at.differences(session) == []
    finally:
        mariadb.execute(f"DROP DATABASE {schema}")
