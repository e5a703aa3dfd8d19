"""All verbs: importing this module registers them in `app`."""

from __future__ import annotations

from tranrepl.cli import (
    administration,
    agents,
    browse,
    metrics,
    reinitialize,
    setup,
    status,
    teardown,
    trace,
    validate,
)
from tranrepl.cli.app import app

__all__ = [
    "administration",
    "agents",
    "app",
    "browse",
    "metrics",
    "reinitialize",
    "setup",
    "status",
    "teardown",
    "trace",
    "validate",
]
