"""DAGs from settings files: structure, schedule, documentation, and files that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, CronDataIntervalTimetable, CronTriggerTimetable, TriggerRule

from tranrepl.settings.publication import Publication
from tranrepl_airflow import dag_parts
from tranrepl_airflow.dag_builder import build_cleanup_dag, publication_dag
from tranrepl_airflow.dags import build_dags
from tranrepl_airflow.outcome import ReplicationStopped
from tranrepl_airflow.publication_operator import BrokenSettingsOperator

if TYPE_CHECKING:
    from airflow.conftest import PublicationWriter

INITIALIZE, DISTRIBUTE, RETRY, DELIVERED = (
    f"reporting.{name}" for name in ("initialize", "distribute", "retry_on_single_connection", "delivered")
)


def parsed(publications: Path) -> dict[str, DAG]:
    bag = DagBag(publications.parent)
    assert bag.import_errors == {}
    return dict(bag.dags)


@pytest.fixture
def dag(publications: Path) -> DAG:
    return parsed(publications)["purchasing"]


def test_each_subscription_is_a_group_of_the_publications_dag(dag: DAG) -> None:
    assert set(dag.task_group.children) == {"log_reader", "log_was_read", "reporting", "audit"}
    assert {task.task_id for task in dag.tasks} == {
        "log_reader",
        "log_was_read",
        *(
            f"{subscription}.{task}"
            for subscription in ("reporting", "audit")
            for task in ("initialize", "distribute", "retry_on_single_connection", "delivered")
        ),
    }


@pytest.mark.parametrize(
    ("task_id", "upstream", "rule", "retries"),
    [
        ("log_reader", set(), TriggerRule.ALL_SUCCESS, 2),
        ("log_was_read", {"log_reader"}, TriggerRule.ALL_SUCCESS, 0),
        (INITIALIZE, {"log_reader"}, TriggerRule.ALL_DONE, 2),
        (DISTRIBUTE, {INITIALIZE}, TriggerRule.ALL_SUCCESS, 0),
        (RETRY, {DISTRIBUTE}, TriggerRule.ONE_DONE, 2),
        (DELIVERED, {DISTRIBUTE, RETRY}, TriggerRule.ONE_SUCCESS, 2),
    ],
)
def test_what_a_task_waits_for(dag: DAG, task_id: str, upstream: set[str], rule: TriggerRule, retries: int) -> None:
    task = dag.get_task(task_id)
    assert (task.upstream_task_ids, task.trigger_rule, task.retries) == (upstream, rule, retries)
    assert task.max_active_tis_per_dag == 1
    delivers = task_id in (INITIALIZE, DISTRIBUTE, RETRY)
    assert task.pool == ("replication_purchasing_reporting" if delivers else "default_pool")


def test_the_edge_to_the_retry_says_when_it_is_taken(dag: DAG) -> None:
    assert dag.edge_info == {
        f"{subscription}.distribute": {f"{subscription}.retry_on_single_connection": {"label": "a batch failed"}}
        for subscription in ("reporting", "audit")
    }


def test_runs_cover_intervals_one_at_a_time_and_none_of_the_past(dag: DAG) -> None:
    assert dag.timetable == CronDataIntervalTimetable("*/5 * * * *", timezone="UTC")
    assert (dag.catchup, dag.max_active_runs, dag.is_paused_upon_creation) == (False, 1, None)
    assert dag.tags == {"purchasing", "replicate"}


def test_a_publication_without_a_schedule_has_manual_runs_only(
    publications: Path, write_publication: PublicationWriter
) -> None:
    write_publication(schedule=None)
    dag = parsed(publications)["purchasing"]
    assert not dag.timetable.can_be_scheduled
    assert "manual runs only" in str(dag.doc_md)


def test_the_documentation_shows_how_each_operation_is_propagated(dag: DAG) -> None:
    lines = str(dag.doc_md).splitlines()
    assert "| `purchasing.vendor` | `purchasing.vendor` | all | `CALL` | `SQL` | `CALL` |" in lines
    assert '| `sales."Order Details"` | `sales.order_details` | `id`, `quantity` | `CALL` | `SCALL` | `CALL` |' in lines
    assert "| reporting | subscriber | 1 | 10000 |" in lines
    assert "schedule `*/5 * * * *` (UTC)" in lines[0]


def test_every_task_says_what_it_is_for(dag: DAG, publications: Path) -> None:
    (publications / "broken.yaml").write_text("publication: [")
    cleanup = build_cleanup_dag(sorted(publications.glob("*.yaml")))
    broken = parsed(publications)["broken"]
    for it in (dag, broken, cleanup):
        assert all(task.doc_md for task in (it, *it.tasks)), it.dag_id
    assert "docs/how-to/a-batch-failed.md" in str(dag.get_task(RETRY).doc_md)


def test_a_publications_dag_has_no_parameters_for_a_backfill_to_offer(dag: DAG) -> None:
    assert dict(dag.params) == {}


def test_parameters_are_the_dags_alone(publications: Path) -> None:
    """Airflow copies and checks a DAG's parameters for each task that finds some; a run's reach all tasks."""
    dags = build_dags(publications)
    assert {dag.dag_id for dag in dags if dag.params} == {
        f"purchasing_{it}" for it in ("validate", "reinitialize", "setup", "administer")
    }
    assert [task for dag in dags for task in dag.tasks if task.params] == []


def test_nothing_of_the_settings_is_taken_for_a_template(dag: DAG) -> None:
    assert set(dag.get_task("log_reader").template_fields) == {"continuous_until"}
    assert set(dag.get_task(DISTRIBUTE).template_fields) == {"committed_before", "continuous_until"}


def broken_message(dag: DAG) -> str:
    """Run a broken publication's DAG, and return the message that it fails with."""
    task = dag.get_task("settings")
    assert isinstance(task, BrokenSettingsOperator)
    with pytest.raises(ReplicationStopped) as raised:
        task.execute({})
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("publication: [", "not valid YAML"),
        ("- one", "allowed: a mapping with the keys"),
        (
            "publication: broken\nsubscribtions: []\n",
            "broken.yaml:2: subscribtions: unknown key; did you mean subscriptions?",
        ),
        ("publication: broken\nsubscriptions: [{apply: bulk}]\n", "apply: 'bulk': allowed: auto, serial"),
    ],
)
def test_a_broken_file_breaks_its_own_dag_alone_and_says_why(publications: Path, text: str, message: str) -> None:
    (publications / "broken.yaml").write_text(text)
    dags = parsed(publications)
    assert set(dags) == {"purchasing", "broken"}
    broken = dags["broken"]
    assert message in broken_message(broken)
    assert message in str(broken.doc_md)
    assert "default factory" not in broken_message(broken)
    assert broken.tags == {"replicate", "broken"}
    assert broken.dag_display_name == "broken (broken settings)"
    assert dags["purchasing"].tags == {"purchasing", "replicate"}


