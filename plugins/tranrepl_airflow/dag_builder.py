"""From a publication's settings file to its Airflow DAG."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import (
    DAG,
    BaseOperator,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
    Label,
    TaskGroup,
    TriggerRule,
)
from airflow.sdk.bases.timetable import BaseTimetable
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.definitions.timetables.simple import ContinuousTimetable
from airflow.sdk.exceptions import AirflowTimetableInvalid

from tranrepl.admin.airflow_pools import pool_name
from tranrepl.errors import ConfigurationError, ErrorKind
from tranrepl.settings.loading import load_publication
from tranrepl.settings.publication import Publication
from tranrepl_airflow import documentation
from tranrepl_airflow.alert_callbacks import SkippedBeforeFailure, run_is_late, task_failed_alerts
from tranrepl_airflow.alerts import AlertEvent
from tranrepl_airflow.assets import subscription_alias
from tranrepl_airflow.dag_parts import RETRY_DELAY, Tag, new_dag, new_task
from tranrepl_airflow.delivered import DeliveredOperator
from tranrepl_airflow.graph import (
    LOG_READER,
    LOG_WAS_READ,
    RUN_IS_OVER,
    SEVERAL_TRIES,
    Graph,
    Group,
    Task,
    replication_graph,
)
from tranrepl_airflow.notifiers import new_notifier
from tranrepl_airflow.operators import (
    DistributionOperator,
    InitializeOperator,
    LogReaderOperator,
    SingleConnectionRetryOperator,
)
from tranrepl_airflow.publication_operator import BrokenSettingsOperator, CleanupOperator
from tranrepl_airflow.run_bounds import RUN_BOUND, RunIsOverOperator, run_end

BROKEN_TAG = "broken"
CLEANUP_DAG_ID = "distribution_cleanup"
_TAG_LENGTH = 100
"""Airflow takes no longer tag."""
VALIDATION_SUFFIX = "_validate"
REINITIALIZATION_SUFFIX = "_reinitialize"
SETUP_SUFFIX = "_setup"
ADMINISTRATION_SUFFIX = "_administer"
_OTHER_DAGS = {
    VALIDATION_SUFFIX: "validation",
    REINITIALIZATION_SUFFIX: "reinitialization",
    SETUP_SUFFIX: "setup",
    ADMINISTRATION_SUFFIX: "administration",
}
"""A publication's other DAGs, by the suffix of their ids. The publication's name comes first: a list sorts by it."""
REINITIALIZATION_TASKS = "reinitialize_"
"""What the ids of its tasks begin with; the subscription's name follows."""
_HOURLY = "0 * * * *"


def dag_id_of(path: Path) -> str:
    """Return the id of a settings file's DAG: the file's name, which is the publication's."""
    return re.sub(r"[^\w.-]", "_", path.stem)


def build_dag(path: Path) -> DAG:
    """Build the DAG of one settings file. Where the file cannot be used, a DAG that says so: other files go on."""
    try:
        publication = load_publication(path)
        _require_own_name(publication, path)
        return publication_dag(publication, str(path))
    except ConfigurationError as error:
        return broken_dag(path, str(error))


def publication_dag(publication: Publication, settings_file: str) -> DAG:
    """Build the DAG of a publication, whose tasks name its file in the commands that they print.

    Raises ConfigurationError for a schedule that is no cron expression, a subscription named as a task, or an alert
    whose notifier cannot be had.
    """
    schedule = _timetable(publication)
    graph = replication_graph(publication)
    _require_free_group_names(graph)
    for alert in publication.alerts:
        new_notifier(alert)
    # Tasks are made before their DAG: inside it, Airflow copies its parameters and arguments for each class of a task.
    tasks = _first_tasks(graph, publication, settings_file)
    groups = {it.subscription: _group_tasks(it, publication, settings_file) for it in graph.groups}
    with new_dag(
        publication.publication,
        schedule=schedule,
        tags=[publication.publication, Tag.REPLICATE.value],
        doc_md=documentation.publication_doc(publication),
        deadline=_deadline(publication),
    ) as dag:
        dag.add_tasks(tasks)
        for subscription, of_subscription in groups.items():
            with TaskGroup(subscription, prefix_group_id=False):
                dag.add_tasks(of_subscription)
        _connect(dag, graph)
    return dag


