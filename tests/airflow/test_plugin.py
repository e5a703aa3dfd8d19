"""What Airflow finds in the plugins folder."""

from __future__ import annotations

import os
import subprocess
import sys

_LOAD = """
import sys, warnings
warnings.simplefilter("ignore")
from airflow import plugins_manager
loaded, errors = plugins_manager._get_plugins()
assert not errors, errors
assert "tranrepl" in [plugin.name for plugin in loaded]
assert not {"operators", "graph", "dag_builder"} & set(sys.modules), "the package was run file by file"
"""


def test_airflow_loads_the_plugin_and_leaves_the_package_alone() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", _LOAD], env=os.environ, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