def test_a_broken_file_takes_no_other_publications_dag(publications: Path) -> None:
    (publications / "purchasing_validate.yaml").write_text("publication: purchasing_validate")
    (publications / f"{'long' * 30}.yaml").write_text("publication: [")
    assert set(parsed(publications)) == {"purchasing", "purchasing_validate_broken", "long" * 30}


_ALIASES = "alerts: [{notifier: x.Y, arguments: {a: &a [x]}}]\n".replace(
    "}}]", "".join(f", {it}: &{it} [{', '.join([f'*{before}'] * 10)}]" for before, it in pairwise("abcdefgh")) + "}}]"
)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("since: 2026-02-31\n", "since"),
        (f"since: {'[' * 5000}\n", "nested too deeply"),
        (_ALIASES, "1,000,000 values"),
    ],
    ids=["no such day", "nested", "aliases of aliases"],
)
def test_a_file_that_yaml_stumbles_over_takes_no_other_publications_dag(
    publications: Path, write_publication: PublicationWriter, added: str, message: str
) -> None:
    path = write_publication(publication="other")
    with path.open("a") as file:
        file.write(added)
    dags = parsed(publications)
    assert {"purchasing", "other"} <= set(dags)
    assert message in broken_message(dags["other"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": "every five minutes"}, "schedule: 'every five minutes'"),
        ({"subscriptions": [{"name": "log_reader", "connection": "subscriber"}]}, "is the name of a task"),
        ({"subscriptions": [{"name": "log_was_read", "connection": "subscriber"}]}, "is the name of a task"),
    ],
)
def test_settings_that_airflow_refuses_break_the_dag(
    publications: Path, write_publication: PublicationWriter, changes: dict[str, Any], message: str
) -> None:
    write_publication(**changes)
    dag = parsed(publications)["purchasing"]
    assert message in broken_message(dag)


