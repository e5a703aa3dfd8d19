"""Who is notified when something fails, is late or was skipped."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, JsonValue

from tranrepl.model.names import ImportPath


class AlertLevel(StrEnum):
    """How much an alert asks of a person."""

    INFO = "info"
    """Everything, also schema changes that were replicated."""
    WARNING = "warning"
    """Warnings, and everything that has stopped."""
    ERROR = "error"
    """Only what has stopped."""


class Alert(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    notifier: ImportPath
    """Import path of an Airflow notifier."""
    level: AlertLevel = AlertLevel.WARNING
    """Which alerts it sends."""
    arguments: dict[str, JsonValue] = {}
    """The notifier's arguments. Templates in them see what happened as `alert`. Secrets belong in a connection."""
