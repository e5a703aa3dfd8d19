"""The shell: a module for each group of verbs. Exit status 0 done, 1 failed with one clear message, 2 usage;
of status, also where something is wrong."""

from __future__ import annotations

from tranrepl.cli import (
    agents,
    browsing,
    cleaning_up,
    reinitializing,
    setting_up,
    skip_and_retry,
    status,
    tearing_down,
    validating,
)
from tranrepl.cli.app import app
from tranrepl.spark.arrow_alone import leave_pandas_out

__all__ = [
    "agents",
    "app",
    "browsing",
    "cleaning_up",
    "main",
    "reinitializing",
    "setting_up",
    "skip_and_retry",
    "status",
    "tearing_down",
    "validating",
]


def main() -> None:
    """Entry of the `tranrepl` command."""
    leave_pandas_out()
    app()
