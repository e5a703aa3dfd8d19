"""A log read range by range, by two sessions, is the log."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from sandbox.in_process import read_log_into_store
from sandbox.site import Site
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind
from tranrepl.publisher import log_messages as reading
from tranrepl.publisher.log_messages import LOG_PAGE

_SESSIONS = 3
_CHANGES = 300


def _overlapping_transactions(publisher: Connection) -> None:
    """Of one to hundreds of rows, some of them wide, some rolled back: they span pages, and ranges, of the log."""
    chance = random.Random(5)
    sessions = [psycopg.connect(**publisher.libpq_parameters("test")) for _ in range(_SESSIONS)]  # type: ignore[arg-type]
    for change in range(_CHANGES):
        session = chance.choice(sessions)
        rows, width = chance.choice((1, 1, 1, 30)), chance.choice((1, 10, 3 * LOG_PAGE))
        # Of digests, which do not compress.
        session.execute(
            "INSERT INTO t SELECT %s + n, (SELECT string_agg(sha512((n + m)::text::bytea)::text, '') "
            "FROM generate_series(1, %s) m) FROM generate_series(1, %s) n",
            [1000 * change, 1 + width // 130, rows],
        )
        if chance.random() < 0.3:
            chance.choice((session.commit, session.commit, session.rollback))()
    for session in sessions:
        session.commit()
        session.close()


def test_a_log_read_in_many_ranges_is_the_same_log(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, text text)")
    site.set_up()
    _overlapping_transactions(site.databases.publisher)
    slot, start, up_to = site.at_publisher(
        "SELECT slot_name, confirmed_flush_lsn - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn "
        "FROM pg_replication_slots WHERE database = current_database()"
    )[0]
    publisher, first, last = site.databases.publisher, int(str(start)), int(str(up_to))

    def messages(largest_range: int) -> list[bytes]:
        read = reading.log_messages(publisher, str(slot), first, last, largest_range)
        # Where another session decodes, it announces the table again.
        return [it for batch in read for it in batch.to_pylist() if it[:1] != b"R"]

    monkeypatch.setattr(reading, "_WORTH_TWO_SESSIONS", 1 << 40)
    at_once = messages(1)
    monkeypatch.setattr(reading, "_WORTH_TWO_SESSIONS", 0)
    for pages in (7, 64):
        assert len(reading.range_ends(first, last, pages * LOG_PAGE)) > 2
        assert messages(pages * LOG_PAGE) == at_once


def test_a_publisher_that_refuses_temporary_files_is_told_what_to_do(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, text text)")
    site.set_up()
    database = site.databases.publisher.database
    site.at_publisher(f"ALTER DATABASE \"{database}\" SET temp_file_limit = '1MB'")
    site.at_publisher("INSERT INTO t SELECT n, repeat('x', 200) FROM generate_series(1, 60000) n")
    refused = read_log_into_store(site).error
    assert refused is not None
    assert refused.kind is ErrorKind.CONFIGURATION
    assert "temp_file_limit" in (refused.remedy or "")
    site.at_publisher(f'ALTER DATABASE "{database}" RESET temp_file_limit')
    assert read_log_into_store(site).commands == 60000