def test_a_file_must_have_its_publications_name(publications: Path, write_publication: PublicationWriter) -> None:
    path = write_publication()
    path.rename(publications / "copy of purchasing.yaml")
    write_publication()
    dags = parsed(publications)
    assert set(dags) == {"purchasing", "copy_of_purchasing"}
    assert "name the file purchasing.yaml" in broken_message(dags["copy_of_purchasing"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schedule: '7 * * * *'\nwrong: 1\n", "7 * * * *"),
        ("schedule: never\n", "0 * * * *"),
        ("schedule: [\n", "0 * * * *"),
        ("- one\n", "0 * * * *"),
    ],
)
def test_a_publication_that_broke_fails_on_its_schedule(publications: Path, text: str, expected: str) -> None:
    (publications / "broken.yaml").write_text(text)
    assert parsed(publications)["broken"].timetable == CronDataIntervalTimetable(expected, timezone="UTC")


def test_a_broken_publication_that_had_no_schedule_gets_none(publications: Path) -> None:
    (publications / "broken.yaml").write_text("wrong: 1\n")
    assert not parsed(publications)["broken"].timetable.can_be_scheduled


def test_a_dag_can_be_built_without_a_file(publication: Publication) -> None:
    assert publication_dag(publication, "shop.yaml").dag_id == "purchasing"


