"""The DAG of what an administrator does to a publication by hand: a tracer token, a transaction that is skipped or
delivered again, a clean-up, a test alert. One of them in each run.

It has no schedule, like the DAG that reinitializes, and for the same reason.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowSkipException

from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.remedies import Place
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alert_trials import sent
from tranrepl_airflow.dag_builder import ADMINISTRATION_SUFFIX
from tranrepl_airflow.dag_parts import RETRY_DELAY, Tag, new_dag, new_task
from tranrepl_airflow.documentation import ADMINISTRATION_TASKS, administration_doc
from tranrepl_airflow.earlier_tasks import ERROR_KEY
from tranrepl_airflow.graph import SEVERAL_TRIES
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.outcome import logged_failure
from tranrepl_airflow.parameters import (
    AdministrationAction,
    administration_parameters,
    chosen_action,
    chosen_subscription,
    chosen_transaction,
)
from tranrepl_airflow.publication_operator import CleanupOperator, PublicationOperator


def administration_dag(publication: Publication, settings_file: str) -> DAG:
    """Build the DAG: a task for each action, of which a run's parameters choose one."""
    tasks = [
        new_task(
            ChosenCleanupOperator if action is AdministrationAction.CLEANUP else AdministrationOperator,
            task_id=action.value,
            publication=publication,
            settings_file=settings_file,
            doc_md=ADMINISTRATION_TASKS[action],
            retries=SEVERAL_TRIES,
            retry_delay=RETRY_DELAY,
            max_active_tis_per_dag=1,
        )
        for action in AdministrationAction
    ]
    with new_dag(
        f"{publication.publication}{ADMINISTRATION_SUFFIX}",
        schedule=None,
        # Nothing runs here that nobody asked for.
        is_paused_upon_creation=False,
        tags=[publication.publication, Tag.ADMINISTER.value],
        params=administration_parameters(publication),
        doc_md=administration_doc(publication),
    ) as dag:
        dag.add_tasks(tasks)
    return dag


class ChosenCleanupOperator(CleanupOperator):
    """The publication's clean-up, where it was chosen."""

    def execute(self, context: Context) -> Any:
        """Clean up. Raises AirflowSkipException where something else was chosen."""
        _require_chosen(AdministrationAction.CLEANUP, context)
        return super().execute(context)


class AdministrationOperator(PublicationOperator):
    """Does one thing to the publication, its task's id, where the run's parameters chose it; it starts no Spark job.

    Returns what was done as XCom, in words. Raises ReplicationStopped, which is not tried again for configuration
    errors.
    """

    def execute(self, context: Context) -> Any:
        """Do it. Raises AirflowSkipException where something else was chosen."""
        action = AdministrationAction(self.task_id)
        _require_chosen(action, context)
        try:
            done = self._done(action, context)
        except ReplicationError as error:
            stopped = error.report
        else:
            self.log.info("%s", done)
            return done
        context["ti"].xcom_push(ERROR_KEY, stopped.model_dump(mode="json"))
        raise logged_failure(stopped, Place(self.settings_file, chosen_subscription(context) or ""))

    def _done(self, action: AdministrationAction, context: Context) -> str:
        # Imported here: parsing a DAG file loads no database driver.
        from tranrepl.admin.acknowledgement import acknowledge_errors
        from tranrepl.admin.skip_and_retry import parse_xact_seqno, retry_from_transaction, skip_transaction
        from tranrepl.admin.trace import post_token
        from tranrepl.topology import Topology

        publication = self.publication
        topology = Topology(publication, resolve_connections(publication.connection_ids()).by_id)
        if action is AdministrationAction.TRACE:
            return f"tracer token {post_token(topology)} is in the Publisher's log"
        if action is AdministrationAction.TEST_ALERT:
            return _tested(publication)
        if action is AdministrationAction.ACKNOWLEDGE:
            who = context["dag_run"].triggering_user_name or "Airflow"
            return "\n".join(acknowledge_errors(topology, who)) or "no error is open"
        subscription, text = chosen_subscription(context), chosen_transaction(context)
        if subscription is None or text is None:
            raise ConfigurationError(f"{action}: a subscription and an xact_seqno are needed")
        change = skip_transaction if action is AdministrationAction.SKIP else retry_from_transaction
        return f"subscription {subscription}: {change(topology, subscription, parse_xact_seqno(text))}"


def _tested(publication: Publication) -> str:
    trials = sent(publication)
    lines = "\n".join(f"notifier {it.notifier}: {it.said}" for it in trials)
    if any(it.failed for it in trials):
        raise ConfigurationError(lines, remedy="mend the notifier, or its connection in Airflow")
    return lines or "the file has no alerts: nothing was sent"


def _require_chosen(action: AdministrationAction, context: Context) -> None:
    if chosen_action(context) is not action:
        raise AirflowSkipException(f"{action} was not chosen")
