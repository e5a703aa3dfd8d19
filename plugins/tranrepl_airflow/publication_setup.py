"""The DAG that checks a publication and sets it up, as `tranrepl check` and `tranrepl setup` do in a shell."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import BaseModel

from tranrepl.errors import ErrorReport, ReplicationError
from tranrepl.printable import counted, one_event
from tranrepl.remedies import Place
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alert_trials import tried
from tranrepl_airflow.dag_builder import SETUP_SUFFIX
from tranrepl_airflow.dag_parts import RETRY_DELAY, Tag, new_dag, new_task
from tranrepl_airflow.documentation import CHECK, SETUP, setup_doc
from tranrepl_airflow.earlier_tasks import ERROR_KEY
from tranrepl_airflow.graph import SEVERAL_TRIES
from tranrepl_airflow.job_connections import JobConnections, resolve_connections
from tranrepl_airflow.outcome import logged_failure
from tranrepl_airflow.parameters import is_only_checked, setup_parameters
from tranrepl_airflow.publication_operator import PublicationOperator

if TYPE_CHECKING:
    from tranrepl.admin.check import Checked
    from tranrepl.topology import Topology

CHECK_TASK, SETUP_TASK = "check", "setup"
REPORT_KEY = "report"
"""XCom of both tasks: a CheckReport, of what was done a list."""


class Problem(BaseModel):
    """What keeps the publication from running."""

    message: str
    remedy: str | None = None
    blocks_setup: bool


class CheckReport(BaseModel):
    """What `check` found."""

    articles: int
    subscriptions: int
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """The report as a line."""
        from tranrepl.admin.check import in_numbers

        found = in_numbers(len(self.problems), len(self.warnings))
        return f"{counted(self.articles, 'article')}, {counted(self.subscriptions, 'subscription')}: {found}"


def setup_dag(publication: Publication, settings_file: str) -> DAG:
    """Build the DAG: `check`, and `setup` after it unless only a check is wanted."""
    fields: dict[str, Any] = {
        "publication": publication,
        "settings_file": settings_file,
        "retries": SEVERAL_TRIES,
        "retry_delay": RETRY_DELAY,
        "max_active_tis_per_dag": 1,
    }
    check = new_task(CheckOperator, task_id=CHECK_TASK, doc_md=CHECK, **fields)
    set_up = new_task(SetupOperator, task_id=SETUP_TASK, doc_md=SETUP, **fields)
    with new_dag(
        f"{publication.publication}{SETUP_SUFFIX}",
        schedule=None,
        # Nothing runs here that nobody asked for.
        is_paused_upon_creation=False,
        tags=[publication.publication, Tag.SET_UP.value],
        params=setup_parameters(),
        doc_md=setup_doc(publication),
    ) as dag:
        dag.add_tasks([check, set_up])
        check >> set_up
    return dag


class _CheckingOperator(PublicationOperator):
    """Returns what was done as XCom, in words. Raises ReplicationStopped, which is not tried again for configuration
    errors."""

    def execute(self, context: Context) -> Any:
        """Do it, and end the task with what stops it."""
        # Imported here: parsing a DAG file loads no database driver.
        from tranrepl.topology import Topology

        try:
            connections = resolve_connections(self.publication.connection_ids())
            done = self._done(Topology(self.publication, connections.by_id), connections, context)
        except ReplicationError as error:
            stopped = error.report
        else:
            self.log.info("%s", done)
            return done
        context["ti"].xcom_push(ERROR_KEY, stopped.model_dump(mode="json"))
        raise logged_failure(stopped, Place(self.settings_file))

    @abstractmethod
    def _done(self, topology: Topology, connections: JobConnections, context: Context) -> str:
        """Return what was done. Raises ReplicationError."""


class CheckOperator(_CheckingOperator):
    """Looks at all that the publication needs, and changes nothing. The XCom `report` is a CheckReport.

    It fails where setup could not work; where only a check is wanted, where there is any problem.
    """

    def _done(self, topology: Topology, connections: JobConnections, context: Context) -> str:
        from tranrepl.admin.check import check

        checked = check(topology)
        checked.warnings.extend(str(it) for it in tried(topology.publication) if it.failed)
        report = check_report(topology.publication, checked, connections)
        context["ti"].xcom_push(REPORT_KEY, report.model_dump(mode="json"))
        for warning in report.warnings:
            self.log.warning("%s", one_event(warning))
        stopping = checked.problems if is_only_checked(context) else checked.blocking
        for problem in checked.problems:
            if not stopping or problem is not stopping[0]:
                self.log.error("%s", one_event(connections.redact(str(problem))))
        if stopping:
            raise _redacted(stopping[0].report, connections)
        return report.in_words


class SetupOperator(_CheckingOperator):
    """Makes what is missing at Publisher, Distributor and Subscribers. The XCom `report` has what was
    done, as the log does."""

    def _done(self, topology: Topology, connections: JobConnections, context: Context) -> str:
        if is_only_checked(context):
            raise AirflowSkipException("only a check was wanted")
        from tranrepl.admin.check import check
        from tranrepl.admin.joining_tables import no_tables_joining
        from tranrepl.admin.setup import set_up

        done: list[str] = []

        def say(what: str) -> None:
            done.append(connections.redact(what))
            self.log.info("%s", one_event(done[-1]))

        with no_tables_joining(topology):
            checked = check(topology)
            for problem in checked.blocking:
                raise _redacted(problem.report, connections)
            try:
                set_up(checked.topology, checked.tables, say)
            finally:
                context["ti"].xcom_push(REPORT_KEY, done)
        for problem in checked.needing_attention:
            self.log.warning("needs attention: %s", one_event(connections.redact(str(problem))))
        return f"set up: {counted(len(done), 'change')}" if done else "nothing to do"


def check_report(publication: Publication, checked: Checked, connections: JobConnections) -> CheckReport:
    """Return what a check found, without a password."""
    return CheckReport(
        articles=len(checked.tables),
        subscriptions=len(publication.subscriptions),
        problems=tuple(
            Problem(
                message=connections.redact(it.message),
                remedy=None if it.report.remedy is None else connections.redact(it.report.remedy),
                blocks_setup=it in checked.blocking,
            )
            for it in checked.problems
        ),
        warnings=tuple(connections.redact(it) for it in checked.warnings),
    )


def _redacted(report: ErrorReport, connections: JobConnections) -> ReplicationError:
    texts = {name: getattr(report, name) for name in ("message", "remedy")}
    update = {name: None if text is None else connections.redact(text) for name, text in texts.items()}
    return report.model_copy(update=update).to_exception()
