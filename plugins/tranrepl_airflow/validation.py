"""A publication's validation as an Airflow DAG: a task for each subscription."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, Context, CronTriggerTimetable, TriggerRule
from airflow.sdk.exceptions import AirflowSkipException

from tranrepl.jobs.requests import Repair, ValidationRequest
from tranrepl.jobs.results import JobResult
from tranrepl.printable import counted, one_event
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alert_callbacks import task_failed_alerts
from tranrepl_airflow.alerts import AlertEvent
from tranrepl_airflow.assets import subscription_alias
from tranrepl_airflow.dag_builder import VALIDATION_SUFFIX
from tranrepl_airflow.dag_parts import RETRY_DELAY, Tag, new_dag, new_task
from tranrepl_airflow.delivered import DeliveredOperator
from tranrepl_airflow.documentation import DELIVERED, EQUAL, VALIDATE, validation_doc
from tranrepl_airflow.graph import SEVERAL_TRIES, StartRule
from tranrepl_airflow.notifiers import new_notifier
from tranrepl_airflow.operators import ReplicationSparkOperator
from tranrepl_airflow.parameters import is_to_be_validated, validation_parameters

NOT_BACKFILLED = ["scheduled", "manual", "operator_triggered", "asset_triggered", "asset_materialization"]
"""Every kind of run but a backfill: a validation compares the rows of now, for any interval."""
_MOST_ROWS = 20
"""Differing rows of an article that are named in the log and in the XCom."""


def validation_dag(publication: Publication, settings_file: str) -> DAG:
    """Build the DAG that compares the publication's Subscribers. Raises ConfigurationError for an alert whose notifier
    cannot be had."""
    for alert in publication.alerts:
        new_notifier(alert)
    schedule = publication.validation_schedule
    tasks = [_tasks(publication, it.name, settings_file) for it in publication.subscriptions]
    with new_dag(
        f"{publication.publication}{VALIDATION_SUFFIX}",
        schedule=None if schedule is None else CronTriggerTimetable(schedule, timezone="UTC"),
        allowed_run_types=NOT_BACKFILLED,
        tags=[publication.publication, Tag.VALIDATE.value],
        params=validation_parameters(publication),
        doc_md=validation_doc(publication),
    ) as dag:
        for validate, *after in tasks:
            dag.add_tasks([validate, *after])
            validate >> after
    return dag


def _tasks(publication: Publication, subscription: str, settings_file: str) -> list[BaseOperator]:
    """Return the task that validates, and those after it."""
    validate = new_task(
        ValidationOperator,
        task_id=f"validate_{subscription}",
        publication=publication,
        settings_file=settings_file,
        subscription=subscription,
        on_failure_callback=task_failed_alerts(publication, AlertEvent.VALIDATION_FAILED, subscription),
        doc_md=VALIDATE,
        retries=SEVERAL_TRIES,
        retry_delay=RETRY_DELAY,
        max_active_tis_per_dag=1,
    )
    # What was delivered on the way counts though rows differ. The last task then makes the run a failed one.
    delivered = new_task(
        DeliveredOperator,
        task_id=f"delivered_{subscription}",
        publication=publication,
        settings_file=settings_file,
        subscription=subscription,
        outlets=[subscription_alias(publication.publication, subscription)],
        attempts=[validate.task_id],
        trigger_rule=TriggerRule(StartRule.ONE_RAN.value),
        doc_md=DELIVERED,
        retries=SEVERAL_TRIES,
        retry_delay=RETRY_DELAY,
    )
    return [validate, delivered, new_task(EmptyOperator, task_id=f"equal_{subscription}", doc_md=EQUAL)]


class ValidationOperator(ReplicationSparkOperator):
    """Compares one subscription with the Publisher; fails for good with error 20574 where rows differ.

    What to compare and whether to repair are the run's parameters (`articles` as a JSON list). Skipped where others
    were chosen.
    """

    agent = "validation"
    template_fields: Sequence[str] = ("articles", "rowcount_only", "repair")

    def __init__(
        self,
        *,
        articles: str = "{{ (params.articles or []) | tojson }}",
        rowcount_only: str = "{{ params.rowcount_only }}",
        repair: str = "{{ params.repair }}",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.articles = articles
        self.rowcount_only = rowcount_only
        self.repair = repair

    def request(self) -> ValidationRequest:
        return ValidationRequest(
            publication=self.publication,
            subscription=self.subscription,
            articles=tuple(json.loads(self.articles)),
            rowcount_only=self.rowcount_only == "True",
            repair=Repair.APPLY if self.repair == "True" else Repair.NONE,
        )

    def execute(self, context: Context) -> Any:
        """Run the job. Raises AirflowSkipException where the subscription was not chosen."""
        if not is_to_be_validated(context, self.subscription):
            raise AirflowSkipException(f"subscription {self.subscription} was not chosen")
        return super().execute(context)

    def in_words(self, result: JobResult) -> str:
        """Return what was compared; one that found differences fails, and says nothing here."""
        articles = len(result.validation.articles) if result.validation is not None else 0
        return f"compared {counted(articles, 'article')}"

    def _run(self, context: Context) -> JobResult:
        """Run the validation, and log what differs; the XCom has it shortened."""
        result = super()._run(context)
        if result.validation is None:
            return result
        validation = result.validation.shortened(_MOST_ROWS)
        for line in validation.in_few_lines("the XCom names them"):
            self.log.info("%s", one_event(line))
        for article in validation.unequal:
            self.log.warning("%s", one_event(article.summary()))
            for row in article.rows:
                self.log.warning("%s", one_event(f"{article.article} {row.in_words()}"))
        return result.model_copy(update={"validation": validation})
