"""Clean-up as an Airflow task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import Context

from tranrepl.errors import ReplicationError
from tranrepl.next_steps import Place
from tranrepl.printable import one_event
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alert_callbacks import alert_early
from tranrepl_airflow.alerts import AlertEvent, error_alert
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.notifiers import notify_all
from tranrepl_airflow.outcome import logged_failure
from tranrepl_airflow.publication_operator import PublicationOperator

if TYPE_CHECKING:
    from tranrepl.distributor.cleanup import Cleanup


class CleanupOperator(PublicationOperator):
    """Looks for what should be warned of, and removes what one publication needs no more. It starts no Spark job.

    `publication` is `Publication.model_dump(mode="json")`. Returns the Cleanup as XCom. Raises ReplicationStopped,
    which is not tried again for configuration errors.
    """

    def execute(self, context: Context) -> Any:
        # Imported here: parsing a DAG file loads no database driver.
        from tranrepl.admin.cleanup import clean_up
        from tranrepl.topology import Topology

        publication = Publication.model_validate(self.publication)
        alert_early(publication, Place(self.settings_file), cast("Mapping[str, Any]", context))
        try:
            done = clean_up(Topology(publication, resolve_connections(publication.connection_ids()).by_id))
        except ReplicationError as problem:
            stopped = problem.report
        else:
            return self._report(done, publication, context)
        raise logged_failure(stopped, Place(self.settings_file))

    def _report(self, done: Cleanup, publication: Publication, context: Context) -> Any:
        for subscription, why in done.unreachable.items():
            self.log.warning("Subscription %s keeps what it may need: %s", subscription, one_event(why))
        for subscription, error in done.deactivated.items():
            self.log.error("%s", one_event(error.message))
            event, run_id = AlertEvent.SUBSCRIPTION_DEACTIVATED, str(context["run_id"])
            fields = error_alert(event, publication.publication, Place(self.settings_file, subscription), error, run_id)
            notify_all(publication.alerts, fields, cast("Mapping[str, Any]", context))
        return done.model_dump(mode="json")
