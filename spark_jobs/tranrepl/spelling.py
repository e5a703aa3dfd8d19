"""How names and values are shown to people, and the name that was meant where one was written that is not there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_ALIKE = 0.65
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal or a page acts on instead of showing it: C0, C1, DEL, what turns the direction of writing, and halves
of characters. Lines and tabs stay."""


def escaped(text: str) -> str:
    """Return a text that shows the control characters in it."""
    return _CONTROLS.sub(_escape, text)


def on_one_line(text: str) -> str:
    """Return such a text without line ends, as for a comment."""
    return escaped(text).replace("\n", "\\n")


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


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
