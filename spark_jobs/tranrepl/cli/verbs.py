"""All verbs: importing this module registers them in `app`."""

from __future__ import annotations

from tranrepl.cli import (
    administration,
    agents,
    browsing,
    measuring,
    reinitializing,
    setting_up,
    starting,
    status,
    tearing_down,
    tracing,
    validating,
)
from tranrepl.cli.app import app
from tranrepl.spark.without_pandas import leave_pandas_out

__all__ = [
    "administration",
    "agents",
    "app",
    "browsing",
    "measuring",
    "reinitializing",
    "run",
    "setting_up",
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
