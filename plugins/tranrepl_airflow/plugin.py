"""The plugin: what Airflow loads in each of its processes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tranrepl_airflow import missing_pools, run_note

log = logging.getLogger(__name__)

MONITOR = "Replication Monitor"
_URL_PREFIX = "/monitor"
_TAB = "Replication"
_PUBLICATION = f"{_URL_PREFIX.lstrip('/')}/publication"


class _MonitorOnDemand:
    """The monitor's app, made where Airflow asks for it: the API server. An error here would end that server."""

    def __get__(self, plugin: object, owner: object) -> Sequence[dict[str, Any]]:
        return _monitor_apps()


@cache
def _monitor_apps() -> Sequence[dict[str, Any]]:
    try:
        from tranrepl_airflow.monitor.app import monitor_app

        app = monitor_app()
    except Exception:
        log.exception("%s is off", MONITOR)
        return []
    return [{"app": app, "url_prefix": _URL_PREFIX, "name": MONITOR}]


class TranreplPlugin(AirflowPlugin):
    """Replication Monitor's pages, and the scheduler's listeners.

    It also shows the package under Admin → Plugins and in `airflow plugins`.
    """

    name = "tranrepl"
    listeners = [missing_pools, run_note]  # noqa: RUF012 - Airflow wants a list
    fastapi_apps = _MonitorOnDemand()  # type: ignore[assignment]
    # Relative: it resolves below the base path that Airflow may have.
    external_views = [  # noqa: RUF012
        {
            "name": MONITOR,
            "href": f"{_URL_PREFIX.lstrip('/')}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "replication-monitor",
        },
        {
            "name": _TAB,
            "href": f"{_PUBLICATION}/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "replication",
        },
        {
            "name": _TAB,
            "href": f"{_PUBLICATION}/{{DAG_ID}}/runs/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "replication-run",
        },
    ]
