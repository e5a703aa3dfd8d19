"""The pages with generated parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from reference_pages.command_line import command_line
from reference_pages.error_codes import commands_of_messages, error_codes
from reference_pages.settings import settings
from reference_pages.tables import distribution_tables, subscriber_tables

PARTS: Mapping[str, Callable[[], str]] = {
    "settings": settings,
    "command line": command_line,
    "error codes": error_codes,
    "commands of messages": commands_of_messages,
    "tables of the distribution database": distribution_tables,
    "tables of a Subscriber": subscriber_tables,
}
_PART = re.compile(r"<!-- generated: (?P<name>.*?) -->\n.*?<!-- end of (?P=name) -->", re.DOTALL)
_FOLDER = Path(__file__).parents[1]
PAGES = tuple(page for page in sorted(_FOLDER.glob("reference/*.md")) if _PART.search(page.read_text(encoding="utf-8")))


def with_generated_parts(text: str) -> str:
    """Return the page with its generated parts as the code says them now.

    Raises KeyError for a part of which there is no such name.
    """
    return _PART.sub(lambda found: _part(found["name"]), text)


def _part(name: str) -> str:
    return f"<!-- generated: {name} -->\n\n{PARTS[name]().strip()}\n\n<!-- end of {name} -->"
