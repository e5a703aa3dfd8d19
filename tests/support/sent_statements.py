"""What sessions of a database that SQLAlchemy reaches send, each a round trip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa


@contextmanager
def sent_statements(dialect: str) -> Iterator[list[str]]:
    """Collect what every session of this dialect of SQLAlchemy's sends."""
    sent: list[str] = []

    def note(session: sa.Connection, _cursor: object, statement: str, *_: object) -> None:
        if session.dialect.name == dialect:
            sent.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
