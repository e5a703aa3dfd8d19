"""The parts of a publication's page, by the last part of their addresses, with their titles."""

from __future__ import annotations

PARTS = {
    "": "State and charts",
    "history": "History",
    "articles": "Articles",
    "snapshots": "Snapshots",
    "validations": "Validations",
    "schema-changes": "Schema changes",
    "errors": "Errors",
    "settings": "Settings",
}
"""Those that show what the distribution database has."""
ALL_PARTS = {**PARTS, "commands": "Commands", "actions": "Actions"}
