"""The graph of a publication, without Airflow."""

from __future__ import annotations

import subprocess
import sys

from tranrepl.settings.publication import Publication, SyncType
from tranrepl_airflow.graph import Dependency, StartRule, Task, replication_graph


def test_each_subscription_is_a_group_behind_one_log_reader(publication: Publication) -> None:
    graph = replication_graph(publication)
    assert graph.log_reader == Task("log_reader", retries=2)
    assert graph.log_was_read == Task("log_was_read", (Dependency("log_reader"),))
    assert [group.subscription for group in graph.groups] == ["reporting", "audit"]


def test_a_group_retries_only_what_its_own_distribution_failed_at(publication: Publication) -> None:
    group = replication_graph(publication).groups[0]
    assert group.initialize == Task("reporting.initialize", (Dependency("log_reader"),), StartRule.ALL_ENDED, 2)
    assert group.distribute == Task(
        "reporting.distribute", (Dependency("reporting.initialize"),), StartRule.ALL_SUCCEEDED, 0
    )
    assert group.retry_on_single_connection == Task(
        "reporting.retry_on_single_connection",
        (Dependency("reporting.distribute", "a batch failed"),),
        StartRule.ONE_RAN,
        2,
    )
    assert group.delivered == Task(
        "reporting.delivered",
        (Dependency("reporting.distribute"), Dependency("reporting.retry_on_single_connection")),
        StartRule.ONE_SUCCEEDED,
        2,
    )


def test_tasks_come_after_those_they_wait_for(publication: Publication) -> None:
    seen: set[str] = set()
    for task in replication_graph(publication).tasks():
        assert {dependency.task_id for dependency in task.after} <= seen
        seen.add(task.task_id)
    assert len(seen) == 10


def test_without_a_snapshot_a_group_begins_with_its_distribution(publication: Publication) -> None:
    without = publication.subscriptions[0].model_copy(update={"sync_type": SyncType.REPLICATION_SUPPORT_ONLY})
    group = replication_graph(publication.model_copy(update={"subscriptions": [without]})).groups[0]
    assert group.initialize is None
    assert group.distribute == Task("reporting.distribute", (Dependency("log_reader"),), StartRule.ALL_ENDED, 0)


def test_the_graph_needs_no_airflow() -> None:
    code = "import sys, tranrepl_airflow.graph; sys.exit('airflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
