"""The whole way of a change, in small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.site import Site
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.log_reader import without_spark as log_reader_without_spark

VENDOR = """CREATE TABLE vendor (vendor_id int PRIMARY KEY, account_number varchar(15) NOT NULL, name varchar(50),
    credit_rating smallint, url text)"""


def test_changes_arrive_and_an_idle_run_starts_nothing(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    site = Site(databases(), tmp_path / "store", ["public.vendor"], spark)
    site.at_publisher(VENDOR)
    site.set_up()
    assert site.set_up() == []
    site.at_publisher(
        "INSERT INTO vendor SELECT n, 'A' || n, 'Name', n % 5, NULL FROM generate_series(1, 100) n",
        "UPDATE vendor SET url = '' WHERE vendor_id < 10",
        "UPDATE vendor SET name = NULL, vendor_id = vendor_id + 1000 WHERE vendor_id < 5",
        "DELETE FROM vendor WHERE vendor_id = 50",
    )
    result = site.run()
    # An UPDATE of a key goes out as DELETE and INSERT.
    assert (result.transactions, result.commands) == (4, 100 + 9 + 2 * 4 + 1)
    assert site.differences() == []

    site.spark = None
    assert (site.read_log().commands, site.deliver().commands) == (0, 0)


def test_what_takes_long_to_look_through_is_read(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.vendor"])
    site.at_publisher(VENDOR, "CREATE TABLE other (id int)")
    site.set_up()
    site.at_publisher("INSERT INTO other SELECT generate_series(1, 200000)")
    request = LogReaderRequest(publication=site.publication)
    with monkeypatch.context() as patched:
        patched.setattr("tranrepl.publisher.postgres.log_probe._PROBE_SECONDS", 0.01)
        assert log_reader_without_spark.run_without_spark(request, site.topology) is None
    empty = log_reader_without_spark.run_without_spark(request, site.topology)
    assert empty is not None
    assert empty.commands == 0
