"""The operators that run the replication jobs through `spark-submit`."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.requests import ApplyMode, DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import keep_running
from tranrepl.jobs.shutdown import Shutdown, ShutdownRequest
from tranrepl.jobs.skipped_report import skipped_warning
from tranrepl.printable import counted, one_event
from tranrepl.remedies import Place, usual_file
from tranrepl.settings.publication import Publication
from tranrepl.spark.installation import mixed_pyspark_warning, require_whole_pyspark
from tranrepl.spark.output import is_chatter, submission_variables
from tranrepl.spark.spark_submit import entry_point, private_folder, write_private
from tranrepl_airflow.alert_callbacks import alert_early, alert_schema_changes, looking_for_early_warnings
from tranrepl_airflow.assets import add_events
from tranrepl_airflow.earlier_tasks import ERROR_KEY, RESULT_KEY, error_of, log_reader_error, state_of
from tranrepl_airflow.graph import LOG_READER
from tranrepl_airflow.job_answers import JobRequest, read_result, redacted, run_without_spark, without_result
from tranrepl_airflow.job_connections import JobConnections, resolve_connections
from tranrepl_airflow.lineage import ReplicatedTable, operator_lineage, replicated_tables
from tranrepl_airflow.monitor_link import MonitorLink
from tranrepl_airflow.outcome import RETRY_WHAT_MAY_PASS, logged_failure
from tranrepl_airflow.run_bounds import RUN_BOUND
from tranrepl_airflow.run_metrics import report_run
from tranrepl_airflow.spark_connection import CLIENT, SparkConnection, find_spark
from tranrepl_airflow.summary import TEMPLATE, delivered_in_words, summarize

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


class _JobHook(SparkSubmitHook):
    """Logs what a job says, without what every JVM of Spark's says.

    The driver is a process of this machine on every master. For the provider it is one on Kubernetes and YARN too then:
    else it would write the environment, which holds the passwords, on the command line, and take a job that printed
    nothing for a failed one (source: `SparkSubmitHook._build_spark_common_args`, `submit`).
    """

    def take_driver_for_process(self) -> None:
        self._is_kubernetes = self._is_yarn = False

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(line for line in itr if line.strip() and not is_chatter(line))


class ReplicationSparkOperator(SparkSubmitOperator):
    """Runs one replication job, and answers with its JobResult as XCom.

    `publication` is no template field: names are the catalogue's, exactly, and must not be taken for Jinja. Nor are
    SparkSubmitOperator's arguments, of which none is given.

    The job runs in client mode: its driver reads the request and writes the result beside this task, wherever the
    executors are. Passwords reach it through its environment only.

    `settings_file` is the path that the commands in its log name; without it, where publications usually are.

    Raises ReplicationStopped, which is not tried again for data and configuration errors, and ReplicationCrashed for a
    bug. A job that was fenced off ends well, with what it had done before.
    """

    template_fields: Sequence[str] = ()
    operator_extra_links = (MonitorLink(),)
    agent: str = "distribution"
    """The agent that the metrics of its runs name."""
    lineage: tuple[ReplicatedTable, ...] = ()
    """The tables to which `execute` wrote, and the one where it failed."""

    def __init__(
        self,
        *,
        publication: Publication,
        settings_file: str | None = None,
        subscription: str = "",
        continuous_until: str = "",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "")
        kwargs.setdefault("retry_policy", RETRY_WHAT_MAY_PASS)
        kwargs.setdefault("map_index_template", TEMPLATE)
        super().__init__(**kwargs)
        self.publication = publication
        self.settings_file = settings_file or usual_file(publication.publication)
        self.subscription = subscription
        self.continuous_until = continuous_until

    @property
    def job(self) -> str:
        """What the name of the Spark application ends with."""
        return self.agent

    @property
    def ends_at(self) -> datetime | None:
        """When a continuous job ends; None where it ends by itself."""
        return datetime.fromisoformat(self.continuous_until) if self.continuous_until else None

    def goes_on_after(self, error: ErrorReport) -> None:
        """Log an error after which a continuous agent goes on."""
        self.log.warning("%s; going on", one_event(error.message))

    @property
    def place(self) -> Place:
        """What commands about this task's work name."""
        return Place(self.settings_file, self.subscription)

    def get_openlineage_facets_on_complete(self, ti: object) -> OperatorLineage:  # noqa: ARG002 - the provider's signature
        """Return the tables to which the job wrote, and the one where it failed, for OpenLineage's provider. The
        message of a failure is for the provider to add, as it does."""
        return operator_lineage(self.lineage)

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete

    @abstractmethod
    def request(self) -> JobRequest:
        """Return what the job is asked to do."""

    def in_words(self, result: JobResult) -> str:
        """Return what the job did, for the list of task instances."""
        return delivered_in_words(result.commands, result.latency_ms)

    def execute(self, context: Context) -> Any:
        """Run the job unless there is nothing to do. Returns the JobResult as a JSON object."""
        try:
            result = self._run(context)
        except ReplicationError as error:
            result = JobResult(error=error.report)
        alert_schema_changes(self.publication, self.place, result, cast("Mapping[str, Any]", context))
        report_run(self.publication, self.agent, self.subscription, result)
        if self.subscription:
            self.lineage = replicated_tables(self.publication, self.subscription, result)
        # Outside of the handler, so that the log shows no second traceback below the message.
        if result.error is None:
            for it in result.table_changes:
                self.log.info("%s", one_event(f"{it.article}: {it.what}"))
            self._record_skipped(result)
            done = self.in_words(result)
            self.log.info("%s", done)
            summarize(context, done)
            return result.model_dump(mode="json")
        return self._stopped(result, result.error, context)

    def _record_skipped(self, result: JobResult) -> None:
        warning = skipped_warning(self.place, result)
        if warning is not None:
            self.log.warning("%s", one_event(warning))

    def _stopped(self, result: JobResult, error: ErrorReport, context: Context) -> Any:
        self._record_skipped(result)
        if error.kind is ErrorKind.FENCED:
            self.log.warning("Ended, as another job does the work: %s", one_event(error.message))
            done = result.model_copy(update={"error": None})
            summarize(context, self.in_words(done))
            return done.model_dump(mode="json")
        dumped = result.without_command().model_dump(mode="json")
        context["ti"].xcom_push(ERROR_KEY, dumped["error"])
        context["ti"].xcom_push(RESULT_KEY, dumped)
        raise logged_failure(error, self.place)

    def _run(self, context: Context) -> JobResult:
        return self._run_job(self.request(), context)

    def _run_job(self, request: JobRequest, context: Context) -> JobResult:
        spark = find_spark(self._conn_id, self._deploy_mode)
        connections = resolve_connections(request.connection_ids())
        idle = run_without_spark(request, connections.by_id)
        if idle is not None:
            self.log.info("Nothing to do, no Spark job is started")
            for notice in idle.notices:
                self.log.warning("%s", one_event(notice))
            return idle
        self._look_at_pyspark()
        with private_folder() as folder:
            request_path, result_path = folder / "request.json", folder / "result.json"
            write_private(request_path, request.model_dump_json())
            arguments = ["--request", str(request_path), "--result", str(result_path)]
            with self._prepared(str(entry_point(request.job)), arguments, connections, spark):
                failure = self._run_spark(context)
            return self._result(result_path, failure, connections)

    def _look_at_pyspark(self) -> None:
        """Log what is wrong with pyspark's files. Raises ConfigurationError where they are gone."""
        require_whole_pyspark()
        warning = mixed_pyspark_warning()
        if warning is not None:
            self.log.warning("%s", one_event(warning))

    def _result(self, path: Path, failure: str | None, connections: JobConnections) -> JobResult:
        result = read_result(path)
        if result is None:
            raise without_result(failure, connections)
        if failure is not None and result.error is None:
            self.log.warning("spark-submit failed after the job had finished: %s", connections.redact(failure))
        return redacted(result, connections)

    @contextmanager
    def _prepared(
        self, application: str, arguments: list[str], connections: JobConnections, spark: SparkConnection
    ) -> Iterator[None]:
        """Set the provider's own attributes for one submission.

        Rendered fields were stored before `execute`, so nothing set here is ever stored or shown.
        """
        before = (self.application, self.application_args, self.env_vars, self.conf, self._spark_binary)
        # Without it, whatever spark-defaults.conf says would count.
        self._deploy_mode = CLIENT
        named = ("tranrepl", self.publication.publication, self.subscription, self.job)
        self.name = self.name or "-".join(filter(None, named))
        self.application = application
        self.application_args = arguments
        given = self.env_vars or {}
        self.env_vars = {**given, **submission_variables({**os.environ, **given}), **connections.environment}
        self.conf = {**spark.default_conf(continuous=self.ends_at is not None), **(self.conf or {})}
        self._spark_binary = self._spark_binary or spark.submit_binary()
        # A hook of an earlier try would submit that try's arguments. It stays after this one: a task that ran out
        # of time is killed through it when `execute` is already over.
        self._hook = None
        try:
            yield
        finally:
            self.application, self.application_args, self.env_vars, self.conf, self._spark_binary = before

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # The provider makes it itself, of thirty arguments.
        hook.__class__ = _JobHook
        job_hook = cast("_JobHook", hook)
        job_hook.take_driver_for_process()
        return job_hook

    def _run_spark(self, context: Context) -> str | None:
        """Submit and wait. Returns what the provider says of a failure; the job's own result says more."""
        try:
            super().execute(context)
        except AirflowException as error:
            return str(error)
        return None


