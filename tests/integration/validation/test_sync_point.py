"""The point at which a validation compares both ends, while others write at the Publisher and deliver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.concurrent_writers import concurrent_writers
from support.site import Site
from support.spark_here import SparkHere
from support.validated_site import COLUMNS, article_of, deliver_once, validated_site
from tranrepl.errors import TransientError
from tranrepl.jobs.results import JobResult
from tranrepl.postgres.compared_table import SnapshotPlace
from tranrepl.publisher.postgres.exported_snapshot import ExportedSnapshot
from tranrepl.publisher.postgres.publisher import PostgresPublisher
from tranrepl.validation import comparison_targets, differences
from tranrepl.validation.differences import Found

_VALIDATIONS = int(os.environ.get("TRANREPL_VALIDATIONS", "10"))

# Inserts, updates, key changes, deletes, and rows that enter and leave the filter.
_WRITES = (
    "INSERT INTO item VALUES (%(a)s, %(a)s %% 3, 'ü' || %(a)s) ON CONFLICT (id) DO UPDATE SET price = item.id",
    "UPDATE item SET region = region + 1, note = NULL WHERE id = %(a)s",
    "UPDATE item SET region = 0, note = 'left' WHERE id = %(a)s",
    "UPDATE item SET id = id + 1000 WHERE id = %(a)s AND NOT EXISTS (SELECT FROM item WHERE id = %(a)s + 1000)",
    "DELETE FROM item WHERE id IN (%(a)s, %(a)s + 1000)",
)


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return validated_site(databases(), tmp_path, SparkHere())


@pytest.mark.slow
def test_nothing_is_found_under_load(databases: DatabasesFactory, tmp_path: Path) -> None:
    articles = [{"source": "public.item", "filter": "region <> 0"}, {"source": "public.pair"}]
    site = Site(databases(), tmp_path / "store", articles, SparkHere())
    site.at_publisher(
        f"CREATE TABLE item ({COLUMNS})",
        "CREATE TABLE pair (a text, b int, value double precision, PRIMARY KEY (a, b))",
    )
    site.set_up()
    site.at_publisher("INSERT INTO pair SELECT 'ä' || g, -g, g / 3.0 FROM generate_series(1, 1000) g")
    with concurrent_writers(site, _WRITES, ids=500) as written:
        for _ in range(_VALIDATIONS):
            before = len(written)
            result = site.validate()
            assert result.error is None, result
            assert len(written) > before
    assert article_of(result).publisher_rows > 0


def test_delivery_is_held_only_until_the_snapshots_are_open(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver_once(site)
    delivering: list[Future[JobResult]] = []

    with ThreadPoolExecutor(1) as executor:

        @contextmanager
        def open_comparison_targets(*arguments: Any) -> Iterator[Any]:
            site.at_publisher("UPDATE item SET name = 'later'")
            site.read_log().raise_error()
            delivering.append(executor.submit(site.deliver))
            assert wait(delivering, 1.5).not_done
            with comparison_targets.open_comparison_targets(*arguments) as opened:
                yield opened

        def compare(*arguments: Any, **named: Any) -> list[Found]:
            assert delivering[0].result(300).commands == 1
            assert site.at_subscriber("SELECT name FROM item") == [("later",)]
            return differences.compare(*arguments, **named)

        monkeypatch.setattr("tranrepl.validation.job.open_comparison_targets", open_comparison_targets)
        monkeypatch.setattr("tranrepl.validation.job.compare", compare)
        assert site.validate().error is None


def test_the_end_whose_snapshot_is_gone_is_named(database: DatabaseFactory) -> None:
    place = SnapshotPlace(database("subscriber"), "00000003-00000001-1", "Subscriber reporting")
    with pytest.raises(TransientError, match=r"^Subscriber reporting: the exported snapshot"), place.session():
        pass


def test_where_another_delivery_was_faster_a_new_snapshot_is_taken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver_once(site)
    taken: list[int] = []
    snapshot_of = PostgresPublisher.snapshot

    @contextmanager
    def overtaken(*arguments: Any) -> Iterator[ExportedSnapshot]:
        with snapshot_of(*arguments) as snapshot:
            taken.append(snapshot.consistent_point)
            if len(taken) == 1:
                site.at_publisher("UPDATE item SET name = 'later'")
                site.run()
            yield snapshot

    monkeypatch.setattr(PostgresPublisher, "snapshot", overtaken)
    result = site.validate()
    assert result.error is None
    assert result.validation is not None
    assert [int(result.validation.xact_seqno, 16) + 1] == taken[1:]
