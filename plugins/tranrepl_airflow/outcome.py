"""From the error classes of a job to what Airflow decides by: try again, or fail for good."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tranrepl.errors import ErrorKind, ErrorReport

_FINAL = frozenset({ErrorKind.DATA, ErrorKind.CONFIGURATION})
"""Trying again would meet the same error."""


def airflow_exception(error: ErrorReport) -> AirflowException:
    """What to raise: AirflowFailException where retries are of no use, else AirflowException, for which they apply."""
    text = str(error.to_exception())
    return AirflowFailException(text) if error.kind in _FINAL else AirflowException(text)
