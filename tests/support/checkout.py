"""The checkout that the tests, the demo and the benchmarks run from."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = sorted(page for places in ("*", "docs/**/*", "docker/*", "tests/*") for page in CHECKOUT.glob(f"{places}.md"))
"""All that is written for people to read, in Markdown."""
