"""All verbs: importing this module registers them in `app`."""

from __future__ import annotations

from tranrepl.cli import (
    administration,
    agents,
    browse,
    init,
    metrics,
    reinitialize,
    setup,
    status,
    teardown,
    trace,
    validate,
)
from tranrepl.cli.app import app
from tranrepl.spark.without_pandas import leave_pandas_out

__all__ = [
    "administration",
    "agents",
    "app",
    "browse",
    "init",
    "metrics",
    "reinitialize",
    "run",
    "setup",
    "status",
    "teardown",
    "trace",
    "validate",
]


def run() -> None:
    """Run the verb that the command line names."""
    leave_pandas_out()
    app()
