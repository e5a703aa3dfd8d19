"""Names in a publication file: its own, those of connections and classes, and SQL's of several parts."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".\s]+)')


def name_parts(text: str) -> list[str]:
    """The parts of a dotted name; a part that holds a dot, a space or a quote stands in double quotes, as in SQL.

    Raises ValueError where the text is no such name.
    """
    parts: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        parts.append(match[1].replace('""', '"') if match[1] else match[2])
        position = match.end()
        if position == len(text) or text[position] != ".":
            break
        position += 1
    if position != len(text):
        raise ValueError("a part with a dot, a space or a quote stands in double quotes")
    return parts


def _identifier(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", value):
        raise ValueError("allowed: letters, digits, _ and -")
    return value


def _connection_id(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", value):
        raise ValueError("allowed: a connection's id, of letters, digits, _, . and -")
    return value


def _import_path(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", value):
        raise ValueError("allowed: the import path of a class, as in package.module.Class")
    return value


Name = Annotated[str, Field(min_length=1, max_length=40), AfterValidator(_identifier)]
ConnectionId = Annotated[
    str, Field(min_length=1, json_schema_extra={"pattern": "^[A-Za-z0-9_.-]+$"}), AfterValidator(_connection_id)
]
ImportPath = Annotated[
    str, Field(json_schema_extra={"pattern": r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"}), AfterValidator(_import_path)
]
