"""How large the ranges are in which a snapshot copies its tables."""

from __future__ import annotations

SMALLEST_RANGE = 8 * 1024 * 1024
"""Bytes of a table that a range has at least."""
LARGEST_RANGE = 128 * 1024 * 1024
_RANGES_A_CORE = 4


def range_bytes(total: int, cores: int) -> int:
    """Return how many bytes of a table a range should hold, so that all cores are busy to the end."""
    return min(LARGEST_RANGE, max(SMALLEST_RANGE, total // (cores * _RANGES_A_CORE)))
