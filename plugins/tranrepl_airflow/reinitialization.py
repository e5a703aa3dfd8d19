"""The DAG that reinitializes a publication's subscriptions: a task for each subscription that takes snapshots.

It is a DAG of its own, without a schedule, because Airflow offers the parameters of a DAG with a schedule to backfills
too; each run of a backfill would take the same snapshot, of now and not of its interval.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowSkipException

from tranrepl.admin.airflow_pools import pool_name
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication, SyncType
from tranrepl_airflow.alert_callbacks import task_failed_alerts
from tranrepl_airflow.alerts import AlertEvent
from tranrepl_airflow.assets import subscription_alias
from tranrepl_airflow.dag_builder import REINITIALIZATION_SUFFIX, REINITIALIZATION_TASKS
from tranrepl_airflow.dag_parts import RETRY_DELAY, Tag, new_dag, new_task
from tranrepl_airflow.documentation import REINITIALIZE, reinitialization_doc
from tranrepl_airflow.graph import SEVERAL_TRIES
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.notifiers import new_notifier
from tranrepl_airflow.operators import InitializeOperator
from tranrepl_airflow.parameters import chosen_articles, reinitialization_parameters, subscriptions_to_reinitialize

_MARKED = "marked_for_reinitialization"


def reinitialization_dag(publication: Publication, settings_file: str) -> DAG | None:
    """Build the DAG; return None where no subscription takes a snapshot. Raises ConfigurationError for an alert whose
    notifier cannot be had."""
    for alert in publication.alerts:
        new_notifier(alert)
    subscriptions = [it.name for it in publication.subscriptions if it.sync_type is SyncType.AUTOMATIC]
    if not subscriptions:
        return None
    tasks = [
        new_task(
            ReinitializeOperator,
            task_id=f"{REINITIALIZATION_TASKS}{subscription}",
            publication=publication,
            settings_file=settings_file,
            subscription=subscription,
            outlets=[subscription_alias(publication.publication, subscription)],
            on_failure_callback=task_failed_alerts(publication, AlertEvent.SNAPSHOT_FAILED, subscription),
            **_pool(publication, subscription),
            doc_md=REINITIALIZE,
            retries=SEVERAL_TRIES,
            retry_delay=RETRY_DELAY,
            max_active_tis_per_dag=1,
        )
        for subscription in subscriptions
    ]
    with new_dag(
        f"{publication.publication}{REINITIALIZATION_SUFFIX}",
        schedule=None,
        # Nothing runs here that nobody asked for, and who asks should not have to unpause it first.
        is_paused_upon_creation=False,
        tags=[publication.publication, Tag.REINITIALIZE.value],
        params=reinitialization_parameters(publication, subscriptions),
        doc_md=reinitialization_doc(publication),
    ) as dag:
        dag.add_tasks(tasks)
    return dag


def _pool(publication: Publication, subscription: str) -> dict[str, str]:
    """Return the publication's own, so that no two deliveries of a subscription run at once; none where one is
    continuous, which holds its pool as long as it does and goes on after a snapshot."""
    return {} if publication.is_continuous else {"pool": pool_name(publication.publication, subscription)}


class ReinitializeOperator(InitializeOperator):
    """Reinitializes one subscription, or articles of it: marks it and takes its snapshot.

    The run's parameters say which subscriptions, and which articles. Skipped where others were chosen. Each run of the
    DAG marks once: a later try continues what an earlier one has begun.
    """

    def execute(self, context: Context) -> Any:
        """Run the job. Raises AirflowSkipException where the subscription was not chosen."""
        if self.subscription not in subscriptions_to_reinitialize(context):
            raise AirflowSkipException(f"subscription {self.subscription} was not chosen")
        return super().execute(context)

    def _run(self, context: Context) -> JobResult:
        # Imported here: parsing a DAG file loads no database driver.
        from tranrepl.snapshot.reinitialization import mark_for_reinitialization
        from tranrepl.topology import Topology

        # Airflow keeps it from try to try, as it does no XCom.
        state = context["task_state_store"]
        if not state.get(_MARKED):
            request = self.request().model_copy(update={"articles": chosen_articles(context)})
            topology = Topology(request.publication, resolve_connections(request.connection_ids()).by_id)
            mark_for_reinitialization(request, topology)
            state.set(_MARKED, True)
        return super()._run(context)
