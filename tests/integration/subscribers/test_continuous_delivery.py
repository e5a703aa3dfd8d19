"""A continuous delivery to every kind of Subscriber: one applier applies all, in bulk where it may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.continuous_delivery import delivering
from support.observed import wait_until
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import Site as End
from tranrepl.distribution import following
from tranrepl.distribution.draining import DeliveryDraining
from tranrepl.distribution.opening import open_distribution
from tranrepl.jobs.results import JobResult


def test_changes_of_every_kind_arrive_by_one_applier(
    plain_site: End, databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_CATALOGUE_HOLDS_SECONDS", 60.0)
    jobs = _counted(monkeypatch)
    ends = replace(databases(), subscriber=replace(plain_site.connection, connection_id="subscriber"))
    article = {"source": "public.t", "destination": f"{plain_site.schema}.t", **plain_site.kind.commands}
    site = Site(ends, tmp_path / "store", [article], SparkHere())
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, v int, note text)")
    site.set_up()
    with delivering(site) as delivery:
        for n in range(0, 40, 4):
            if n == 20:
                # From here on it is read before each of them.
                monkeypatch.setattr(following, "_CATALOGUE_HOLDS_SECONDS", 0.0)
            site.at_publisher(
                f"INSERT INTO t SELECT n, 0, 'note ' || n FROM generate_series({n}, {n + 3}) n",
                f"UPDATE t SET v = v + 1, note = NULL WHERE id % 3 = {n % 3}",
                f"DELETE FROM t WHERE id = {n + 1}",
            )
            site.read_log().raise_error()
            _wait_for(site, delivery.job.done)
        assert delivery.result().error is None
    assert plain_site.rows("t") == site.at_publisher("SELECT * FROM t ORDER BY id")
    assert len(jobs) == 1


def _wait_for(site: Site, ended: Callable[[], bool]) -> None:
    with site.topology.distributor() as database:
        last = database.publications.get("purchasing").registered_xact_seqno
    wait_until(lambda: _watermark(site) == last, lambda: not ended())


def _watermark(site: Site) -> bytes:
    with open_distribution(site.topology, "reporting") as opened:
        return opened.subscriber.watermark()


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[DeliveryDraining]:
    """Return the deliveries that are made from now on outside of the lasting task."""
    made: list[DeliveryDraining] = []
    original = DeliveryDraining.run

    def run(job: DeliveryDraining) -> JobResult:
        made.append(job)
        return original(job)

    monkeypatch.setattr(DeliveryDraining, "run", run)
    return made
