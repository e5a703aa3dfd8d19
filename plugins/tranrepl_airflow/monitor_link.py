"""The link from a task to its run in Replication Monitor."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.configuration import conf


class MonitorLink(BaseOperatorLink):
    """Opens the page of the run that the task is of."""

    name = "Replication Monitor"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the page's address below that of Airflow's API server."""
        base = conf.get("api", "base_url", fallback="") or "/"
        return f"{base.rstrip('/')}/monitor/publication/{quote(ti_key.dag_id)}/runs/{quote(ti_key.run_id, safe='')}"
