"""The plugin that Airflow loads from the plugins folder, where the package is not installed with its entry point.

Of both, Airflow would report the second one as an error. The package beside this file is kept from being loaded file by
file by `.airflowignore`, and reaches DAG files by its name.
"""

from __future__ import annotations

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="tranrepl"):
    from tranrepl_airflow.plugin import TranreplPlugin

    __all__ = ["TranreplPlugin"]
