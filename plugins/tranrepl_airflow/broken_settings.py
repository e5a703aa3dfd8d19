"""The DAG that stands for a publication whose settings cannot be used."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator, Context

from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.next_steps import Place
from tranrepl_airflow.outcome import logged_failure


class BrokenSettingsOperator(BaseOperator):
    """Fails with `message`, so that a run says why nothing is replicated."""

    def __init__(self, *, message: str, **kwargs: Any) -> None:
        super().__init__(retries=0, **kwargs)
        self.message = message

    def execute(self, context: Context) -> Any:  # noqa: ARG002 - Airflow's signature
        """Raise ReplicationStopped, always."""
        raise logged_failure(ErrorReport(kind=ErrorKind.CONFIGURATION, message=self.message), Place())
