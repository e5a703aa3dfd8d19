"""The error where a database's driver is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CONNECT = """
import sys
sys.modules[sys.argv[2]] = None  # what import takes for a module that is not there
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import SubscriptionKey

key = SubscriptionKey(publisher="p", publisher_system="1", publisher_db="shop", publication="shop", subscription="mart")
connection = Connection(connection_id="mart", kind=sys.argv[1], host="localhost")
try:
    with dialect_of(connection).subscriber(connection, key, "check"):
        pass
except ConfigurationError as error:
    print(error)
"""


@pytest.mark.parametrize(("kind", "driver"), [("mysql", "pymysql"), ("mssql", "pymssql")])
def test_the_error_names_the_extra_that_installs_the_driver(kind: str, driver: str) -> None:
    run = subprocess.run([sys.executable, "-c", _CONNECT, kind, driver], capture_output=True, text=True, check=True)
    assert f"the driver {driver} (tranrepl's extra {kind}) is not installed" in run.stdout
    assert f"{sys.executable} -m pip install '{driver}>=" in run.stdout
