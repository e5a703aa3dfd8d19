"""From the error classes of a job to what Airflow decides by: try again, or fail for good; and what the log ends with.

Airflow logs an exception that ends a task with the frames of its own runner, under which a message is hard to find. A
task that exits (`SystemExit`) it logs in one line, asks the retry policy about it as about any exception, and gives it
to the callbacks. So that is how a task ends that failed for a reason we foresee; a bug keeps its frames.
"""

from __future__ import annotations

import logging

from airflow.sdk import Context, RetryPolicy
from airflow.sdk.definitions.retry_policy import RetryDecision
from airflow.sdk.exceptions import AirflowException

from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.jobs.retry import is_final
from tranrepl.remedies import Place, error_block

log = logging.getLogger(__name__)


class ReplicationFailed(BaseException):
    """A job's error, for the callbacks of its task: `context["exception"]`."""

    def __init__(self, report: ErrorReport) -> None:
        super().__init__(str(report.to_exception()))
        self.report = report


class ReplicationStopped(ReplicationFailed, SystemExit):
    """Ended by what a person or another try mends. The log has said so already."""

    def __init__(self, report: ErrorReport) -> None:
        super().__init__(report)
        self.code = 1


class ReplicationCrashed(ReplicationFailed, AirflowException):
    """A job that a bug has ended."""


class RetryWhatMayPass(RetryPolicy):
    """The task's retries, but none where another try would meet the same error."""

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002 - Airflow's signature
        max_tries: int,  # noqa: ARG002
        context: Context | None = None,  # noqa: ARG002
    ) -> RetryDecision:
        """Decide by the error's kind. No reason is given, of which Airflow would log a line below ours."""
        final = isinstance(exception, ReplicationFailed) and is_final(exception.report)
        return RetryDecision.fail() if final else RetryDecision.default()


RETRY_WHAT_MAY_PASS = RetryWhatMayPass()


def logged_failure(error: ErrorReport, place: Place) -> ReplicationFailed:
    """Log the error in one block with the commands to go on with, and return what ends the task.

    That is ReplicationStopped, which `RetryWhatMayPass` tries again where that may help; ReplicationCrashed for a bug.
    """
    log.error("%s", error_block(error, place))
    return ReplicationCrashed(error) if error.kind is ErrorKind.INTERNAL else ReplicationStopped(error)
