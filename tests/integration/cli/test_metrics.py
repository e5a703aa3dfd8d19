"""What `tranrepl metrics` gives to Prometheus."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from conftest import DatabasesFactory
from support.databases import connection_environment
from support.shell import COMMAND, publication_file, typed
from support.site import Site
from support.spark_here import SparkHere

Labels = frozenset[tuple[str, str]]
_NAMES = {"publication": "purchasing", "subscription": "reporting"}


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Make a publication that has delivered 3 commands and has 2 to deliver."""
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere())
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY)")
    site.set_up()
    site.at_publisher("INSERT INTO item SELECT generate_series(1, 3)")
    site.read_log().raise_error()
    site.deliver().raise_error()
    site.at_publisher("INSERT INTO item VALUES (4), (5)")
    site.read_log().raise_error()
    return site


@pytest.fixture
def environment(site: Site) -> Mapping[str, str]:
    return connection_environment(site.connections.values())


@pytest.fixture
def file(site: Site, tmp_path: Path) -> Path:
    return publication_file(
        tmp_path,
        [{"source": "public.item"}],
        distributor={"connection": "distribution", "store": site.publication.distributor.store},
    )


def _samples(text: str) -> dict[tuple[str, Labels], float]:
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {(it.name, frozenset(it.labels.items())): it.value for family in families for it in family.samples}


def _value(text: str, name: str, **labels: str) -> float:
    return _samples(text)[f"tranrepl_{name}", frozenset(labels.items())]


def test_once_prints_where_all_stand(file: Path, environment: Mapping[str, str]) -> None:
    told = typed("metrics", file, "--once", environment=environment)
    assert (told.status, told.err) == (0, "")
    assert _value(told.out, "undelivered_commands", **_NAMES) == 2
    assert _value(told.out, "delivered_commands_total", **_NAMES) == 3
    assert 0 < _value(told.out, "latency_seconds", **_NAMES) < 600
    assert _value(told.out, "retained_log_bytes", publication="purchasing") > 0
    assert _value(told.out, "slot_wal_status", publication="purchasing", tranrepl_slot_wal_status="reserved") == 1
    assert _value(told.out, "subscription_state", **_NAMES, tranrepl_subscription_state="Not running") == 1
    assert _value(told.out, "subscription_state", **_NAMES, tranrepl_subscription_state="Error") == 0
    assert _value(told.out, "unhealed_error", publication="purchasing", subscription="") == 0
    assert _value(told.out, "settings_file_usable", file=str(file)) == 1
    assert _value(told.out, "wrong", publication="purchasing") == 0


def test_a_server_that_is_away_is_told(file: Path, environment: Mapping[str, str]) -> None:
    away = {**environment, "AIRFLOW_CONN_SUBSCRIBER": "postgres://nobody@127.0.0.1:1/nothing"}
    told = typed("metrics", file, "--once", environment=away)
    assert told.status == 0
    assert _value(told.out, "subscriber_up", **_NAMES) == 0
    assert _value(told.out, "publisher_up", publication="purchasing") == 1
    assert _value(told.out, "wrong", publication="purchasing") == 1


def test_a_file_that_cannot_be_used_is_told(file: Path, environment: Mapping[str, str]) -> None:
    broken = file.with_name("broken.yaml")
    broken.write_text("publication: [", encoding="utf-8")
    told = typed("metrics", file.parent, "--once", environment=environment)
    assert told.status == 1
    assert _value(told.out, "settings_file_usable", file=str(broken)) == 0
    assert _value(told.out, "settings_file_usable", file=str(file)) == 1
    assert len(told.errors) == 1


def test_each_request_asks_anew(site: Site, file: Path, environment: Mapping[str, str]) -> None:
    command = [str(COMMAND), "metrics", str(file), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+/metrics", process.stderr.readline())
            assert found is not None
            before = _asked(found[0])
            site.deliver().raise_error()
            after = _asked(found[0])
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert [_value(it, "undelivered_commands", **_NAMES) for it in (before, after)] == [2, 0]
    assert _value(after, "delivered_commands_total", **_NAMES) == 5


def _asked(address: str) -> str:
    answer = httpx.get(address, headers={"Accept": "application/openmetrics-text; version=1.0.0"}, timeout=60)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    return answer.raise_for_status().text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "either --once or --listen"),
        (("--once", "--listen", "127.0.0.1:0"), "either --once or --listen"),
        (("--listen", "9187"), "no HOST:PORT"),
        (("--listen", "127.0.0.1:70000"), "no HOST:PORT"),
        (("--listen", "203.0.113.1:0"), "cannot listen on"),
    ],
)
def test_wrong_options_are_told(options: tuple[str, ...], told: str, tmp_path: Path) -> None:
    file = publication_file(tmp_path, [{"source": "public.item"}])
    outcome = typed("metrics", file, *options, environment={})
    assert outcome.status == 1
    assert told in outcome.err
