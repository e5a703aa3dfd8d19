"""A statement with the values that it is executed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa


@dataclass(frozen=True, slots=True)
class BoundStatement:
    executable: sa.Executable
    parameters: Mapping[str, Any]
    must_meet: bool
    """Zero rows is an error."""
