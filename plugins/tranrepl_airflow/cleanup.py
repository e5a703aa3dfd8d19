"""Clean-up as an Airflow task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseOperator, Context

from tranrepl.errors import ReplicationError
from tranrepl.settings import Publication
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

    def execute(self, context: Context) -> Any:  # noqa: ARG002 - Airflow's signature
        # Imported here: database drivers are not for whoever parses a DAG file.
        from tranrepl.cleanup import clean_up

        publication = Publication.model_validate(self.publication)
        try:
            done = clean_up(publication, resolve_connections(publication.connection_ids()).by_id)
        except ReplicationError as error:
            raise airflow_exception(error.to_report()) from None
        for subscription, why in done.unreachable.items():
            self.log.warning("Subscription %s keeps what it may need: %s", subscription, why)
        for deactivation in done.deactivated.values():
            self.log.error("%s", deactivation.message)
        return done.model_dump(mode="json")
