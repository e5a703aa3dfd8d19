"""The package as a provider of Airflow's: what `airflow providers` lists, and the section `[tranrepl]` of airflow.cfg.

Source: Airflow, "Creating your own providers". The plugin has an entry point of its own.
"""

from __future__ import annotations

from typing import Any

from tranrepl import __version__

SECTION = "tranrepl"
PUBLICATIONS = "publications"


def get_provider_info() -> dict[str, Any]:
    """Return what Airflow asks of a provider."""
    return {
        "package-name": "tranrepl",
        "name": "tranrepl",
        "description": "Transactional replication in SQL Server's model.",
        "versions": [__version__],
        "notifications": ["tranrepl_airflow.webhook.WebhookNotifier"],
        "extra-links": ["tranrepl_airflow.monitor_link.MonitorLink"],
        "config": {
            SECTION: {
                "description": "Transactional replication.",
                "options": {
                    PUBLICATIONS: {
                        "description": "The folder of publications (`*.yaml`), an absolute path, for DAG files that "
                        "call `build_dags()` and name none.",
                        "version_added": "0.3.0",
                        "type": "string",
                        "example": "/opt/airflow/dags/publications",
                        "default": "",
                    }
                },
            }
        },
    }
