"""All verbs: whoever imports this has them in `app`."""

from __future__ import annotations

from tranrepl.cli import (
    agents,
    alerting,
    browsing,
    cleaning_up,
    executing,
    measuring,
    reinitializing,
    sequences,
    setting_up,
    skip_and_retry,
    starting,
    status,
    tearing_down,
    tracing,
    validating,
)
from tranrepl.cli.app import app
from tranrepl.spark.without_pandas import leave_pandas_out

__all__ = [
    "agents",
    "alerting",
    "app",
    "browsing",
    "cleaning_up",
    "executing",
    "measuring",
    "reinitializing",
    "run",
    "sequences",
    "setting_up",
    "skip_and_retry",
    "starting",
    "status",
    "tearing_down",
    "tracing",
    "validating",
]


def run() -> None:
    """Run the verb that the command line names."""
    leave_pandas_out()
    app()
