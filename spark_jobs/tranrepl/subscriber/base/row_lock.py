"""How a row of the model's tables is locked."""

from __future__ import annotations

from enum import Enum, auto


class RowLock(Enum):
    EXCLUSIVE = auto()
    """Nobody else locks it."""
    SHARED = auto()
    """Others may lock it so, and nobody writes it."""
