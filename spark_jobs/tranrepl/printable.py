"""Text as it is shown: what a terminal, a page or a reader of a log would obey is spelled out instead."""

from __future__ import annotations

import re
from collections.abc import Iterable

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\u00ad\u034f\u115f\u1160\u180e\ufe00-\ufe0f\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control characters but the tab and the end of a line, marks that turn the direction of text, and what is invisible
or no character at all."""

TIMES = ((86_400, "d"), (3600, "h"), (60, "min"))
_SIZES = ("B", "kB", "MB", "GB", "TB")
_THOUSAND = 1000
_BELOW_IN_MILLISECONDS = 0.095
"""Seconds; from there on, one decimal says it."""
MOST_NAMED = 3
"""How many things a line names; of more it says the number."""


def printable(text: str) -> str:
    """Return the text with each character that would be obeyed as its number, as in `\\x1b` and `\\u202e`."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return the same without ends of lines: a value that has one cannot look like the next line."""
    return printable(text).replace("\n", r"\n")


def counted(number: int, what: str, several: str | None = None) -> str:
    """Return as in "1 command", "17,796 commands"."""
    return f"{number:,} {what if number == 1 else several or what + 's'}"


def named(names: Iterable[object], what: str) -> str:
    """Return as in "table a", "tables a, b, c", "24 tables"."""
    shown = list(map(str, names))
    several = counted(len(shown), what)
    return several if len(shown) > MOST_NAMED else f"{several.split(maxsplit=1)[1]} {', '.join(shown)}"


def a_second(rate: float) -> str:
    """Return a rate as in "17,796", with decimals where it is small, as in "0.25"."""
    return f"{rate:.2g}" if 0 < rate < 10 else f"{rate:,.0f}"


def duration(seconds: float) -> str:
    """Return as in "40 ms", "0.4 s", "12 s", "3 min", "5.1 h", "2 d"."""
    if 0 < seconds < _BELOW_IN_MILLISECONDS:
        return f"{seconds * 1000:.0f} ms"
    for size_of, unit in TIMES:
        if seconds >= size_of:
            whole = seconds / size_of
            return f"{whole:.0f} {unit}" if whole >= 10 or unit == "min" else f"{whole:.1f} {unit}"
    return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{seconds:.0f} s"


def size(count: int) -> str:
    """Return bytes as in "16.0 MB"."""
    value = float(count)
    for unit in _SIZES[:-1]:
        if value < _THOUSAND:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= _THOUSAND
    return f"{value:,.1f} {_SIZES[-1]}"


def one_event(text: str) -> str:
    """Return the text as a log has it, where only the first line of an event begins at the margin."""
    return printable(text).replace("\n", "\n  ")
