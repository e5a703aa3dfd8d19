r"""Cells of images as plain values, and what they look like."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.model.row_images import NULL, contents
from tranrepl.model.source_types import Family
from tranrepl.subscriber.batching.steps import MismatchError

DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME: Final = r"([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}"
IN_UTC: Final = r"\+00"
WHOLE_NUMBER: Final = "-?[1-9][0-9]*|0"
BYTES: Final = r"\\\\x([0-9a-f]{2})*"
BYTES_PREFIX: Final = r"\\x"
"""The prefix of bytea's text form, escaped."""
_NULL_PATTERN = r"\\N"
_BACKSLASH = "\\"
_ESCAPES = (("\\t", "\t"), ("\\n", "\n"), ("\\r", "\r"))
_STAND_INS = tuple(map(chr, (1, 2, 3, 4, 5, 6)))
"""Characters of which a text that is not binary has none."""


def fraction(digits: int) -> str:
    """Return the pattern of a second's fraction of so many digits at most."""
    return rf"(\.[0-9]{{1,{digits}}})?" if digits else ""


def decimal_pattern(family: Family, scale: int) -> str:
    """Return the pattern of numbers of so many digits after the point, and zeros behind them; of a text, every zero
    counts."""
    if family in (Family.TEXT, Family.CHARACTER):
        return f"({WHOLE_NUMBER}){fraction(scale)}"
    return rf"-?(0|[1-9][0-9]*)(\.[0-9]{{0,{scale}}}0*)?"


def require_matching(cells: pa.StringArray, pattern: str) -> None:
    """Raise MismatchError unless every cell is NULL or matches as a whole."""
    fits = pc.match_substring_regex(cells, rf"\A({pattern}|{_NULL_PATTERN})\z")
    if not pc.all(fits, min_count=0).as_py():
        raise MismatchError("a value may not fit as it is")


def without_null(cells: pa.StringArray) -> pa.StringArray:
    """Return cells, still escaped, NULL as null."""
    return pc.if_else(pc.equal(cells, NULL), pa.scalar(None, pa.string()), cells)


def unescaped(cells: pa.StringArray) -> pa.StringArray:
    """Return the values of cells, NULL as null. Raises MismatchError where that takes more than these replacements."""
    plain = without_null(cells)
    content = contents(plain)
    if not (content == ord(_BACKSLASH)).any():
        return plain
    stand_in = next((it for it in _STAND_INS if not (content == ord(it)).any()), None)
    if stand_in is None:
        raise MismatchError("a value may not fit as it is")
    plain = pc.replace_substring(plain, 2 * _BACKSLASH, stand_in)
    for escape, character in _ESCAPES:
        plain = pc.replace_substring(plain, escape, character)
    return pc.replace_substring(plain, stand_in, _BACKSLASH)
