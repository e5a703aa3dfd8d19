"""What Airflow loads from the plugins folder.

The package beside this file is kept from that by `.airflowignore`, and reaches DAG files by its name.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class TranreplPlugin(AirflowPlugin):
    """Makes the package's presence visible under Admin → Plugins and in `airflow plugins`."""

    name = "tranrepl"
