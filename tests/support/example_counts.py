"""How many examples a property test of functions makes: all of them in `make test-all`, fewer in `make test`."""

from __future__ import annotations

import os

_WHOLE = int(os.environ.get("TRANREPL_EXAMPLES_PERCENT", "100"))


def examples(whole: int) -> int:
    """Return the part of so many examples that this run makes, one at least."""
    return max(1, whole * _WHOLE // 100)
