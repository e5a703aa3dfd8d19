"""Names and arrays as PostgreSQL writes them."""

from __future__ import annotations

import re


def unquoted(name: str) -> str:
    """Return a name that is written as in SQL: in quotes where it needs them."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def only_element(array: str | None) -> str | None:
    """Return the text of the only element of an array, which is not NULL; None of no array."""
    if array is None:
        return None
    element = array[1:-1]
    return re.sub(r"\\(.)", r"\1", element[1:-1], flags=re.DOTALL) if element.startswith('"') else element