_PARSE = """
import sys, warnings
warnings.simplefilter("ignore")
from airflow.dag_processing.dagbag import DagBag
from airflow.configuration import conf
bag = DagBag(conf.get("core", "dags_folder"))
assert not bag.import_errors, bag.import_errors
print(*sorted(bag.dags))
heavy = {"pyspark", "psycopg", "adbc_driver_postgresql", "numpy", "pyarrow"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(None, ["other", "purchasing"]), ("other", ["other"])],
)
def test_parsing_is_cheap_and_builds_only_what_is_wanted(
    publications: Path, write_publication: PublicationWriter, wanted: str | None, expected: list[str]
) -> None:
    write_publication(publication="other")
    context = {} if wanted is None else {"_AIRFLOW_PARSING_CONTEXT_DAG_ID": wanted}
    finished = subprocess.run(
        [sys.executable, "-c", _PARSE], env=os.environ | context, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split()[-len(expected) :] == expected
    assert ("purchasing" in finished.stdout) == ("purchasing" in expected)


_PARSE_ALL = """
import resource, sys
from tranrepl_airflow.dags import build_dags
def seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
began = seconds()
print(len(build_dags(sys.argv[1])), seconds() - began)
"""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("count", "most_seconds"), [(30, 6.0), (300, 12.0)])
def test_one_dag_file_has_many_publications(
    write_publication: PublicationWriter, publications: Path, count: int, most_seconds: float
) -> None:
    subscriptions = [{"name": f"to_{number}", "connection": f"subscriber_{number}"} for number in range(3)]
    articles = [
        {"source": f"sales.table_{number}", "columns": ["id", "name", "amount"], "filter": f"amount > {number}"}
        for number in range(20)
    ]
    for number in range(count):
        write_publication(publication=f"p{number}", articles=articles, subscriptions=subscriptions)
    (publications / "purchasing.yaml").unlink(missing_ok=True)
    command = [sys.executable, "-c", _PARSE_ALL, str(publications)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    dags, used = finished.stdout.split()[-2:]
    assert int(dags) == 5 * count + 1
    # Of the processor's time: the bound of Airflow, dagbag_import_timeout, is 30 seconds.
    assert float(used) < most_seconds


def test_a_file_is_read_once_for_all_of_its_dags(publications: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    compose = yaml.compose

    def counted(text: str, loader: Any) -> Any:
        read.append(text)
        return compose(text, loader)

    monkeypatch.setattr(yaml, "compose", counted)
    text = (publications / "purchasing.yaml").read_text(encoding="utf-8")
    (publications / "purchasing.yaml").write_text(f"# read once\n{text}", encoding="utf-8")
    assert len(build_dags(publications)) == 6
    assert len(read) == 1


def test_tasks_that_are_copies_of_another_publications_have_nothing_of_it(
    publications: Path, write_publication: PublicationWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts = [{"notifier": "tranrepl_airflow.webhook.WebhookNotifier", "arguments": {"connection": "hook"}}]
    write_publication(
        publication="first", alerts=alerts, subscriptions=[{"name": name, "connection": "b"} for name in "abc"]
    )

    class Forgetful(dict[Any, Any]):
        """Each task is constructed."""

        def __contains__(self, key: object) -> bool:
            return False

    def attributes(names: str) -> dict[str, dict[str, Any]]:
        tasks = [task for dag in build_dags(publications, names=names) for task in dag.tasks]
        others = {"_dag", "task_group"}
        made = {f"{it.dag_id} {it.task_id}": {k: v for k, v in vars(it).items() if k not in others} for it in tasks}
        return {name: it for name, it in made.items() if name.startswith("purchasing")}

    monkeypatch.setattr(dag_parts, "_made", Forgetful())
    alone = attributes("purchasing")
    monkeypatch.setattr(dag_parts, "_made", {})
    assert len(attributes("*")) == len(alone) == 26
    assert attributes("*") == alone


def test_one_dag_cleans_up_after_every_publication(publications: Path, write_publication: PublicationWriter) -> None:
    (publications / "broken.yaml").write_text("publication: [")
    write_publication(publication="other")
    dag = build_cleanup_dag(sorted(publications.glob("*.yaml")))
    assert {task.task_id: type(task).__name__ for task in dag.tasks} == {
        "broken": "BrokenSettingsOperator",
        "other": "CleanupOperator",
        "purchasing": "CleanupOperator",
    }
    assert dag.timetable == CronTriggerTimetable("*/10 * * * *", timezone="UTC")
    assert [task.upstream_task_ids for task in dag.tasks] == [set()] * 3


def test_a_publication_cannot_have_the_name_of_the_clean_up(
    publications: Path, write_publication: PublicationWriter
) -> None:
    write_publication(publication="distribution_cleanup")
    assert "is the name of another DAG" in broken_message(parsed(publications)["distribution_cleanup"])


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("x_validate", "validation"),
        ("x_reinitialize", "reinitialization"),
        ("x_setup", "setup"),
        ("x_administer", "administration"),
    ],
)
def test_a_publication_cannot_have_the_name_of_anothers_dag(
    publications: Path, write_publication: PublicationWriter, name: str, other: str
) -> None:
    write_publication(publication=name)
    message = broken_message(parsed(publications)[f"{name}_broken"])
    assert f"publication: '{name}'" in message
    assert f"{other} of publication 'x'" in message
    assert "distribution_cleanup" not in message
