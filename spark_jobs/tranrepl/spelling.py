"""The name that was meant where one was written that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ALIKE = 0.65


def likeliest(written: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like the written one, upper and lower case alike; None where none is."""
    by_folded = {name.casefold(): name for name in sorted(known, reverse=True)}
    folded = written.casefold()
    found = difflib.get_close_matches(folded, by_folded, n=1, cutoff=_ALIKE)
    if not found:
        found = [it for it in by_folded if len(it) > 2 and it in (folded.removesuffix("s"), f"{folded}s")]
    return by_folded[found[0]] if found else None


def did_you_mean(written: str, known: Iterable[str]) -> str:
    """Return the question with its space before it, or nothing where no known name is like the written one."""
    name = likeliest(written, known)
    return "" if name is None else f" did you mean {name}?"
