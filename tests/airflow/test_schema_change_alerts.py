"""Who gets alerts of schema changes, at which level: runs whose alerts go to a web server on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun

from support.receivers import Hook, web_server
from tranrepl.errors import CustomProcedureError
from tranrepl.jobs.results import JobResult

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, IdleChecks, PublicationWriter

WAITS = "article sales.item is copied to reporting again: its table was rewritten"
EDIT = "article sales.item: its table was altered: write `columns: [id, price]` into the file"
ALTERED = "Subscriber reporting: ALTER TABLE sales.item ADD COLUMN price numeric"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with web_server() as server:
        monkeypatch.setenv("AIRFLOW_CONN_PAGER", json.dumps({"conn_type": "http", "host": server.url}))
        yield server


@pytest.fixture
def run(
    publications: Path,
    write_publication: PublicationWriter,
    hook: Hook,
    fake_spark: FakeSpark,
    idle_checks: IdleChecks,
) -> Callable[[str | None], DagRun]:
    """Run the DAG of one subscription once, with an alert of this level."""

    def run_with(level: str | None) -> DagRun:
        subscriptions = [{"name": "reporting", "connection": "subscriber"}]
        alert: dict[str, Any] = {
            "notifier": "tranrepl_airflow.webhook.WebhookNotifier",
            "arguments": {"connection": "pager"},
        }
        write_publication(subscriptions=subscriptions, alerts=[alert if level is None else {**alert, "level": level}])
        finished: DagRun = DagBag(publications.parent).dags["purchasing"].test()
        return finished

    return run_with


def _told(hook: Hook) -> list[tuple[str, ...]]:
    names = ("event", "level", "summary", "text")
    return [tuple(post.body[name] for name in names) for post in hook.posts]


REPLICATED = ("schema_change", "info", "purchasing/reporting: schema change replicated", ALTERED)


@pytest.mark.parametrize(("level", "told"), [("info", [REPLICATED]), (None, [])])
def test_a_replicated_schema_change_is_told_to_whoever_asks_for_it(
    run: Callable[[str | None], DagRun],
    fake_spark: FakeSpark,
    hook: Hook,
    level: str | None,
    told: list[tuple[str, ...]],
) -> None:
    fake_spark.answer("streams", JobResult(commands=1, applied_schema_changes=(ALTERED,)))
    finished = run(level)
    assert finished.state == "success"
    assert _told(hook) == told


@pytest.mark.parametrize("level", [None, pytest.param("error", marks=pytest.mark.slow)])
def test_what_schema_changes_cost_or_ask_for_is_a_warning_told_once(
    run: Callable[[str | None], DagRun],
    fake_spark: FakeSpark,
    idle_checks: IdleChecks,
    hook: Hook,
    publications: Path,
    level: str | None,
) -> None:
    fake_spark.answer("log_reader", JobResult().warning_of_schema_changes([WAITS, EDIT]))
    idle_checks.results["distribution"] = JobResult()
    run_id = run(level).run_id
    warning = ("schema_change", "warning", "purchasing: schema change to look at", f"{WAITS}\n{EDIT}")
    assert _told(hook) == ([warning] if level is None else [])
    assert [post.body["run_id"] for post in hook.posts] == ([run_id] if level is None else [])
    hook.posts.clear()
    # Of a rewritten table, it is found before a Spark job is started.
    idle_checks.results["log_reader"] = JobResult().warning_of_schema_changes([WAITS])
    run(level)
    assert [text for *_, text in _told(hook)] == ([WAITS] if level is None else [])


def test_a_delivery_stopped_before_a_schema_change_is_told_as_that(
    run: Callable[[str | None], DagRun], fake_spark: FakeSpark, hook: Hook
) -> None:
    stopped = CustomProcedureError(
        "procedure mine does not take the calls",
        remedy="`tranrepl script FILE --custom` prints a skeleton",
        schema_change=True,
        xact_seqno="00ab",
        command_id=1,
    )
    before = JobResult(commands=1, applied_schema_changes=(ALTERED,))
    fake_spark.answer("streams", before.model_copy(update={"error": stopped.report}), exit_code=1)
    assert run("info").state == "failed"
    assert _told(hook) == [
        REPLICATED,
        ("schema_change", "error", "purchasing/reporting: schema change stops the delivery", stopped.message),
    ]
    ((_, error),) = [hook.posts]
    assert error.body["remedy"].startswith("`tranrepl script ")
    assert error.body["browse"].endswith("--from 0x00ab --to 0x00ab")
