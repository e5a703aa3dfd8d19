"""SQL as MariaDB and MySQL have it: how names are quoted, and how strings, names and comments are read."""

from __future__ import annotations

from types import new_class
from typing import Any

from sqlglot.dialects.mysql import MySQL
from sqlglot.tokens import Tokenizer

from tranrepl.subscriber.base.identifiers import Identifiers

IDENTIFIERS = Identifiers("mysql")
quoted_name = IDENTIFIERS.quoted
qualified_name = IDENTIFIERS.qualified


def tokenizer(sql_mode: str) -> type[Tokenizer]:
    """Return the tokenizer of what was written in a session of this `sql_mode`."""
    modes = set(sql_mode.split(","))
    # Of a procedure every statement is read, not only up to the first that sqlglot has no words for.
    rules: dict[str, Any] = {"COMMANDS": set()}
    if "ANSI_QUOTES" in modes:
        rules |= {"QUOTES": ["'"], "IDENTIFIERS": ["`", '"']}
    if "NO_BACKSLASH_ESCAPES" in modes:
        rules |= {"STRING_ESCAPES": ["'", '"']}
    made: type[Tokenizer] = new_class("MariaDbTokenizer", (MySQL.Tokenizer,), exec_body=lambda it: it.update(rules))
    return made