class LogReaderOperator(ReplicationSparkOperator):
    """Drains the Publisher's log into the command store."""

    agent = "log_reader"
    template_fields: Sequence[str] = ("continuous_until",)

    def execute(self, context: Context) -> Any:
        """Drain the log, then look for what should be warned of."""
        done = super().execute(context)
        alert_early(self.publication, self.place, cast("Mapping[str, Any]", context))
        return done

    def request(self) -> LogReaderRequest:
        return LogReaderRequest(publication=self.publication, continuous_until=self.ends_at)

    def _run(self, context: Context) -> JobResult:
        """Run the job; where it is continuous, again after errors that may pass by themselves, and look for what should
        be warned of meanwhile."""
        # Imported here: parsing a DAG file loads no database driver.
        from tranrepl.admin.joining_tables import joining_new_tables
        from tranrepl.admin.run import read_log
        from tranrepl.topology import Topology

        until, publication, place = self.ends_at, self.publication, self.place

        def topology() -> Topology:
            return Topology(publication, resolve_connections(publication.connection_ids()).by_id)

        read = partial(read_log, publication, topology, partial(super()._run, context))
        if until is None:
            return read()
        with ExitStack() as beside:
            beside.enter_context(looking_for_early_warnings(publication, place, cast("Mapping[str, Any]", context)))
            if publication.has_patterns:
                # Connections are asked of Airflow before a thread may ask at the same time.
                ends = topology()
                names = [it.name for it in publication.subscriptions]

                def take_snapshot(name: str) -> JobResult:
                    # Where that needs a Spark job, the next run has one.
                    request = SnapshotRequest(publication=publication, subscription=name)
                    return run_without_spark(request, ends.connections) or JobResult()

                beside.enter_context(joining_new_tables(lambda: ends, names, take_snapshot, self.log.info))
            read = partial(read, publishes_new=False)
            return keep_running(read, Shutdown(until, ShutdownRequest()), self.goes_on_after, gives_up=True)

    def in_words(self, result: JobResult) -> str:
        return f"stored {counted(result.commands, 'command')}" if result.commands else "nothing to read"


