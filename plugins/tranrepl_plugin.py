"""What Airflow loads from the plugins folder.

The package beside this file is kept from that by `.airflowignore`, and reaches DAG files by its name.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from tranrepl_airflow import missing_pools, run_note


class TranreplPlugin(AirflowPlugin):
    """The scheduler's listeners. It also shows the package under Admin → Plugins and in `airflow plugins`."""

    name = "tranrepl"
    listeners = [missing_pools, run_note]  # noqa: RUF012 - Airflow wants a list
