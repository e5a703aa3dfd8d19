"""The rights that the docs say the jobs need, and no others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from support.checkout import CHECKOUT
from tranrepl.connections import Connection

_PAGE = CHECKOUT / "docs" / "reference" / "rights.md"
_PART = re.compile(r"^-- ([^\n]+)\n(.*?)(?=^$|^```)", re.DOTALL | re.MULTILINE)


def documented_rights(part: str, password: str, names: Mapping[str, str]) -> list[str]:
    """Return the statements under `-- part`; `names` replaces the page's tables, database and role."""
    page = _PAGE.read_text(encoding="utf-8")
    (text,) = (body for title, body in _PART.findall(page) if title == part)
    for documented, here in names.items():
        text = text.replace(documented, here)
    return [it.strip().replace("'…'", _literal(password)) for it in text.split(";\n") if it.strip()]


def with_login(connection: Connection, login: str, password: str) -> Connection:
    return replace(connection, login=login, password=password)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
