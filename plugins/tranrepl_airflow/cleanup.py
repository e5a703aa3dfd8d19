"""Clean-up as an Airflow task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from airflow.sdk import BaseOperator, Context

from tranrepl.errors import ReplicationError
from tranrepl.settings import Publication
from tranrepl_airflow.alerts import AlertEvent, alert_fields, notify_all
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.outcome import airflow_exception


class CleanupOperator(BaseOperator):
    """Removes what one publication needs no more. It starts no Spark job.

    `publication` is `Publication.model_dump(mode="json")`. Returns the Cleanup as XCom. Raises AirflowFailException for
    configuration errors, AirflowException for others.
    """

    def __init__(self, *, publication: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.publication = publication

    def execute(self, context: Context) -> Any:
        # Imported here: database drivers are not for whoever parses a DAG file.
        from tranrepl.cleanup import clean_up

        publication = Publication.model_validate(self.publication)
        try:
            done = clean_up(publication, resolve_connections(publication.connection_ids()).by_id)
        except ReplicationError as problem:
            raise airflow_exception(problem.to_report()) from None
        for subscription, why in done.unreachable.items():
            self.log.warning("Subscription %s keeps what it may need: %s", subscription, why)
        for subscription, error in done.deactivated.items():
            self.log.error("%s", error.message)
            event, run_id = AlertEvent.SUBSCRIPTION_DEACTIVATED, str(context["run_id"])
            fields = alert_fields(event, publication.publication, subscription, error, run_id)
            notify_all(publication.alerts, fields, cast("Mapping[str, Any]", context))
        return done.model_dump(mode="json")