def broken_dag(path: Path, message: str) -> DAG:
    """Build a DAG whose name and tag show in the list that the file cannot be used, and whose page and runs say why.

    It keeps the file's schedule (hourly where that cannot be read), so that a publication which was running shows
    as failing and does not just stop. It does not unpause itself: mending a new file must not start it.
    """
    name = dag_id_of(path)
    # Another publication's own DAG may have that name.
    dag_id = f"{name}_broken" if name.endswith(tuple(_OTHER_DAGS)) else name
    with new_dag(
        dag_id,
        dag_display_name=f"{name} (broken settings)",
        schedule=_last_known_timetable(path),
        tags=[name[:_TAG_LENGTH], Tag.REPLICATE.value, BROKEN_TAG],
        doc_md=documentation.broken_doc(message),
    ) as dag:
        BrokenSettingsOperator(task_id="settings", message=message, doc_md=documentation.BROKEN_SETTINGS)
    return dag


def build_cleanup_dag(paths: Iterable[Path]) -> DAG:
    """Build the DAG that cleans up after every publication: a task for each settings file.

    The task of a file that cannot be used fails with its message, and the others go on.
    """
    tasks = [_cleanup(it) for it in paths]
    with new_dag(
        CLEANUP_DAG_ID,
        schedule=CronTriggerTimetable("*/10 * * * *", timezone="UTC"),
        tags=[Tag.CLEAN_UP.value],
        doc_md="Removes stored commands that every Subscriber has, and history that is too old, as each publication's "
        "`min_distretention`, `max_distretention`, `history_retention` and `measurement_retention` say.",
    ) as dag:
        dag.add_tasks(tasks)
    return dag


def _cleanup(path: Path) -> BaseOperator:
    task_id = dag_id_of(path)
    try:
        publication = load_publication(path)
        _require_own_name(publication, path)
    except ConfigurationError as error:
        return BrokenSettingsOperator(task_id=task_id, message=str(error), doc_md=documentation.BROKEN_SETTINGS)
    return new_task(
        CleanupOperator,
        task_id=task_id,
        publication=publication,
        settings_file=str(path),
        doc_md=documentation.CLEANUP,
        retries=SEVERAL_TRIES,
        retry_delay=RETRY_DELAY,
    )


def _require_own_name(publication: Publication, path: Path) -> None:
    name = publication.publication
    if name == CLEANUP_DAG_ID:
        raise ConfigurationError(
            f"{path}: publication: {name!r} is the name of another DAG, the clean-up", remedy="allowed: another name"
        )
    for suffix, what in _OTHER_DAGS.items():
        if name.endswith(suffix):
            raise ConfigurationError(
                f"{path}: publication: {name!r} is the name of another DAG, the {what} of publication "
                f"{name.removesuffix(suffix)!r}",
                remedy=f"allowed: a name that does not end with {suffix}",
            )
    if publication.publication != path.stem:
        raise ConfigurationError(
            f"{path}: publication: {publication.publication!r} is not the file's name",
            remedy=f"name the file {publication.publication}.yaml: two files could hold one publication otherwise",
        )


def _require_free_group_names(graph: Graph) -> None:
    for group in graph.groups:
        if group.subscription in (LOG_READER, LOG_WAS_READ, RUN_IS_OVER):
            raise ConfigurationError(f"subscriptions: name: {group.subscription!r} is the name of a task")


def _timetable(publication: Publication) -> BaseTimetable | None:
    if publication.is_continuous:
        return ContinuousTimetable()
    if publication.cron is None:
        return None
    return _cron_timetable(publication.cron)


@lru_cache(maxsize=256)
def _cron_timetable(cron: str) -> CronDataIntervalTimetable:
    timetable = CronDataIntervalTimetable(cron, timezone="UTC")
    try:
        timetable.validate()
    except AirflowTimetableInvalid as error:
        raise ConfigurationError(
            f"schedule: {cron!r}: {error}", remedy='allowed: a cron expression, as in "*/5 * * * *"'
        ) from None
    return timetable


def _last_known_timetable(path: Path) -> CronDataIntervalTimetable | None:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        schedule = document.get("schedule")
        if schedule is None:
            return None
        timetable = CronDataIntervalTimetable(schedule, timezone="UTC")
        timetable.validate()
    except Exception:  # noqa: BLE001 - a date that there is not, lists nested too deeply: the broken DAG says why
        return CronDataIntervalTimetable(_HOURLY, timezone="UTC")
    return timetable


def _deadline(publication: Publication) -> DeadlineAlert | None:
    threshold = publication.latency_threshold
    # A run of continuous agents lasts as long as it lasts: the early warning of latency takes its place.
    if threshold is None or not publication.alerts or publication.is_continuous:
        return None
    alerts = [alert.model_dump(mode="json") for alert in publication.alerts]
    arguments = {"publication": publication.publication, "threshold": threshold, "alerts": alerts}
    # Not the logical date: a manual run has none, and that of an interval is its start. Not in the triggerer, where
    # notifiers would have to be asynchronous.
    return DeadlineAlert(
        DeadlineReference.DAGRUN_QUEUED_AT, timedelta(seconds=threshold), SyncCallback(run_is_late, arguments)
    )


