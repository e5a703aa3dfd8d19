"""From the error classes of a job to what Airflow decides by: try again, or fail for good."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tranrepl.errors import ErrorKind, ErrorReport

_FINAL = frozenset({ErrorKind.DATA, ErrorKind.CONFIGURATION})
"""Trying again would meet the same error."""


class ReplicationFailed(AirflowException):
    """A job's error, for the callbacks of its task."""

    def __init__(self, report: ErrorReport) -> None:
        super().__init__(str(report.to_exception()))
        self.report = report


class ReplicationFailedForGood(ReplicationFailed, AirflowFailException):
    """Not to be tried again."""


def airflow_exception(error: ErrorReport) -> AirflowException:
    """What to raise: AirflowFailException where retries are of no use, else AirflowException, for which they apply."""
    return ReplicationFailedForGood(error) if error.kind in _FINAL else ReplicationFailed(error)
