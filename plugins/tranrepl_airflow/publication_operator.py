"""Tasks about one publication that start no Spark job: what they have in common, clean-up, and the one in place of
a publication whose settings cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseOperator, Context

from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError
from tranrepl.printable import one_event
from tranrepl.remedies import Place, usual_file
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alert_callbacks import alert_early
from tranrepl_airflow.alerts import AlertEvent, error_alert
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.notifiers import notify_all
from tranrepl_airflow.outcome import RETRY_WHAT_MAY_PASS, logged_failure

if TYPE_CHECKING:
    from tranrepl.distributor.cleanup import Cleanup


class PublicationOperator(BaseOperator):
    """A task about one publication.

    What may pass by itself is tried again, configuration errors are not.
    """

    def __init__(self, *, publication: Publication, settings_file: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("retry_policy", RETRY_WHAT_MAY_PASS)
        super().__init__(**kwargs)
        self.publication = publication
        self.settings_file = settings_file or usual_file(self.publication.publication)


class CleanupOperator(PublicationOperator):
    """Looks for what should be warned of, and removes what one publication needs no more. It starts no Spark job.

    Returns the Cleanup as XCom. Raises ReplicationStopped, which is not tried again for configuration errors.
    """

    def execute(self, context: Context) -> Any:
        # Imported here: parsing a DAG file loads no database driver.
        from tranrepl.admin.cleanup import clean_up
        from tranrepl.topology import Topology

        publication = self.publication
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
            self.log.warning("Commands that subscription %s may still need are kept: %s", subscription, one_event(why))
        for subscription, error in done.deactivated.items():
            self.log.error("%s", one_event(error.message))
            event, run_id = AlertEvent.SUBSCRIPTION_DEACTIVATED, str(context["run_id"])
            fields = error_alert(event, publication.publication, Place(self.settings_file, subscription), error, run_id)
            notify_all(publication.alerts, fields, cast("Mapping[str, Any]", context))
        return done.model_dump(mode="json")


class BrokenSettingsOperator(BaseOperator):
    """Fails with `message`, so that a run says why nothing is replicated."""

    def __init__(self, *, message: str, **kwargs: Any) -> None:
        super().__init__(retries=0, **kwargs)
        self.message = message

    def execute(self, context: Context) -> Any:  # noqa: ARG002 - Airflow's signature
        """Raise ReplicationStopped, always."""
        raise logged_failure(ErrorReport(kind=ErrorKind.CONFIGURATION, message=self.message), Place())
