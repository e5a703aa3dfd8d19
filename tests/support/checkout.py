"""The checkout that the tests, the demo and the benchmarks run from."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
