"""A run's metrics, as Airflow's own StatsD client sends them to a server that listens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils

from conftest import DatabasesFactory
from support.databases import connection_environment
from support.observed import ITEM, insert_transactions, wait_until
from support.receivers import StatsdServer, statsd_server
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.errors import DataError
from tranrepl.jobs.results import JobResult
from tranrepl_airflow.run_metrics import report_run

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, IdleChecks, PublicationWriter

pytest.importorskip("statsd", reason="Airflow's StatsD client is not installed: pip install statsd")

_LAST = "the.last.one"


def _initialize() -> None:
    """As Airflow does when a task begins."""
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdServer]:
    with statsd_server() as server:
        settings = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(server.port)}
        for name, value in settings.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
        _initialize()
        yield server
    monkeypatch.undo()
    _initialize()


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere())
    site.at_publisher(ITEM)
    site.set_up()
    insert_transactions(site, 2, 3)
    for name, value in connection_environment(site.connections.values()).items():
        monkeypatch.setenv(name, value)
    return site


def _told(server: StatsdServer) -> dict[str, str]:
    """Return what was sent, by name, and forget it."""
    stats.incr(_LAST)
    wait_until(lambda: any(_LAST in line for line in server.lines))
    lines = [line.rpartition(":") for line in server.lines if _LAST not in line]
    server.lines.clear()
    return {name.removeprefix("airflow."): value for name, _, value in lines}


def test_each_run_tells_what_it_did_and_what_is_left(site: Site, server: StatsdServer) -> None:
    read = site.read_log()
    report_run(site.publication, "log_reader", "", read)
    told = _told(server)
    assert set(told) == {
        *(f"tranrepl.purchasing.{it}.log_reader" for it in ("run_seconds", "errors")),
        *(f"tranrepl.purchasing.{it}" for it in ("stored_commands", "stored_transactions")),
        *(f"tranrepl.purchasing.{it}" for it in ("retained_log_bytes", "unread_log_bytes")),
        *(f"tranrepl.purchasing.reporting.{it}" for it in ("undelivered_commands", "latency_seconds")),
    }
    counts = ("stored_commands", "stored_transactions", "errors.log_reader")
    assert [told[f"tranrepl.purchasing.{it}"] for it in counts] == ["5|c", "2|c", "0|c"]
    assert told["tranrepl.purchasing.reporting.undelivered_commands"] == "5|g"
    assert float(told["tranrepl.purchasing.retained_log_bytes"].removesuffix("|g")) > 0
    delivered = site.deliver()
    report_run(site.publication, "distribution", "reporting", delivered)
    told = _told(server)
    own = {name.removeprefix("tranrepl.purchasing.reporting."): value for name, value in told.items()}
    assert delivered.latency is not None
    legs = {
        f"leg_latency_seconds.{leg}.{quantile}": f"{seconds}|g"
        for leg, it in delivered.latency.all_quantiles().items()
        for quantile, seconds in it.model_dump().items()
    }
    assert len(legs) == 9
    assert own == {
        **legs,
        "run_seconds.distribution": f"{delivered.seconds}|g",
        "errors.distribution": "0|c",
        "delivered_commands": "5|c",
        "delivered_transactions": "2|c",
        "skipped_commands": "0|c",
        "delivery_rate": f"{5 / delivered.seconds}|g",
        "last_latency_seconds": f"{(delivered.latency_ms or 0) / 1000}|g",
        "undelivered_commands": "0|g",
        "latency_seconds": "0.0|g",
    }


def test_with_tags_a_name_is_the_same_for_all(
    site: Site, server: StatsdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", "True")
    _initialize()
    site.read_log()
    report_run(site.publication, "distribution", "reporting", site.deliver())
    told = _told(server)
    tags = "publication=purchasing,subscription=reporting"
    assert told[f"tranrepl.delivered_commands,{tags}"] == "5|c"
    assert told[f"tranrepl.errors,{tags},agent=distribution"] == "0|c"
    assert f"tranrepl.leg_latency_seconds,{tags},leg=registered,quantile=p95" in told


def test_what_a_run_did_is_told_where_the_servers_are_away(
    site: Site, server: StatsdServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DISTRIBUTION", "postgres://nobody@127.0.0.1:1/nothing")
    failed = JobResult(commands=4, seconds=2.0, error=DataError("a row is in the way").report)
    report_run(site.publication, "distribution", "reporting", failed)
    told = _told(server)
    assert told["tranrepl.purchasing.reporting.errors.distribution"] == "1|c"
    assert told["tranrepl.purchasing.reporting.delivery_rate"] == "2.0|g"
    assert "tranrepl.purchasing.reporting.undelivered_commands" not in told
    assert "The backlog's metrics were not reported" in caplog.text


def test_nothing_is_asked_where_metrics_are_off(
    publication: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("PUBLISHER", "DISTRIBUTION"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", "postgres://nobody@127.0.0.1:1/nothing")
    report_run(publication, "log_reader", "", JobResult(commands=4))
    assert caplog.text == ""


def test_the_tasks_of_a_run_report(
    publications: Path,
    write_publication: PublicationWriter,
    idle_checks: IdleChecks,
    fake_spark: FakeSpark,
    server: StatsdServer,
) -> None:
    write_publication(subscriptions=[{"name": "reporting", "connection": "subscriber"}])
    bag = DagBag(publications.parent)
    fake_spark.answer("log_reader", JobResult(transactions=3, commands=7))
    fake_spark.answer("streams", JobResult(transactions=2, commands=5))
    bag.dags["purchasing"].test()
    told = _told(server)
    assert told["tranrepl.purchasing.stored_commands"] == "7|c"
    assert told["tranrepl.purchasing.reporting.delivered_commands"] == "5|c"
    assert {it for it in told if ".errors." in it} == {
        "tranrepl.purchasing.errors.log_reader",
        "tranrepl.purchasing.reporting.errors.distribution",
        "tranrepl.purchasing.reporting.errors.snapshot",
    }
