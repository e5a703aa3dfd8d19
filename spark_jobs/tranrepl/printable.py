"""Text as it is shown: what a terminal, a page or a reader of a log would obey is spelled out instead."""

from __future__ import annotations

import re

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\u00ad\u034f\u115f\u1160\u180e\ufe00-\ufe0f\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control characters but the tab and the end of a line, marks that turn the direction of text, and what is invisible
or no character at all."""


def printable(text: str) -> str:
    """Return the text with each character that would be obeyed as its number, as in `\\x1b` and `\\u202e`."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return the same without ends of lines: a value that has one cannot look like the next line."""
    return printable(text).replace("\n", r"\n")


def counted(number: int, what: str, several: str | None = None) -> str:
    """Return as in "1 command", "17,796 commands"."""
    return f"{number:,} {what if number == 1 else several or what + 's'}"


def a_second(rate: float) -> str:
    """Return a rate as in "17,796", with decimals where it is small, as in "0.25"."""
    return f"{rate:.2g}" if 0 < rate < 10 else f"{rate:,.0f}"


def one_event(text: str) -> str:
    """Return the text as a log has it, where only the first line of an event begins at the margin."""
    return printable(text).replace("\n", "\n  ")
