"""Latency by leg: measured from the commands that were delivered, and told in history, status and metrics."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import DatabasesFactory
from support.observed import ITEM, distribution_rows, insert_transactions
from support.shell import publication_file, typed
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.status import MeasuredLatency, status
from tranrepl.distributor.database import DeliveredSpan
from tranrepl.model.latency import Leg, together

_REGISTERED, _DELIVERED = 100, 20
_LEGS = {Leg.REGISTERED: _REGISTERED, Leg.DELIVERED: _DELIVERED, Leg.OVERALL: _REGISTERED + _DELIVERED}
"""What `_took` makes each leg take, in seconds."""


def _site(databases: DatabasesFactory, store: Path, spark: SparkHere, streams: int = 1) -> Site:
    subscription = {"name": "reporting", "connection": "subscriber", "subscription_streams": streams}
    site = Site(databases(), store, ["public.item"], spark, [{"lock_timeout": 60, **subscription}])
    site.at_publisher(ITEM)
    site.set_up()
    return site


def _took(site: Site) -> None:
    """Let the batches have been registered some time ago, and the Publisher's clock have been ahead."""
    ahead = (_REGISTERED + _DELIVERED) * 1_000_000
    distribution_rows(
        site,
        f"UPDATE msrepl_batches SET entry_time = now() - interval '{_DELIVERED} seconds', clock_difference = {ahead}",
    )


def _spans(site: Site) -> list[DeliveredSpan]:
    with site.topology.distributor() as database:
        record = database.publications.get(site.publication.publication)
        subscription = database.subscriptions.get(record, "reporting")
        return database.deliveries.latency_by_leg(record, subscription, datetime.now(UTC) - timedelta(minutes=10))


def _measured(site: Site) -> MeasuredLatency | None:
    (subscription,) = status(site.topology).subscriptions
    return subscription.latency


@pytest.mark.parametrize("streams", [1, 2])
def test_each_leg_is_measured_from_the_commands(
    databases: DatabasesFactory, tmp_path: Path, here: SparkHere, streams: int
) -> None:
    site = _site(databases, tmp_path / "store", here, streams)
    began = time.monotonic()
    insert_transactions(site, *[10] * 30)
    site.read_log().raise_error()
    _took(site)
    delivered = site.deliver()
    ran = time.monotonic() - began
    delivered.raise_error()
    assert (delivered.commands, delivered.minutes, site.differences()) == (300, (), [])
    spans = _spans(site)
    latency = together(it.latency for it in spans)
    assert [sum(getattr(it, name) for it in spans) for name in ("transactions", "commands")] == [30, 300]
    assert (latency.commands, latency, spans[-1].undelivered_commands) == (300, delivered.latency, 0)
    for leg, quantiles in latency.all_quantiles().items():
        # The runs themselves add to it.
        assert _LEGS[leg] * 0.94 < quantiles.p50 <= quantiles.p95 <= quantiles.p99 < (_LEGS[leg] + ran + 1) * 1.06
    (row,) = distribution_rows(site, "SELECT latency FROM msdistribution_history")
    assert row[0] == {leg: it.model_dump() for leg, it in latency.all_quantiles().items()}


def test_status_and_metrics_tell_the_last_minutes(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path / "store", SparkHere())
    assert _measured(site) is None
    for _ in range(2):
        insert_transactions(site, 5, 5)
        site.read_log().raise_error()
        _took(site)
        site.deliver().raise_error()
    told = _measured(site)
    assert told is not None
    assert (told.commands, list(told.legs), told.clock_difference) == (20, list(Leg), 120.0)
    file = publication_file(tmp_path, [{"source": "public.item"}], replicate_ddl=False)
    text = typed("status", file, environment=site.databases.environment).out
    assert "latency of 20 commands in 10 min, in seconds" in text
    assert all(it in text for it in ("Publisher → Distributor  ", "Distributor → Subscriber  ", "total  "))
    assert "The Publisher's clock is 120.000 s ahead of the distribution database's" in text
    metrics = typed("metrics", file, environment=site.databases.environment).out
    samples = {
        (it.labels["leg"], it.labels["quantile"]): it.value
        for family in text_string_to_metric_families(metrics)
        for it in family.samples
        if it.name == "tranrepl_leg_latency_seconds"
    }
    p50 = {leg: it.p50 for leg, it in told.legs.items()}
    assert len(samples) == 9
    assert {leg: samples[leg, "0.5"] for leg in p50} == p50
    distribution_rows(site, "UPDATE msrepl_deliveries SET time = time - interval '11 minutes'")
    assert _measured(site) is None


def test_minutes_before_a_failure_are_kept(databases: DatabasesFactory, tmp_path: Path) -> None:
    """With what the run left undelivered."""
    site = _site(databases, tmp_path / "store", SparkHere())
    insert_transactions(site, 4, 3)
    site.at_subscriber("INSERT INTO item VALUES (6, 0, 'in the way')")
    site.read_log().raise_error()
    failed = site.deliver()
    assert failed.error is not None
    (span,) = _spans(site)
    assert (span.transactions, span.commands, span.undelivered_commands) == (1, 4, 7)
    assert site.deliver().error is not None
    assert sum(it.commands for it in _spans(site)) == 4
