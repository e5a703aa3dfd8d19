"""Early warnings as alerts: the log reader's task sends each once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.databases import connection_environment
from support.observed import distribution_rows
from support.receivers import Hook, web_server
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.remedies import Place
from tranrepl_airflow.alert_callbacks import alert_early
from tranrepl_airflow.publication_operator import CleanupOperator

_FILE = "dags/publications/purchasing.yaml"
_HOOK = {"notifier": "tranrepl_airflow.webhook.WebhookNotifier", "arguments": {"connection": "pager"}}


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with web_server() as server:
        monkeypatch.setenv("AIRFLOW_CONN_PAGER", json.dumps({"conn_type": "http", "host": server.url}))
        yield server


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Make a publication whose first command has waited for two minutes."""
    settings: dict[str, Any] = {"latency_threshold": 60, "alerts": [_HOOK]}
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), **settings)
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note text)")
    site.set_up()
    site.at_publisher("INSERT INTO item (id) VALUES (1)")
    site.read_log().raise_error()
    distribution_rows(site, "UPDATE msrepl_batches SET first_commit_time = now() - interval '2 minutes'")
    for name, value in connection_environment(site.connections.values()).items():
        monkeypatch.setenv(name, value)
    return site


def test_a_warning_is_one_alert(site: Site, hook: Hook) -> None:
    for _ in range(2):
        alert_early(site.publication, Place(_FILE), {"run_id": "scheduled"})
    (post,) = hook.posts
    assert isinstance(post.body, dict)
    told = {name: post.body[name] for name in ("event", "level", "summary", "number", "remedy", "run_id")}
    assert told == {
        "event": "early_warning",
        "level": "warning",
        "summary": "purchasing/reporting: latency",
        "number": "14161",
        "remedy": f"`tranrepl status {_FILE}` shows whether deliveries run, and how long they take",
        "run_id": "scheduled",
    }


def test_a_server_that_is_away_fails_no_task(
    site: Site, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DISTRIBUTION", "postgres://nobody@127.0.0.1:1/nothing")
    alert_early(site.publication, Place(_FILE), {"run_id": "scheduled"})
    assert hook.posts == []
    assert "Early warnings were not checked" in caplog.text


def test_clean_up_tells_where_no_run_is(site: Site, hook: Hook) -> None:
    site.publication = site.publication.model_copy(update={"schedule": "*/5 * * * *", "latency_threshold": None})
    distribution_rows(site, "UPDATE mslogreader_history SET time = now() - interval '1 hour'")
    operator = CleanupOperator(task_id="purchasing", publication=site.publication)
    for _ in range(2):
        context: Any = {"run_id": "scheduled"}
        operator.execute(context)
    (post,) = hook.posts
    assert isinstance(post.body, dict)
    assert post.body["summary"] == "purchasing: no run"
    assert post.body["text"].startswith("the log reader has not run for 60 minutes")
