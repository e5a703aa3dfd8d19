"""The plugin: what Airflow loads in each of its processes."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from tranrepl_airflow import missing_pools, run_note


class TranreplPlugin(AirflowPlugin):
    """The scheduler's listeners. It also shows the package under Admin → Plugins and in `airflow plugins`."""

    name = "tranrepl"
    listeners = [missing_pools, run_note]  # noqa: RUF012 - Airflow wants a list
