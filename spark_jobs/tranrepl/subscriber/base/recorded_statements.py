"""The statements that a session has run, as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal

import sqlalchemy as sa
from sqlalchemy import event

_CHANGES_NOTHING = re.compile(r"\s*(SELECT|SHOW|PRAGMA|SET|WITH|SAVEPOINT|RELEASE)\b", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")


@contextmanager
def recorded(session: sa.Connection) -> Iterator[list[str]]:
    """Yield the list of what the session runs within, but for what changes nothing; values behind a statement that
    takes some."""
    ran: list[str] = []

    def take_down(
        _connection: object, _cursor: object, statement: str, parameters: object, _context: object, _many: object
    ) -> None:
        if not _CHANGES_NOTHING.match(statement):
            ran.append(f"{one_line(statement)} ({_values(parameters)})" if parameters else one_line(statement))

    event.listen(session, "before_cursor_execute", take_down)
    try:
        yield ran
    finally:
        event.remove(session, "before_cursor_execute", take_down)


def literal(value: object) -> str:
    """Return a value for people to read, nearly as SQL has it."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"0x{bytes(value).hex()}"
    if isinstance(value, int | float | Decimal):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def _values(parameters: object) -> str:
    values = parameters.values() if isinstance(parameters, Mapping) else parameters
    return ", ".join(map(literal, values)) if isinstance(values, Iterable) else ""


def one_line(statement: str) -> str:
    return _BLANKS.sub(" ", statement).strip().rstrip(";")