class SubscriptionOperator(ReplicationSparkOperator):
    """A job for one subscription. It runs also where the log reader failed: what is stored is delivered.

    Skipped where that would be wrong, or would only fail in the same way. The run is a failed one then in any case.
    """

    def execute(self, context: Context) -> Any:
        """Run the job. Raises AirflowSkipException where the Publisher's log went back."""
        if (error := log_reader_error(context)) is not None and error.says_log_was_reset:
            raise AirflowSkipException(
                "the Publisher's log was reset: the stored commands are no longer the Publisher's"
            )
        return super().execute(context)

    def _stopped(self, result: JobResult, error: ErrorReport, context: Context) -> Any:
        stopped = log_reader_error(context)
        if stopped is not None and stopped.message == error.message:
            raise AirflowSkipException(f"stopped by the same problem as {LOG_READER}: {error.message}")
        return super()._stopped(result, error, context)


class InitializeOperator(SubscriptionOperator):
    """Gives a subscription, or articles of it, that wait for it their initial snapshot. Says so where none does.

    An Asset event is emitted for each table that was copied.
    """

    agent = "snapshot"

    def request(self) -> SnapshotRequest:
        return SnapshotRequest(publication=self.publication, subscription=self.subscription)

    def execute(self, context: Context) -> Any:
        """Run the job, and emit an Asset event for each table that was copied."""
        result = super().execute(context)
        extras = {
            it["article"]: {"snapshot_rows": it["rows"], "last_xact_seqno": result["last_xact_seqno"]}
            for it in result["snapshot"]
        }
        add_events(context, self.publication, self.subscription, extras)
        return result

    def in_words(self, result: JobResult) -> str:
        if not result.snapshot:
            return "no article waits for a snapshot"
        return f"snapshot of {counted(sum(table.rows for table in result.snapshot), 'row')}"


