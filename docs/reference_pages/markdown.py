"""Markdown in lines of at most 120 characters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

_WIDTH = 120


def paragraph(text: str) -> str:
    """Return the text in lines that fit."""
    return textwrap.fill(" ".join(text.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)


def item(text: str) -> str:
    """Return the text as one item of a list."""
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, a line for each row."""
    return "\n".join([_row(head), _row(["---"] * len(head)), *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"
