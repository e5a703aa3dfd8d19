"""Statements as text: those that a session has run, and those that it would run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

_CHANGES_NOTHING = re.compile(r"\s*(SELECT|SHOW|PRAGMA|SET|WITH|SAVEPOINT|RELEASE)\b", re.IGNORECASE)
_PARAMETER = re.compile(r"""`[^`]*`|"[^"]*"|'[^']*'|\[[^\]]*\]|:(\w+)\b""")
"""A parameter, or a name or a text, in which there is none."""
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


class StatementRecorder:
    """Takes statements down as a session would run them, and runs none. Alembic writes to it as to a file."""

    def __init__(self, dialect: sa.Dialect) -> None:
        """Set the dialect, which must write parameters by their names (`paramstyle`)."""
        self.dialect = dialect
        self.statements: list[str] = []

    def execute(self, statement: sa.ClauseElement, parameters: Mapping[str, Any] | None = None) -> None:
        bound = statement.bindparams(**parameters or {}) if isinstance(statement, sa.TextClause) else statement
        compiled = bound.compile(dialect=self.dialect)
        shown = {name: self._literal(value) for name, value in compiled.params.items()}
        text = _PARAMETER.sub(lambda found: shown.get(found[1], found[0]), one_line(str(compiled)))
        self.statements.append(text)

    def _literal(self, value: object) -> str:
        # Some databases read backslashes in a text.
        written = sa.String().literal_processor(self.dialect) if isinstance(value, str) else None  # type: ignore[no-untyped-call]
        return literal(value) if written is None else written(str(value))

    def exec_driver_sql(self, statement: str, **_options: object) -> None:
        self.statements.append(one_line(statement))

    def write(self, text: str) -> None:
        if text.strip():
            self.statements.append(one_line(text))

    def flush(self) -> None:
        """Do nothing: Alembic asks for it."""