class DistributionOperator(SubscriptionOperator):
    """Delivers stored commands to one subscription, up to the run's bound.

    `committed_before` is a time in ISO format: no transaction committed at or after it is delivered. Empty: all are.
    """

    template_fields: Sequence[str] = ("committed_before", "continuous_until")

    def __init__(
        self, *, mode: ApplyMode = ApplyMode.STREAMS, committed_before: str = RUN_BOUND, **kwargs: Any
    ) -> None:
        self.mode = mode
        super().__init__(**kwargs)
        self.committed_before = committed_before

    @property
    def job(self) -> str:
        return self.mode

    def request(self) -> DistributionRequest:
        return DistributionRequest(
            publication=self.publication,
            subscription=self.subscription,
            committed_before=datetime.fromisoformat(self.committed_before) if self.committed_before else None,
            mode=self.mode,
            continuous_until=self.ends_at,
        )


class SingleConnectionRetryOperator(DistributionOperator):
    """Delivers over one connection what `first_attempt` (a task id) could not. Nothing to do where that delivered.

    Skipped where its error is one that only a person can mend: a second attempt would say the same again.
    """

    def __init__(self, *, first_attempt: str, **kwargs: Any) -> None:
        super().__init__(mode=ApplyMode.SINGLE_CONNECTION, **kwargs)
        self.first_attempt = first_attempt

    def execute(self, context: Context) -> Any:
        """Run the job where a batch failed. Raises AirflowSkipException where a person must mend something first."""
        if state_of(self.first_attempt, context) == "success":
            self.log.info("Nothing to retry: no batch of %s failed", self.first_attempt)
            summarize(context, "nothing to retry")
            return JobResult().model_dump(mode="json")
        # A worker that was killed leaves no report; its batch failed all the same.
        report = error_of(self.first_attempt, context)
        if report is not None and report.kind is ErrorKind.CONFIGURATION:
            raise AirflowSkipException(f"{self.first_attempt} failed for a reason that must be mended first")
        return super().execute(context)

    def _run(self, context: Context) -> JobResult:
        """Run the job. In a run of continuous agents, go on over the streams after it, and over a single connection
        after each batch that fails, until the run is over."""
        until = self.ends_at
        if until is None:
            return super()._run(context)

        def deliver(mode: ApplyMode, continuous_until: datetime | None) -> JobResult:
            request = self.request().model_copy(update={"mode": mode, "continuous_until": continuous_until})
            return self._run_job(request, context)

        return keep_running(
            partial(deliver, ApplyMode.STREAMS, until),
            Shutdown(until, ShutdownRequest()),
            self.goes_on_after,
            serially=partial(deliver, ApplyMode.SINGLE_CONNECTION, None),
            begins_serially=True,
            gives_up=True,
        )
