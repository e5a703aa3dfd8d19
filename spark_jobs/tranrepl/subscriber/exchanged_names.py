"""Two articles that take each other's name in a table where each name stands once."""

from __future__ import annotations

_NO_ARTICLE = "renamed"
"""What no article is named: it has no schema."""


def exchanged(name: str, other: str) -> list[tuple[str, str]]:
    """Return what is renamed to what, one after the other."""
    return [(name, _NO_ARTICLE), (other, name), (_NO_ARTICLE, other)]