def _described(publication: Publication, settings_file: str) -> str:
    """Return the log reader's `doc_json`, where Replication Monitor reads the settings: other fields are rendered as
    templates, or cut where they are long. Alerts' arguments may hold what not each of its readers is to see."""
    described = publication.model_dump(mode="json", exclude={"alerts"}, exclude_defaults=True)
    return json.dumps({**described, "settings_file": settings_file})


def _first_tasks(graph: Graph, publication: Publication, settings_file: str) -> list[BaseOperator]:
    continuous_until = run_end(publication)
    tasks: list[BaseOperator] = [
        new_task(
            LogReaderOperator,
            publication=publication,
            settings_file=settings_file,
            continuous_until=continuous_until,
            on_failure_callback=task_failed_alerts(publication, AlertEvent.LOG_READER_FAILED),
            doc_md=documentation.LOG_READER,
            doc_json=_described(publication, settings_file),
            **_arguments(graph.log_reader),
        ),
        new_task(EmptyOperator, doc_md=documentation.LOG_WAS_READ, **_arguments(graph.log_was_read)),
    ]
    if graph.run_is_over is not None:
        arguments = _arguments(graph.run_is_over)
        tasks.append(
            RunIsOverOperator(continuous_until=continuous_until, doc_md=documentation.RUN_IS_OVER, **arguments)
        )
    return tasks


def _group_tasks(group: Group, publication: Publication, settings_file: str) -> list[BaseOperator]:
    subscription = group.subscription
    ours: dict[str, Any] = {"publication": publication, "settings_file": settings_file, "subscription": subscription}
    delivering: dict[str, Any] = {
        **ours,
        "pool": pool_name(publication.publication, subscription),
        # A continuous agent delivers all that is stored until its end.
        "committed_before": "" if publication.is_continuous else RUN_BOUND,
        "continuous_until": run_end(publication),
    }
    attempts = [group.distribute.task_id, group.retry_on_single_connection.task_id]
    outlets = [subscription_alias(publication.publication, subscription)]
    tasks: list[BaseOperator] = []
    if group.initialize is not None:
        attempts.insert(0, group.initialize.task_id)
        initialize = new_task(
            InitializeOperator,
            pool=delivering["pool"],
            on_failure_callback=task_failed_alerts(publication, AlertEvent.SNAPSHOT_FAILED, subscription),
            outlets=outlets,
            doc_md=documentation.INITIALIZE,
            **ours,
            **_arguments(group.initialize),
        )
        tasks.append(initialize)
    distribute = new_task(
        DistributionOperator,
        # After any other error the retry decides.
        on_failure_callback=[
            *task_failed_alerts(publication, AlertEvent.BATCH_FAILED, subscription, only=ErrorKind.CONFIGURATION),
            SkippedBeforeFailure(publication, subscription, tuple(attempts), only=ErrorKind.CONFIGURATION),
        ],
        doc_md=documentation.DISTRIBUTE,
        **delivering,
        **_arguments(group.distribute),
    )
    retry = new_task(
        SingleConnectionRetryOperator,
        first_attempt=group.distribute.task_id,
        on_failure_callback=[
            *task_failed_alerts(publication, AlertEvent.BATCH_FAILED, subscription),
            SkippedBeforeFailure(publication, subscription, tuple(attempts)),
        ],
        doc_md=documentation.RETRY,
        **delivering,
        **_arguments(group.retry_on_single_connection),
    )
    delivered = new_task(
        DeliveredOperator,
        attempts=attempts,
        outlets=outlets,
        doc_md=documentation.DELIVERED,
        **ours,
        **_arguments(group.delivered),
    )
    return [*tasks, distribute, retry, delivered]


def _arguments(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "trigger_rule": TriggerRule(task.starts.value),
        "retries": task.retries,
        "retry_delay": RETRY_DELAY,
        # Over all runs, since max_active_runs does not count a backfill's.
        "max_active_tis_per_dag": 1,
    }


def _connect(dag: DAG, graph: Graph) -> None:
    for task in graph.tasks():
        for dependency in task.after:
            upstream, downstream = dag.get_task(dependency.task_id), dag.get_task(task.task_id)
            if dependency.label is None:
                upstream >> downstream
            else:
                upstream >> Label(dependency.label) >> downstream
