"""What `tranrepl metrics` gives to Prometheus."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_format

from conftest import DatabasesFactory
from support.checkout import CHECKOUT, shell_blocks
from support.databases import connection_environment
from support.shell import COMMAND, publication_file, typed
from support.site import Site
from support.spark_here import SparkHere

Labels = frozenset[tuple[str, str]]
_PAGE = CHECKOUT / "docs" / "how-to" / "metrics.md"
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
    families = openmetrics(text)  # type: ignore[no-untyped-call]
    return {(it.name, frozenset(it.labels.items())): it.value for family in families for it in family.samples}


def _value(text: str, name: str, **labels: str) -> float:
    return _samples(text)[f"tranrepl_{name}", frozenset(labels.items())]


def test_once_prints_where_all_stand(file: Path, environment: Mapping[str, str]) -> None:
    told = typed("metrics", file, environment=environment)
    assert (told.status, told.err) == (0, "")
    assert _value(told.out, "undelivered_commands", **_NAMES) == 2
    assert _value(told.out, "delivered_commands_total", **_NAMES) == 3
    assert 0 < _value(told.out, "latency_seconds", **_NAMES) < 600
    assert _value(told.out, "retained_log_bytes", publication="purchasing") > 0
    assert _value(told.out, "slot_wal_status", publication="purchasing", tranrepl_slot_wal_status="reserved") == 1
    assert _value(told.out, "subscription_state", **_NAMES, tranrepl_subscription_state="Idle") == 1
    assert _value(told.out, "subscription_state", **_NAMES, tranrepl_subscription_state="Failed") == 0
    assert _value(told.out, "unhealed_error", publication="purchasing", subscription="") == 0
    assert _value(told.out, "settings_file_usable", file=str(file)) == 1
    assert _value(told.out, "wrong", publication="purchasing") == 0


def test_a_server_that_is_away_is_told(file: Path, environment: Mapping[str, str]) -> None:
    away = {**environment, "AIRFLOW_CONN_SUBSCRIBER": "postgres://nobody@127.0.0.1:1/nothing"}
    told = typed("metrics", file, environment=away)
    assert told.status == 0
    assert _value(told.out, "subscriber_up", **_NAMES) == 0
    assert _value(told.out, "publisher_up", publication="purchasing") == 1
    assert _value(told.out, "wrong", publication="purchasing") == 1


def test_a_file_that_cannot_be_used_is_told(file: Path, environment: Mapping[str, str]) -> None:
    broken = file.with_name("broken.yaml")
    broken.write_text("publication: [", encoding="utf-8")
    told = typed("metrics", file.parent, environment=environment)
    assert told.status == 1
    assert _value(told.out, "settings_file_usable", file=str(broken)) == 0
    assert _value(told.out, "settings_file_usable", file=str(file)) == 1
    assert len(told.errors) == 1


def test_a_scraper_reads_what_the_page_lists(site: Site, file: Path, environment: Mapping[str, str]) -> None:
    (listening, once) = (_typed_here(it, file) for it in shell_blocks(_PAGE)[0].commands)
    printed = typed(*once, environment=environment)
    assert printed.status == 0, printed
    command = [str(COMMAND), *listening]
    with subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+/metrics", process.stderr.readline())
            assert found is not None
            before = _asked(found[0])
            site.deliver().raise_error()
            after = _asked(found[0])
            plain = httpx.get(found[0], timeout=60).raise_for_status().text
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert [_value(it, "undelivered_commands", **_NAMES) for it in (before, after)] == [2, 0]
    assert _value(after, "delivered_commands_total", **_NAMES) == 5
    # Prometheus' other format has the same, to a scraper that asks for nothing.
    families = text_format(plain)
    assert {it.name for it in families} >= {name.removesuffix("_total") for name, _ in _samples(printed.out)}
    page = _PAGE.read_text(encoding="utf-8")
    listed = {
        word
        for row in re.findall(r"^\| (`.*?) \|", page.split("## With Airflow")[0], re.MULTILINE)
        for word in re.findall(r"`(\w+)", row)
    }
    assert _names(after) <= listed
    (rules,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    named = {it for rule in yaml.safe_load(rules) for it in re.findall(r"\btranrepl_(\w+)(?!=)\b", rule["expr"])}
    assert named <= _names(after)


def _names(text: str) -> set[str]:
    """Return the names of the samples, without the prefix of all."""
    return {name.removeprefix("tranrepl_") for name, _ in _samples(text)}


def _typed_here(command: str, file: Path) -> list[str]:
    """Return the arguments of a command of the page, with this folder of publications and a free port."""
    places = {"dags/publications": str(file.parent), "127.0.0.1:9187": "127.0.0.1:0"}
    name, *arguments = shlex.split(command, comments=True)
    assert name == "tranrepl"
    return [places.get(it, it) for it in arguments]


def _asked(address: str) -> str:
    answer = httpx.get(address, headers={"Accept": "application/openmetrics-text; version=1.0.0"}, timeout=60)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    return answer.raise_for_status().text


@pytest.mark.parametrize(
    ("options", "told"),
    [
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
